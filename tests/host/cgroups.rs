//! A node of real cgroups with made-up bundles and logs: on v1 in the cpuset and cpu hierarchies, else in the unified one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use podresources_proxy::kubepods::Names;
use podresources_proxy::source::host::{CpuSet, Known, Pods, Tree};
use tempfile::TempDir;

const ROOT: &str = "/sys/fs/cgroup";

/// Removed when it is dropped.
pub(crate) struct Node {
    /// Our own cgroup in each hierarchy, by controller.
    own: Vec<(&'static str, PathBuf)>,
    files: TempDir,
    unified: bool,
}

/// How a runtime and its cgroup driver name things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// containerd, systemd driver.
    Systemd,
    /// containerd, cgroupfs driver.
    Cgroupfs,
    /// CRI-O, systemd driver.
    Crio,
}

/// A pod: its number is its name and its uid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pod {
    pub(crate) shape: Shape,
    pub(crate) guaranteed: bool,
    pub(crate) number: usize,
}

/// Why real cgroups cannot be made here; in CI that is a failure.
pub(crate) fn missing() -> Option<&'static str> {
    let why = if !rustix::process::geteuid().is_root() {
        "this needs root, to make cgroups"
    } else if !Path::new(ROOT).join("cgroup.controllers").exists() && !Path::new(ROOT).join("cpuset/cpuset.cpus").exists() {
        "this needs a cpuset hierarchy below /sys/fs/cgroup"
    } else if online().len() < 2 {
        "this needs two CPUs"
    } else {
        return None;
    };
    assert!(std::env::var_os("CI").is_none(), "{why}");
    eprintln!("not run: {why}");
    Some(why)
}

fn online() -> CpuSet {
    CpuSet::parse(&fs::read_to_string("/sys/devices/system/cpu/online").unwrap()).unwrap()
}

// === impl Node ===

impl Node {
    /// A node with a kubepods root that has CPUs 0 and 1. No two at a time may have the same name.
    pub(crate) fn new(name: &str, shape: Shape) -> Self {
        let unified = Path::new(ROOT).join("cgroup.controllers").exists();
        let name = format!("podresources-proxy-{name}-{}", std::process::id());
        let at = |controller: &'static str| (controller, Path::new(ROOT).join(if unified { "" } else { controller }).join(&name));
        let own = if unified { vec![at("cpuset")] } else { vec![at("cpuset"), at("cpu")] };
        let node = Self { own, files: tempfile::tempdir().unwrap(), unified };
        node.make_all("");
        if unified {
            // Controllers are handed down level by level.
            fs::write(Path::new(ROOT).join("cgroup.subtree_control"), "+cpuset +cpu").unwrap();
        } else {
            node.give("", "0-1");
            fs::create_dir(node.files.path().join("cgroup")).unwrap();
            for (controller, own) in &node.own {
                std::os::unix::fs::symlink(own, node.files.path().join("cgroup").join(controller)).unwrap();
            }
        }
        node.hand_down("");
        node.make(shape.root(), "0-1");
        for class in ["burstable", "besteffort"] {
            node.make(&shape.class(class), "0-1");
        }
        node
    }

    /// What stands for `/sys/fs/cgroup`, so that nothing else on the machine is seen.
    pub(crate) fn cgroup_root(&self) -> PathBuf {
        if self.unified { self.own[0].1.clone() } else { self.files.path().join("cgroup") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    pub(crate) fn tree(&self) -> Tree {
        Tree::new(self.cgroup_root(), Names::new(vec![self.path("bundles")], self.path("logs")))
    }

    /// Everything, read anew.
    pub(crate) fn scanned(&self) -> Pods {
        let mut tree = self.tree();
        tree.rescan(&known());
        tree.view()
    }

    fn make_all(&self, cgroup: &str) {
        for (_, own) in &self.own {
            fs::create_dir_all(own.join(cgroup)).unwrap();
        }
    }

    /// A cgroup with CPUs of its own that may have others below it.
    pub(crate) fn make(&self, cgroup: &str, cpus: &str) {
        self.make_all(cgroup);
        self.give(cgroup, cpus);
        self.hand_down(cgroup);
    }

    /// One in the cpuset hierarchy alone, with what its parent has.
    pub(crate) fn make_plain(&self, cgroup: &str) {
        fs::create_dir(self.cpuset().join(cgroup)).unwrap();
    }

    fn hand_down(&self, cgroup: &str) {
        if self.unified {
            fs::write(self.cpuset().join(cgroup).join("cgroup.subtree_control"), "+cpuset +cpu").unwrap();
        } else {
            fs::write(self.cpuset().join(cgroup).join("cgroup.clone_children"), "1").unwrap();
        }
    }

    /// Writes a cgroup's set.
    pub(crate) fn give(&self, cgroup: &str, cpus: &str) {
        let dir = self.cpuset().join(cgroup);
        fs::write(dir.join("cpuset.cpus"), cpus).unwrap();
        if !self.unified && fs::read_to_string(dir.join("cpuset.mems")).unwrap().trim().is_empty() {
            fs::write(dir.join("cpuset.mems"), "0").unwrap();
        }
    }

    /// Gives a cgroup the share of so many CPUs.
    pub(crate) fn share(&self, cgroup: &str, cpus: u64) {
        let cpu = self.own.last().unwrap().1.join(cgroup);
        fs::create_dir_all(&cpu).unwrap();
        if self.unified {
            fs::write(cpu.join("cpu.weight"), (1 + (cpus * 1024 - 2) * 9999 / 262_142).to_string()).unwrap();
        } else {
            fs::write(cpu.join("cpu.shares"), (cpus * 1024).to_string()).unwrap();
        }
    }

    fn cpuset(&self) -> &Path {
        &self.own[0].1
    }

    pub(crate) fn remove(&self, cgroup: &str) {
        for (_, own) in &self.own {
            if own.join(cgroup).exists() {
                remove_tree(&own.join(cgroup)).unwrap();
            }
        }
    }

    /// A pod's cgroup and log directory.
    pub(crate) fn pod(&self, pod: Pod) {
        self.make_plain(&pod.cgroup());
        self.hand_down(&pod.cgroup());
        fs::create_dir_all(self.path("logs").join(format!("ns_pod-{}_{}", pod.number, pod.uid()))).unwrap();
    }

    /// A sandbox, which is given no set.
    pub(crate) fn sandbox(&self, pod: Pod) {
        self.make_plain(&pod.child(0));
        self.bundle(pod, 0, "sandbox");
    }

    /// A container named `c<number>`, with the share of one CPU where its pod is guaranteed.
    pub(crate) fn container(&self, pod: Pod, number: usize, cpus: &str) {
        self.make_plain(&pod.child(number));
        self.give(&pod.child(number), cpus);
        if pod.guaranteed {
            self.share(&pod.child(number), 1);
        }
        self.bundle(pod, number, "container");
    }

    fn bundle(&self, pod: Pod, number: usize, kind: &str) {
        let (uid, name) = (pod.uid(), pod.number);
        let (file, annotations) = if pod.shape == Shape::Crio {
            let labels = format!(r#"{{\"io.kubernetes.container.name\":\"c{number}\",\"io.kubernetes.pod.uid\":\"{uid}\"}}"#);
            (
                "userdata/config.json",
                format!(
                    r#""io.kubernetes.cri-o.ContainerType":"{kind}","io.kubernetes.cri-o.KubeName":"pod-{name}","io.kubernetes.cri-o.Namespace":"ns","io.kubernetes.cri-o.Labels":"{labels}""#
                ),
            )
        } else {
            (
                "config.json",
                format!(
                    r#""io.kubernetes.cri.container-type":"{kind}","io.kubernetes.cri.container-name":"c{number}","io.kubernetes.cri.sandbox-name":"pod-{name}","io.kubernetes.cri.sandbox-namespace":"ns","io.kubernetes.cri.sandbox-uid":"{uid}""#
                ),
            )
        };
        let file = self.path("bundles").join(pod.id(number)).join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        // About as long as a real one.
        let mounts = r#"{"destination":"/proc","type":"proc","source":"proc","options":["nosuid","noexec","nodev"]},"#.repeat(100);
        let json = format!(r#"{{"ociVersion":"1.2.0","mounts":[{mounts}{{}}],"annotations":{{{annotations}}}}}"#);
        fs::write(file, json).unwrap();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for (_, own) in &self.own {
            if let Err(error) = remove_tree(own) {
                eprintln!("cgroup {} stays: {error}", own.display());
            }
        }
    }
}

/// Cgroups are removed by their directories alone, the lowest first.
fn remove_tree(cgroup: &Path) -> io::Result<()> {
    for entry in fs::read_dir(cgroup)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(cgroup)
}

/// CPU 0 is reserved.
pub(crate) fn known() -> Known {
    Known { always_shared: CpuSet::parse("0").ok(), page_sizes: Vec::new() }
}

/// What is said of each listed container: `pod/container: CPUs`, `-` where it has none alone.
pub(crate) fn told(pods: &Pods) -> Vec<String> {
    let containers = pods.listed().flat_map(|(name, pod)| pod.containers.iter().map(move |container| (name, container)));
    let told = containers.filter_map(|(pod, container)| {
        let cpus = container.exclusive().map_or_else(|| "-".to_owned(), ToString::to_string);
        Some(format!("{}/{}: {cpus}", pod.name, container.name.as_ref()?))
    });
    told.collect()
}

// === impl Shape ===

impl Shape {
    fn root(self) -> &'static str {
        if self == Self::Cgroupfs { "kubepods" } else { "kubepods.slice" }
    }

    fn class(self, class: &str) -> String {
        if self == Self::Cgroupfs { format!("kubepods/{class}") } else { format!("kubepods.slice/kubepods-{class}.slice") }
    }
}

// === impl Pod ===

impl Pod {
    fn uid(&self) -> String {
        format!("01234567-89ab-cdef-0123-{:012x}", self.number)
    }

    pub(crate) fn cgroup(&self) -> String {
        let uid = self.uid();
        match (self.shape, self.guaranteed) {
            (Shape::Cgroupfs, true) => format!("kubepods/pod{uid}"),
            (Shape::Cgroupfs, false) => format!("kubepods/burstable/pod{uid}"),
            (_, true) => format!("kubepods.slice/kubepods-pod{}.slice", uid.replace('-', "_")),
            (_, false) => {
                format!("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice", uid.replace('-', "_"))
            }
        }
    }

    pub(crate) fn id(&self, number: usize) -> String {
        format!("{:032x}{number:032x}", self.number)
    }

    /// The cgroup of its sandbox (0) or of a container.
    pub(crate) fn child(&self, number: usize) -> String {
        let id = self.id(number);
        match self.shape {
            Shape::Systemd => format!("{}/cri-containerd-{id}.scope", self.cgroup()),
            Shape::Cgroupfs => format!("{}/{id}", self.cgroup()),
            Shape::Crio => format!("{}/crio-{id}.scope", self.cgroup()),
        }
    }
}
