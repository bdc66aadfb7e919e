//! The judgement: what the kubelet tells against what the host has. Pure.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Finding, Kind, Told, cpus};
use crate::cpuset::CpuSet;
use crate::kubepods::PodUid;
use crate::proto::v1;
use crate::snapshot::PodName;
use crate::source::host::{Container, Cpus, Pod, Pods, View, Why};

/// CPUs that the kubelet tells to be somebody's alone.
struct Claim {
    pod: usize,
    /// `None`: the pod's as a whole.
    container: Option<usize>,
    cpus: CpuSet,
}

/// A container without CPUs of its own, and its set.
struct Sharing<'a> {
    pod: usize,
    container: &'a Container,
    cpus: &'a CpuSet,
}

/// The state of one comparison.
struct Comparison<'a> {
    told: &'a Told,
    listed: HashMap<(&'a str, &'a str), usize>,
    claims: Vec<Claim>,
    findings: Vec<Finding>,
}

/// All disagreements, in order. `logged`: names by uid from the pod log directory, for pods that have a cgroup and nothing in it yet.
#[must_use]
#[expect(clippy::implicit_hasher, reason = "there is one kind of such a map here")]
pub fn compare(told: &Told, host: &View, logged: &HashMap<PodUid, PodName>) -> Vec<Finding> {
    let listed = told.pods.iter().enumerate().map(|(at, pod)| ((pod.namespace.as_str(), pod.name.as_str()), at)).collect();
    let mut comparison = Comparison { told, listed, claims: claims(told), findings: Vec::new() };
    comparison.online(host);
    // Without kubepods nothing can be said of pods.
    if !host.pods.roots.is_empty() {
        comparison.told_twice();
        let pods = comparison.of_this_kubelet(&host.pods, logged);
        comparison.pods(&pods, &host.pods, logged);
        comparison.cpusets(&pods, host, logged);
    }
    let mut findings = comparison.findings;
    findings.sort();
    findings.dedup();
    findings
}

/// A pod's name: its runtime's word, else the log directory's.
fn name_of<'a>(pod: &'a Pod, logged: &'a HashMap<PodUid, PodName>) -> Option<&'a PodName> {
    pod.name.as_ref().or_else(|| logged.get(&pod.uid))
}

fn claims(told: &Told) -> Vec<Claim> {
    let of_pod = |(at, pod): (usize, &v1::PodResources)| {
        let own = Claim { pod: at, container: None, cpus: cpus(&pod.cpu_ids) };
        let containers = pod.containers.iter().enumerate();
        let containers = containers.map(move |(nth, one)| Claim { pod: at, container: Some(nth), cpus: cpus(&one.cpu_ids) });
        std::iter::once(own).chain(containers).filter(|claim| !claim.cpus.is_empty()).collect::<Vec<_>>()
    };
    let mut claims: Vec<Claim> = told.pods.iter().enumerate().flat_map(of_pod).collect();
    if told.allocatable.is_none() {
        // Kubelets up to 1.20 list the shared pool under every container: what several have, nobody has alone.
        let (mut once, mut twice) = (CpuSet::new(), CpuSet::new());
        claims.iter().filter(|claim| claim.container.is_some()).for_each(|claim| claim.cpus.count_in(&mut once, &mut twice));
        for claim in &mut claims {
            claim.cpus = claim.cpus.difference(&twice);
        }
        claims.retain(|claim| !claim.cpus.is_empty());
    }
    claims
}

fn common(a: &CpuSet, b: &CpuSet) -> CpuSet {
    a.difference(&a.difference(b))
}

// === impl Comparison ===

impl<'a> Comparison<'a> {
    /// The kubelet fixes its set of CPUs when it starts.
    fn online(&mut self, host: &View) {
        let Some(allocatable) = &self.told.allocatable else { return };
        let node = &host.node;
        let offline = allocatable.difference(&node.online);
        if !offline.is_empty() {
            let detail = format!("CPUs {offline} are told as allocatable and are offline");
            self.findings.push(Finding { detail, ..bare(Kind::OnlineCpus) });
        }
        // Only where it is sure which CPUs are reserved; a static policy without reservation does not exist.
        if let Cpus::AllBut(reserved) = &node.settings.cpus
            && !reserved.is_empty()
        {
            let unknown = node.online.difference(reserved).difference(allocatable);
            if !unknown.is_empty() {
                let detail = format!(
                    "CPUs {unknown} are online, not reserved, and unknown to the kubelet: it takes them in when it restarts"
                );
                self.findings.push(Finding { detail, ..bare(Kind::OnlineCpus) });
            }
        }
    }

    /// The kubelet itself tells two containers that they have the same CPU alone.
    fn told_twice(&mut self) {
        let mut owner: HashMap<u32, &Claim> = HashMap::new();
        let mut pairs: BTreeMap<(usize, usize, usize, usize), CpuSet> = BTreeMap::new();
        let mut of_pods: HashMap<u32, usize> = HashMap::new();
        for claim in &self.claims {
            for cpu in claim.cpus.iter() {
                // Within a pod its containers' lie in the pod's own.
                let other_pod = *of_pods.entry(cpu).or_insert(claim.pod);
                let first = match claim.container {
                    Some(_) => *owner.entry(cpu).or_insert(claim),
                    None => claim,
                };
                let first_container = first.container.unwrap_or(usize::MAX);
                let own_container = claim.container.unwrap_or(usize::MAX);
                if other_pod != claim.pod || (first.pod == claim.pod && first_container != own_container) {
                    let other_container = if first.pod == other_pod { first_container } else { usize::MAX };
                    pairs.entry((other_pod, other_container, claim.pod, own_container)).or_default().insert(cpu);
                }
            }
        }
        for ((pod, container, other_pod, other), both) in pairs {
            let detail = format!("the kubelet tells CPUs {both} to {} too", self.whose(pod, Some(container)));
            let finding = self.finding(Kind::ExclusiveOverlap, other_pod, self.container(other_pod, Some(other)), detail);
            self.findings.push(finding);
        }
    }

    /// Where several kubelets run here, only the roots that have pods of the one that was asked.
    fn of_this_kubelet<'b>(&self, pods: &'b Pods, logged: &HashMap<PodUid, PodName>) -> Vec<&'b Pod> {
        let root = |pod: &Pod| {
            let below = |root: &&String| pod.cgroup.strip_prefix(root.as_str()).is_some_and(|rest| rest.starts_with('/'));
            pods.roots.iter().filter(below).max_by_key(|root| root.len())
        };
        if pods.roots.len() == 1 {
            return pods.pods.iter().collect();
        }
        let is_listed = |pod: &&Pod| name_of(pod, logged).is_some_and(|name| self.place(name).is_some());
        let roots: HashSet<&String> = pods.pods.iter().filter(is_listed).filter_map(root).collect();
        pods.pods.iter().filter(|pod| root(pod).is_some_and(|root| roots.contains(root))).collect()
    }

    fn pods(&mut self, pods: &[&Pod], all: &Pods, logged: &HashMap<PodUid, PodName>) {
        let mut found: BTreeMap<usize, Vec<&Pod>> = BTreeMap::new();
        let mut unnamed = Vec::new();
        for &pod in pods {
            match name_of(pod, logged) {
                None => unnamed.push(pod),
                Some(name) => match self.place(name) {
                    Some(at) => found.entry(at).or_default().push(pod),
                    None => self.without_pod(pod, Some(name), "the kubelet lists no such pod"),
                },
            }
        }
        for cgroups in found.values() {
            for cgroup in cgroups.iter().flat_map(|pod| &pod.left_over) {
                let detail = "a container's cgroup without processes and without a bundle".to_owned();
                let cgroup = Some(cgroup.clone());
                self.findings.push(Finding { cgroup, detail, ..bare(Kind::CgroupWithoutPod) });
            }
            let (alive, empty): (Vec<&Pod>, Vec<&Pod>) = cgroups.iter().partition(|pod| pod.left_out != Some(Why::EmptyPod));
            // Which of several is the one that the kubelet means is not known: an empty one is not.
            let extra = if alive.is_empty() { &empty[1..] } else { &empty[..] };
            for &pod in extra.iter().chain(alive.get(1..).unwrap_or_default()) {
                self.without_pod(pod, name_of(pod, logged), "another cgroup is there for the one pod of this name");
            }
        }
        let missing: Vec<usize> = (0..self.told.pods.len()).filter(|at| !found.contains_key(at)).collect();
        if missing.is_empty() {
            for pod in &unnamed {
                self.without_pod(
                    pod,
                    None,
                    "neither the runtime nor the pod log directory names it, and every listed pod has another",
                );
            }
        }
        // A cgroup without a name may be the one that is missing, and one that cannot be read hides some.
        if !unnamed.is_empty() || all.skipped.count(Why::Unreadable) > 0 {
            return;
        }
        for at in missing {
            let pod = &self.told.pods[at];
            let held = held(pod);
            let (kind, detail) = if held.is_empty() {
                (Kind::PodGone, "listed, and it has no cgroup".to_owned())
            } else {
                (Kind::DevicesOfDeadPod, format!("listed with {}, and it has no cgroup", held.join(", ")))
            };
            let finding = self.finding(kind, at, None, detail);
            self.findings.push(finding);
        }
    }

    fn without_pod(&mut self, pod: &Pod, name: Option<&PodName>, detail: &str) {
        self.findings.push(Finding {
            namespace: name.map(|name| name.namespace.clone()),
            pod: name.map(|name| name.name.clone()),
            cgroup: Some(pod.cgroup.clone()),
            detail: detail.to_owned(),
            ..bare(Kind::CgroupWithoutPod)
        });
    }

    fn cpusets(&mut self, pods: &[&'a Pod], host: &'a View, logged: &HashMap<PodUid, PodName>) {
        let mut sharing = Vec::new();
        let mut unlisted = CpuSet::new();
        for &pod in pods {
            let Some(at) = name_of(pod, logged).and_then(|name| self.place(name)) else { continue };
            for container in &pod.containers {
                let (Some(name), Some(set)) = (&container.name, &container.cpus) else { continue };
                // Half made.
                if set.is_empty() {
                    continue;
                }
                let nth = self.told.pods[at].containers.iter().position(|told| told.name == *name);
                if nth.is_none() && pod.guaranteed {
                    // A plain init container is never listed, and may have CPUs alone.
                    unlisted.union_with(set);
                }
                self.container_set(at, nth, container, set, host);
                let whole_pod = !self.told.pods[at].cpu_ids.is_empty();
                if let Some(nth) = nth
                    && !whole_pod
                    && self.told.pods[at].containers[nth].cpu_ids.is_empty()
                {
                    sharing.push(Sharing { pod: at, container, cpus: set });
                }
            }
        }
        self.shared_pool(&sharing, &unlisted, host);
    }

    /// One finding at most: the worst.
    fn container_set(&mut self, at: usize, nth: Option<usize>, container: &Container, set: &CpuSet, host: &View) {
        let pod = &self.told.pods[at];
        let own = nth.map(|nth| cpus(&pod.containers[nth].cpu_ids)).unwrap_or_default();
        let others = self.claims.iter().filter(|claim| match (claim.container, nth) {
            _ if claim.pod != at => true,
            // An init container has what its pod's containers will have.
            (Some(other), Some(nth)) => other != nth,
            _ => false,
        });
        let overlaps = others.map(|claim| (claim, common(&claim.cpus, set).difference(&own))).find(|(_, both)| !both.is_empty());
        let said = |own: &CpuSet| if own.is_empty() { "told none alone".to_owned() } else { format!("told {own}") };
        let (kind, detail) = if let Some((claim, both)) = overlaps {
            let owner = self.whose(claim.pod, claim.container);
            (Kind::ExclusiveOverlap, format!("{}; its cpuset {set} has {both} of {owner}", said(&own)))
        } else if own.is_empty() {
            return;
        } else if !common(&own, &host.node.online).is_subset(set) {
            (Kind::CpusNotInCpuset, format!("told {own}; its cpuset is {set}"))
        } else if !set.difference(&own).is_subset(&cpus(&pod.cpu_ids)) {
            (Kind::CpusetRewritten, format!("told {own}; its cpuset is {set}"))
        } else {
            return;
        };
        let finding = self.finding(kind, at, container.name.as_deref(), detail);
        self.findings.push(Finding { cgroup: Some(container.cgroup.clone()), ..finding });
    }

    /// Containers in the shared pool have one set, all of them. What it is can not always be known: CPUs may be kept for a container
    /// that has no cgroup. So one is suspect only beside others that have another set.
    fn shared_pool(&mut self, sharing: &[Sharing<'_>], unlisted: &CpuSet, host: &View) {
        let Some(allocatable) = &self.told.allocatable else { return };
        let online = &host.node.online;
        let mut pool = online.clone();
        for claim in &self.claims {
            pool = pool.difference(&claim.cpus);
        }
        // Reserved CPUs may be kept from the pool, too (`strict-cpu-reservation`).
        let mut excused = online.difference(allocatable);
        excused.union_with(unlisted);
        let as_it_should = |set: &CpuSet| set.is_subset(&pool) && pool.difference(set).is_subset(&excused);
        let mut counts: HashMap<&CpuSet, usize> = HashMap::new();
        for one in sharing {
            *counts.entry(one.cpus).or_default() += 1;
        }
        let usual =
            counts.iter().max_by_key(|(set, count)| (**count, as_it_should(set))).map(|(set, count)| ((*set).clone(), *count));
        let Some((usual, most)) = usual else { return };
        for one in sharing {
            let overlaps = self.findings.iter().any(|finding| finding.cgroup.as_deref() == Some(&one.container.cgroup));
            if overlaps || *one.cpus == usual || as_it_should(one.cpus) {
                continue;
            }
            if counts[one.cpus] < most || as_it_should(&usual) {
                let detail = format!("told none alone; its cpuset is {}, that of others in the shared pool {usual}", one.cpus);
                let finding = self.finding(Kind::CpusetRewritten, one.pod, one.container.name.as_deref(), detail);
                self.findings.push(Finding { cgroup: Some(one.container.cgroup.clone()), ..finding });
            }
        }
    }

    fn place(&self, name: &PodName) -> Option<usize> {
        self.listed.get(&(name.namespace.as_str(), name.name.as_str())).copied()
    }

    fn container(&self, pod: usize, nth: Option<usize>) -> Option<&'a str> {
        self.told.pods[pod].containers.get(nth?).map(|container| container.name.as_str())
    }

    fn whose(&self, at: usize, nth: Option<usize>) -> String {
        let pod = &self.told.pods[at];
        match self.container(at, nth) {
            Some(container) => format!("{}/{}/{container}", pod.namespace, pod.name),
            None => format!("{}/{}", pod.namespace, pod.name),
        }
    }

    fn finding(&self, kind: Kind, at: usize, container: Option<&str>, detail: String) -> Finding {
        let pod = &self.told.pods[at];
        let (namespace, pod) = (Some(pod.namespace.clone()), Some(pod.name.clone()));
        Finding { namespace, pod, container: container.map(str::to_owned), detail, ..bare(kind) }
    }
}

const fn bare(kind: Kind) -> Finding {
    Finding { kind, namespace: None, pod: None, container: None, cgroup: None, detail: String::new() }
}

/// What a pod is listed with, in words.
fn held(pod: &v1::PodResources) -> Vec<&'static str> {
    let any = |holds: fn(&v1::ContainerResources) -> bool| pod.containers.iter().any(holds);
    let held = [
        (any(|container| !container.devices.is_empty()), "devices"),
        (any(|container| !container.dynamic_resources.is_empty()), "claims"),
        (!pod.cpu_ids.is_empty() || any(|container| !container.cpu_ids.is_empty()), "CPUs"),
        (!pod.memory.is_empty() || any(|container| !container.memory.is_empty()), "memory"),
    ];
    held.into_iter().filter_map(|(is, what)| is.then_some(what)).collect()
}
