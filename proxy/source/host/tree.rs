//! The pods of the cgroup tree, kept: a full scan, and after that only what changed.
//!
//! Long because the kept facts, what a change touches and the judgement of it hold each other's invariants.
//! Blocks. Files that vanish while they are read are normal: what they belonged to is gone.

mod follow;

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::cgroup::{Hierarchies, ReadError};
use super::exclusive::{self, Entitlement, Verdict};
use super::skip::{Skipped, Why};
use super::view;
use crate::cpuset::CpuSet;
use crate::kubepods::{Child, Names, PodUid, Unnamed};
use crate::snapshot::PodName;

/// A change in the cgroups, as an event tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The cgroup's path below its hierarchy's mount, without a slash before it.
    pub cgroup: String,
    /// What happened to it.
    pub kind: ChangeKind,
}

/// What happened to a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// `mkdir`.
    Made,
    /// `rmdir`.
    Removed,
    /// One of its cpuset files was written.
    Written,
}

/// The tree as it was when it was looked at last.
#[derive(Debug)]
pub struct Tree {
    cgroup_root: PathBuf,
    hierarchies: Hierarchies,
    names: Names,
    roots: Vec<Root>,
    /// By cgroup path.
    pods: BTreeMap<String, Pod>,
    /// What the last scan passed over outside of pods.
    skipped: Skipped,
    /// Cgroups that were told to be made and cannot be seen yet.
    announced: BTreeMap<String, ChangeKind>,
}

/// One kubelet's kubepods.
#[derive(Debug)]
struct Root {
    cgroup: String,
    cpus: CpuSet,
    mems: CpuSet,
}

#[derive(Debug)]
struct Pod {
    uid: PodUid,
    /// As an index into the roots.
    root: usize,
    guaranteed: bool,
    name: Option<PodName>,
    /// By cgroup path.
    members: BTreeMap<String, Member>,
    entitlement: Option<Entitlement>,
    skipped: Skipped,
    /// CPUs of the pod as a whole.
    cpus: Option<CpuSet>,
}

/// A container or sandbox, or what may be one.
#[derive(Debug)]
struct Member {
    id: String,
    role: Role,
    /// `None`: it cannot be read.
    cpus: Option<CpuSet>,
    partition: bool,
    entitlement: Option<Entitlement>,
    memory: Vec<view::Memory>,
    verdict: Verdict,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Role {
    Sandbox,
    Container {
        name: String,
    },
    /// It has processes, and nobody says what they are.
    Unknown,
}

/// What is known beforehand of a machine.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// CPUs that are in the shared pool at all times; `None` where that is not known.
    pub always_shared: Option<CpuSet>,
    /// Sizes of huge pages, in KiB.
    pub page_sizes: Vec<u64>,
}

// === impl Tree ===

impl Tree {
    /// An empty tree; [`Tree::rescan`] fills it.
    #[must_use]
    pub fn new(cgroup_root: PathBuf, names: Names) -> Self {
        let hierarchies = Hierarchies::find(&cgroup_root);
        let (roots, pods, announced) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        Self { cgroup_root, hierarchies, names, roots, pods, skipped: Skipped::default(), announced }
    }

    /// Reads everything.
    pub fn rescan(&mut self, known: &Known) {
        self.hierarchies = Hierarchies::find(&self.cgroup_root);
        self.names.begin();
        self.announced.clear();
        self.skipped = Skipped::default();
        self.pods.clear();
        self.roots = self.hierarchies.roots().into_iter().filter_map(|cgroup| self.read_root(cgroup)).collect();
        for root in 0..self.roots.len() {
            self.scan_root(root, known);
        }
        let pods = &self.pods;
        let ids: std::collections::HashSet<&str> =
            pods.values().flat_map(|pod| pod.members.values()).map(|m| m.id.as_str()).collect();
        self.names.keep(|id| ids.contains(id));
        if self.names.odd_logs() > 0 {
            self.skipped.add(Why::OddName, "the pod log directory", format!("{} entries name no pod", self.names.odd_logs()));
        }
        self.settle(known);
    }

    /// Reads again what a change touched. `false`: that cannot be told from the change alone, and nothing was done; rescan.
    pub fn apply(&mut self, change: &Change, known: &Known) -> bool {
        self.names.begin();
        let touched = self.touch(change.cgroup.trim_matches('/'), known);
        if touched {
            self.settle(known);
        }
        touched
    }

    /// The same, before anything is judged anew.
    fn touch(&mut self, cgroup: &str, known: &Known) -> bool {
        let Some((root, below)) = self.root_of(cgroup) else {
            // Above or beside kubepods: a new or lost root, or nothing to us.
            return !could_be_root(cgroup, &self.roots);
        };
        let mut parts: Vec<&str> = below.split('/').filter(|part| !part.is_empty()).collect();
        let guaranteed = parts.first().is_some_and(|first| PodUid::of_cgroup(first).is_some());
        if !guaranteed && !parts.is_empty() {
            parts.remove(0);
        }
        // The root itself, or a class: what is effective below may have changed everywhere.
        let Some(pod) = parts.first().filter(|name| PodUid::of_cgroup(name).is_some()) else { return below_means_nothing(below) };
        let Some(end) = cgroup.find(pod).map(|start| start + pod.len()) else { return false };
        let pod_cgroup = cgroup[..end].to_owned();
        match (parts.get(1), parts.len()) {
            // A child of a container is not looked at, save the one that CRI-O nests.
            (Some(child), 2 | 3) => self.reread_member(root, &pod_cgroup, child, known),
            (Some(_), _) => {}
            (None, _) => self.reread_pod(root, guaranteed, pod_cgroup, known),
        }
        true
    }

    /// What there is, for answers and for whoever compares.
    #[must_use]
    pub fn view(&self) -> view::Pods {
        let mut skipped = self.skipped.clone();
        let pods = self.pods.iter().map(|(cgroup, pod)| {
            skipped.add_all(&pod.skipped);
            pod.view(cgroup)
        });
        let mut pods: Vec<view::Pod> = pods.collect();
        for pod in &mut pods {
            if let Some(why) = pod.left_out {
                skipped.add(why, pod.cgroup.as_str(), "");
            }
        }
        pods.sort_by(|a, b| (&a.name, &a.cgroup).cmp(&(&b.name, &b.cgroup)));
        view::Pods { roots: self.roots.iter().map(|root| root.cgroup.clone()).collect(), pods, skipped }
    }

    fn read_root(&mut self, cgroup: String) -> Option<Root> {
        let all = |result: Result<Option<CpuSet>, ReadError>, skipped: &mut Skipped| match result {
            Ok(set) => Some(set.unwrap_or_default()),
            Err(ReadError::Vanished) => None,
            Err(error) => {
                skipped.add(Why::BadCpuset, cgroup.as_str(), error);
                Some(CpuSet::new())
            }
        };
        let cpus = all(self.hierarchies.cpus(&cgroup), &mut self.skipped)?;
        let mems = all(self.hierarchies.mems(&cgroup), &mut self.skipped)?;
        Some(Root { cgroup, cpus, mems })
    }

    fn scan_root(&mut self, root: usize, known: &Known) {
        let cgroup = self.roots[root].cgroup.clone();
        for name in self.children(&cgroup) {
            let path = format!("{cgroup}/{name}");
            if PodUid::of_cgroup(&name).is_some() {
                self.scan_pod(root, true, path, known);
            } else if name.contains("burstable") || name.contains("besteffort") {
                for pod in self.children(&path) {
                    let path = format!("{path}/{pod}");
                    if PodUid::of_cgroup(&pod).is_some() {
                        self.scan_pod(root, false, path, known);
                    } else {
                        self.skipped.add(Why::Stray, path, "");
                    }
                }
            } else {
                self.skipped.add(Why::Stray, path, "");
            }
        }
    }

    fn reread_pod(&mut self, root: usize, guaranteed: bool, cgroup: String, known: &Known) {
        self.pods.remove(&cgroup);
        self.scan_pod(root, guaranteed, cgroup, known);
    }

    fn scan_pod(&mut self, root: usize, guaranteed: bool, cgroup: String, known: &Known) {
        let Some(uid) = PodUid::of_cgroup(cgroup.rsplit('/').next().unwrap_or_default()) else { return };
        let mut pod = Pod {
            uid,
            root,
            guaranteed,
            name: None,
            members: BTreeMap::new(),
            entitlement: None,
            skipped: Skipped::default(),
            cpus: None,
        };
        let Some(children) = directories(&self.hierarchies.mount().join(&cgroup), &mut pod.skipped) else { return };
        for child in children {
            self.read_member(&mut pod, &cgroup, &child, known);
        }
        self.name(&mut pod);
        self.pods.insert(cgroup, pod);
    }

    fn reread_member(&mut self, root: usize, pod_cgroup: &str, child: &str, known: &Known) {
        let Some(mut pod) = self.pods.remove(pod_cgroup) else {
            let guaranteed = pod_cgroup.rsplit_once('/').is_some_and(|(above, _)| above == self.roots[root].cgroup);
            return self.scan_pod(root, guaranteed, pod_cgroup.to_owned(), known);
        };
        if pod.skipped.total() > 0 {
            // What was passed over of the others is told again only where they are read again.
            return self.scan_pod(root, pod.guaranteed, pod_cgroup.to_owned(), known);
        }
        pod.members.remove(&format!("{pod_cgroup}/{child}"));
        pod.entitlement = None;
        if self.hierarchies.mount().join(pod_cgroup).join(child).is_dir() {
            self.read_member(&mut pod, pod_cgroup, child, known);
        }
        self.name(&mut pod);
        self.pods.insert(pod_cgroup.to_owned(), pod);
    }

    /// Reads what is directly in a pod's cgroup; leaves nothing where it is not there.
    fn read_member(&mut self, pod: &mut Pod, pod_cgroup: &str, child: &str, known: &Known) {
        let cgroup = format!("{pod_cgroup}/{child}");
        let id = match Child::of_pod(child) {
            Child::Container(id) => id,
            Child::Monitor => return,
            Child::Other => return pod.skipped.add(Why::Stray, cgroup, ""),
        };
        let Some(role) = self.role(pod, &cgroup, id) else { return };
        // A sandbox was given no set: it has whatever it was started in.
        let cpus = if role == Role::Sandbox { Ok(CpuSet::new()) } else { self.cpus(pod.root, &cgroup, child) };
        let cpus = match cpus {
            Ok(cpus) => Some(cpus),
            Err(ReadError::Vanished) => return,
            Err(error) => {
                pod.skipped.add(Why::BadCpuset, cgroup.as_str(), error);
                None
            }
        };
        let outside = cpus.as_ref().is_some_and(|cpus| !cpus.is_subset(&self.roots[pod.root].cpus));
        let partition = outside && self.hierarchies.is_partition(&cgroup);
        let memory = if pod.guaranteed && role != Role::Sandbox { self.memory(pod.root, &cgroup, known) } else { Vec::new() };
        let verdict = Verdict::Not(exclusive::Because::Unknown);
        let member = Member { id: id.to_owned(), role, cpus, partition, entitlement: None, memory, verdict };
        pod.members.insert(cgroup, member);
    }

    fn role(&mut self, pod: &mut Pod, cgroup: &str, id: &str) -> Option<Role> {
        match self.names.identity(id, &pod.uid) {
            Ok(identity) if identity.uid.as_ref().is_some_and(|uid| *uid != pod.uid) => {
                pod.skipped.add(Why::ForeignBundle, cgroup, "its bundle names another pod");
                Some(Role::Unknown)
            }
            Ok(identity) => {
                if pod.name.is_none() {
                    pod.name.clone_from(&identity.pod);
                }
                match &identity.container {
                    Some(name) => Some(Role::Container { name: name.clone() }),
                    None => Some(Role::Sandbox),
                }
            }
            Err(error) => {
                let why = if matches!(error, Unnamed::NoBundle) { Why::ContainerWithoutName } else { Why::BadBundle };
                // The runtime takes the bundle away when the container has ended.
                if why == Why::ContainerWithoutName && !self.hierarchies.is_populated(cgroup) {
                    pod.skipped.add(Why::LeftOver, cgroup, "");
                    return None;
                }
                pod.skipped.add(why, cgroup, error);
                Some(Role::Unknown)
            }
        }
    }

    /// CRI-O may nest a cgroup in a container's, and gives that the set.
    fn cpus(&self, root: usize, cgroup: &str, child: &str) -> Result<CpuSet, ReadError> {
        let own = self.hierarchies.cpus(cgroup)?.unwrap_or_else(|| self.roots[root].cpus.clone());
        if child.starts_with("crio-") {
            match self.hierarchies.cpus(&format!("{cgroup}/container")) {
                Ok(Some(nested)) if !nested.is_empty() => return Ok(nested),
                Ok(_) | Err(ReadError::Vanished) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(own)
    }

    /// Memory of a container that is bound to some of the nodes that kubepods has. It has that much at most: its limit is its request,
    /// since its pod is guaranteed.
    fn memory(&self, root: usize, cgroup: &str, known: &Known) -> Vec<view::Memory> {
        let all = &self.roots[root].mems;
        if all.len() < 2 {
            return Vec::new();
        }
        let Ok(Some(nodes)) = self.hierarchies.mems(cgroup) else { return Vec::new() };
        if nodes.is_empty() || !nodes.is_proper_subset(all) {
            return Vec::new();
        }
        let block = |page_kib: Option<u64>, bytes: Option<u64>| {
            bytes.filter(|bytes| *bytes > 0).map(|bytes| view::Memory { page_kib, bytes, nodes: nodes.clone() })
        };
        let ordinary = block(None, self.hierarchies.memory_limit(cgroup));
        let huge = known.page_sizes.iter().filter_map(|&size| block(Some(size), self.hierarchies.hugepages_limit(cgroup, size)));
        ordinary.into_iter().chain(huge).collect()
    }

    /// A pod with nothing in it is left out of answers: its name is not worth a look.
    fn name(&mut self, pod: &mut Pod) {
        if pod.members.is_empty() {
            pod.name = None;
        } else if pod.name.is_none() {
            pod.name = self.names.pod(&pod.uid).cloned();
        }
    }

    fn children(&mut self, cgroup: &str) -> Vec<String> {
        directories(&self.hierarchies.mount().join(cgroup), &mut self.skipped).unwrap_or_default()
    }

    /// The root that a cgroup lies in, and its path below that.
    fn root_of<'a>(&self, cgroup: &'a str) -> Option<(usize, &'a str)> {
        self.roots.iter().enumerate().find_map(|(at, root)| {
            let below = cgroup.strip_prefix(root.cgroup.as_str())?;
            (below.is_empty() || below.starts_with('/')).then_some((at, below))
        })
    }

    /// Says anew who has which CPUs to itself: a relation between all sets.
    fn settle(&mut self, known: &Known) {
        let judge = |pods: &[exclusive::Pod<'_>], containers: &[exclusive::Container<'_>]| {
            (exclusive::undecided(pods, containers), exclusive::decide(pods, containers))
        };
        let ((mine, whole), mut verdicts) = self.facts(known, judge);
        let mut unread: Vec<(String, Option<String>)> = Vec::new();
        for (at, (cgroup, pod)) in self.pods.iter().enumerate() {
            if pod.entitlement.is_none() && whole.binary_search(&at).is_ok() {
                unread.push((cgroup.clone(), None));
            }
        }
        for (at, (pod, cgroup, member)) in self.containers().enumerate() {
            if member.entitlement.is_none() && mine.binary_search(&at).is_ok() {
                unread.push((pod.to_owned(), Some(cgroup.to_owned())));
            }
        }
        let more = !unread.is_empty();
        for (pod, member) in unread {
            let entitlement = Some(self.hierarchies.entitlement(member.as_ref().unwrap_or(&pod)));
            let Some(pod) = self.pods.get_mut(&pod) else { continue };
            match member {
                Some(member) => {
                    if let Some(member) = pod.members.get_mut(&member) {
                        member.entitlement = entitlement;
                    }
                }
                None => pod.entitlement = entitlement,
            }
        }
        // Mostly all is known already.
        if more {
            verdicts = self.facts(known, exclusive::decide);
        }
        let mut of_container = verdicts.containers.into_iter();
        for (pod, cpus) in self.pods.values_mut().zip(verdicts.pods) {
            pod.cpus = cpus;
            for member in pod.members.values_mut().filter(|member| member.role != Role::Sandbox) {
                member.verdict = of_container.next().unwrap_or(Verdict::Not(exclusive::Because::Unknown));
            }
        }
    }

    /// Pod, path and container, in the order of the facts.
    fn containers(&self) -> impl Iterator<Item = (&str, &str, &Member)> {
        self.pods.iter().flat_map(|(pod, of)| {
            let members = of.members.iter().filter(|(_, member)| member.role != Role::Sandbox);
            members.map(move |(cgroup, member)| (pod.as_str(), cgroup.as_str(), member))
        })
    }

    fn facts<T>(&self, known: &Known, judge: impl FnOnce(&[exclusive::Pod<'_>], &[exclusive::Container<'_>]) -> T) -> T {
        let pods = self.pods.values().map(|pod| exclusive::Pod {
            guaranteed: pod.guaranteed,
            entitlement: pod.entitlement,
            pool: exclusive::Pool { cpus: &self.roots[pod.root].cpus, always_shared: known.always_shared.as_ref() },
        });
        let pods: Vec<_> = pods.collect();
        let containers = self.pods.values().enumerate().flat_map(|(at, pod)| {
            pod.members.values().filter(|member| member.role != Role::Sandbox).map(move |member| exclusive::Container {
                pod: at,
                cpus: member.cpus.as_ref(),
                known: member.role != Role::Unknown,
                partition: member.partition,
                entitlement: member.entitlement,
            })
        });
        judge(&pods, &containers.collect::<Vec<_>>())
    }
}

// === impl Pod ===

impl Pod {
    fn view(&self, cgroup: &str) -> view::Pod {
        let containers = self.members.iter().filter(|(_, member)| member.role != Role::Sandbox);
        let containers: Vec<_> = containers.map(|(cgroup, member)| member.view(cgroup)).collect();
        let unnamed = containers.iter().any(|container| container.name.is_none());
        let left_out = match &self.name {
            _ if self.members.is_empty() => Some(Why::EmptyPod),
            None => Some(Why::PodWithoutName),
            Some(_) if unnamed && containers.iter().all(|container| container.name.is_none()) => Some(Why::PodWithoutContainers),
            Some(_) => None,
        };
        let left_over = self.skipped.named().iter().filter(|skip| skip.why == Why::LeftOver);
        view::Pod {
            left_over: left_over.map(|skip| skip.what.clone()).collect(),
            name: self.name.clone(),
            uid: self.uid,
            cgroup: cgroup.to_owned(),
            guaranteed: self.guaranteed,
            containers,
            cpus: self.cpus.clone(),
            left_out,
        }
    }
}

// === impl Member ===

impl Member {
    fn view(&self, cgroup: &str) -> view::Container {
        let name = match &self.role {
            Role::Container { name } => Some(name.clone()),
            Role::Sandbox | Role::Unknown => None,
        };
        view::Container {
            name,
            id: self.id.clone(),
            cgroup: cgroup.to_owned(),
            cpus: self.cpus.clone(),
            verdict: self.verdict,
            memory: self.memory.clone(),
        }
    }
}

/// Whether a cgroup outside of every root that is known may be a root, or lie above or in one.
fn could_be_root(cgroup: &str, roots: &[Root]) -> bool {
    cgroup.contains("kubepods") || roots.iter().any(|root| root.cgroup.starts_with(cgroup))
}

/// A cgroup below a root that is no pod's: a stray one means nothing, the root or a class may mean everything.
fn below_means_nothing(below: &str) -> bool {
    let mut parts = below.split('/').filter(|part| !part.is_empty());
    parts.next().is_some_and(|first| !first.contains("burstable") && !first.contains("besteffort")) || parts.next().is_some()
}

/// The names of the directories in one; `None` where it is gone.
fn directories(dir: &std::path::Path, skipped: &mut Skipped) -> Option<Vec<String>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => {
            skipped.add(Why::Unreadable, dir.display().to_string(), error);
            return Some(Vec::new());
        }
    };
    // An entry that fails is one that vanished.
    let entries = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let name = |entry: std::fs::DirEntry| entry.file_name().into_string();
    let names = entries.filter_map(|entry| {
        name(entry).map_err(|odd| skipped.add(Why::OddName, format!("{}/{}", dir.display(), odd.display()), "")).ok()
    });
    Some(names.collect())
}
