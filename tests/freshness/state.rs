//! The kernel's state that is changed and looked at: pod cgroups in every hierarchy that counts, a cpuset, a state file of the kubelet's.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use podresources_proxy::proto::v1::{ContainerDevices, ContainerResources, ListPodResourcesResponse, PodResources};
use prost::Message as _;

/// One way to change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A pod's cgroup is made in the hierarchy of this number, or removed.
    Mkdir(usize),
    Rmdir(usize),
    /// A pod's cpuset is written.
    Cpuset,
    /// A state file is renamed into place.
    Rename,
}

/// What a List after the change must show.
#[derive(Debug)]
pub(crate) enum Expected {
    Pod(String),
    NoPod(String),
    Cpus(Vec<i64>),
    Device(String),
}

/// Removed with all that is in it when dropped.
#[derive(Debug)]
pub(crate) struct State {
    seen: Seen,
}

/// Where to look.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// A kubepods cgroup in each hierarchy.
    kubepods: Vec<PathBuf>,
    /// The pod whose cpuset is written, where cpusets can be had.
    cpuset: Option<PathBuf>,
    state_file: PathBuf,
}

const ROOT: &str = "/sys/fs/cgroup";
const DRA: &str = "dra_manager_state";

// === impl Change ===

impl Change {
    pub(crate) fn is_of_cgroups(self) -> bool {
        matches!(self, Self::Mkdir(_) | Self::Rmdir(_))
    }
}

// === impl State ===

impl State {
    pub(crate) fn new(name: &str, kubelet_dir: &Path) -> Self {
        let name = format!("podresources-proxy-race-{name}-{}", std::process::id());
        let v2_only = Path::new(ROOT).join("cgroup.controllers").exists();
        let mounts =
            if v2_only { vec![PathBuf::from(ROOT)] } else { vec![Path::new(ROOT).join("cpuset"), Path::new(ROOT).join("unified")] };
        let mut seen = Seen { kubepods: Vec::new(), cpuset: None, state_file: kubelet_dir.join(DRA) };
        for mount in mounts {
            let ours = mount.join(&name);
            let kubepods = ours.join("kubepods");
            let pod = kubepods.join("podcpus");
            if v2_only {
                fs::write(mount.join("cgroup.subtree_control"), "+cpuset").unwrap();
            }
            for cgroup in [&ours, &kubepods] {
                fs::create_dir(cgroup).unwrap();
                if v2_only {
                    fs::write(cgroup.join("cgroup.subtree_control"), "+cpuset").unwrap();
                } else if cgroup.join("cpuset.cpus").exists() {
                    fill(cgroup, &mount);
                }
            }
            fs::create_dir(&pod).unwrap();
            if pod.join("cpuset.cpus").exists() {
                fill(&pod, &mount);
                seen.cpuset = Some(pod);
            }
            seen.kubepods.push(kubepods);
        }
        fs::write(&seen.state_file, "first").unwrap();
        Self { seen }
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.clone()
    }

    /// The kubepods cgroup of the hierarchy that matters most.
    pub(crate) fn kubepods(&self) -> PathBuf {
        self.seen.kubepods[0].clone()
    }

    /// Lays our own cgroups out at `root` as a machine has them, so that whoever looks there sees no other.
    pub(crate) fn mount(&self, root: &Path) {
        let ours = self.seen.kubepods.iter().map(|kubepods| kubepods.parent().unwrap());
        for ours in ours {
            match ours.parent().unwrap() {
                v2 if v2 == Path::new(ROOT) => {
                    fs::remove_dir(root).unwrap();
                    symlink(ours, root).unwrap();
                }
                hierarchy => symlink(ours, root.join(hierarchy.file_name().unwrap())).unwrap(),
            }
        }
    }

    /// A cgroup that is none of the kubelet's, beside its.
    pub(crate) fn beside(&self) -> PathBuf {
        self.seen.kubepods[0].parent().unwrap().to_owned()
    }

    /// The pod cgroups that are always there, one in each hierarchy.
    pub(crate) fn pods(&self) -> Vec<PathBuf> {
        self.seen.kubepods.iter().map(|kubepods| kubepods.join("podcpus")).collect()
    }

    /// So many containers with a cpuset each.
    pub(crate) fn shared_containers(&self, count: usize) -> Option<Vec<PathBuf>> {
        let pod = self.seen.cpuset.as_ref()?;
        let kubepods = pod.parent()?;
        let made = (0..count).map(|number| {
            let container = kubepods.join(format!("podshared{number}"));
            fs::create_dir(&container).unwrap();
            fill(&container, kubepods);
            container
        });
        Some(made.collect())
    }

    /// What can be changed here; a cgroup is made before it is removed.
    pub(crate) fn changes(&self) -> Vec<Change> {
        let hierarchies = 0..self.seen.kubepods.len();
        let mut changes: Vec<Change> = hierarchies.clone().map(Change::Mkdir).collect();
        changes.extend(self.seen.cpuset.as_ref().map(|_| Change::Cpuset));
        changes.push(Change::Rename);
        changes.extend(hierarchies.map(Change::Rmdir));
        changes
    }

    /// Makes the change; when this returns, so has the system call.
    pub(crate) fn make(&mut self, change: Change, round: usize) -> Expected {
        match change {
            Change::Mkdir(hierarchy) => {
                let pod = format!("podmade{hierarchy}");
                fs::create_dir(self.seen.kubepods[hierarchy].join(&pod)).unwrap();
                Expected::Pod(pod)
            }
            Change::Rmdir(hierarchy) => {
                let pod = format!("podmade{hierarchy}");
                fs::remove_dir(self.seen.kubepods[hierarchy].join(&pod)).unwrap();
                Expected::NoPod(pod)
            }
            Change::Cpuset => {
                let file = self.seen.cpuset.as_ref().unwrap().join("cpuset.cpus");
                let mask = if cpus(&file) == [0] { "0-1" } else { "0" };
                fs::write(&file, mask).unwrap();
                Expected::Cpus(cpus(&file))
            }
            Change::Rename => {
                let device = format!("device-{round}");
                let temporary = self.seen.state_file.with_file_name(format!(".{DRA}.new"));
                fs::write(&temporary, &device).unwrap();
                fs::rename(&temporary, &self.seen.state_file).unwrap();
                Expected::Device(device)
            }
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        for kubepods in &self.seen.kubepods {
            for pod in directories(kubepods) {
                remove(&kubepods.join(pod));
            }
            remove(kubepods);
            kubepods.parent().into_iter().for_each(remove);
        }
    }
}

/// cgroups are busy for a moment after their last process has gone.
fn remove(cgroup: &Path) {
    for _ in 0..100 {
        if fs::remove_dir(cgroup).is_ok() || !cgroup.exists() {
            return;
        }
        sleep(Duration::from_millis(10));
    }
    eprintln!("cgroup {} stays", cgroup.display());
}

/// A v1 cpuset begins empty, and takes no child's CPUs and no process before it has some.
fn fill(cgroup: &Path, mount: &Path) {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let whole =
            [file.to_owned(), format!("{file}.effective")].map(|file| fs::read_to_string(mount.join(file)).unwrap_or_default());
        let whole = whole.iter().find(|text| !text.trim().is_empty()).unwrap();
        fs::write(cgroup.join(file), whole.trim()).unwrap();
    }
}

// === impl Seen ===

impl Seen {
    /// What an honest kubelet would say of it.
    pub(crate) fn list(&self) -> ListPodResourcesResponse {
        let pods =
            self.kubepods.iter().flat_map(|kubepods| directories(kubepods)).map(|name| pod(name, ContainerResources::default()));
        let cpus = self
            .cpuset
            .iter()
            .map(|cgroup| ContainerResources { cpu_ids: cpus(&cgroup.join("cpuset.cpus")), ..Default::default() });
        let device = fs::read_to_string(&self.state_file).unwrap_or_default();
        let devices =
            vec![ContainerDevices { resource_name: "example.com/d".to_owned(), device_ids: vec![device], ..Default::default() }];
        let fixed = cpus.map(|container| pod("cpus".to_owned(), container));
        let claimed = pod("claimed".to_owned(), ContainerResources { devices, ..Default::default() });
        ListPodResourcesResponse { pod_resources: pods.chain(fixed).chain([claimed]).collect() }
    }
}

fn pod(name: String, mut container: ContainerResources) -> PodResources {
    "c".clone_into(&mut container.name);
    PodResources { name, namespace: "race".to_owned(), containers: vec![container], ..Default::default() }
}

fn directories(cgroup: &Path) -> Vec<String> {
    let entries = fs::read_dir(cgroup).into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().is_dir()).filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// The CPUs of a list like `0-1,4`.
fn cpus(file: &Path) -> Vec<i64> {
    let text = fs::read_to_string(file).unwrap();
    let ranges = text.trim().split(',').filter(|range| !range.is_empty());
    ranges
        .flat_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            first.parse().unwrap()..=last.parse::<i64>().unwrap()
        })
        .collect()
}

// === impl Expected ===

impl Expected {
    /// In a reply's body.
    #[track_caller]
    pub(crate) fn assert_in(&self, body: &[u8]) {
        let list = ListPodResourcesResponse::decode(body.get(5..).expect("a message")).unwrap();
        self.holds(&list).unwrap();
    }

    /// Or what stands there instead.
    pub(crate) fn holds(&self, list: &ListPodResourcesResponse) -> Result<(), String> {
        let of = |name: &str| list.pod_resources.iter().find(|pod| pod.name == name);
        let holds = match self {
            Self::Pod(name) => of(name).is_some(),
            Self::NoPod(name) => of(name).is_none(),
            Self::Cpus(cpus) => of("cpus").is_some_and(|pod| pod.containers[0].cpu_ids == *cpus),
            Self::Device(device) => of("claimed").is_some_and(|pod| pod.containers[0].devices[0].device_ids == [device.as_str()]),
        };
        if holds { Ok(()) } else { Err(format!("{self:?} expected in {list:?}")) }
    }
}
