//! Cgroups: where the node's pods are, and a cgroup of its own for a client.

use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/fs/cgroup";

/// Where to look for pods, and to put clients: one hierarchy is enough.
fn hierarchy() -> PathBuf {
    let root = Path::new(ROOT);
    if root.join("cgroup.controllers").exists() { root.to_owned() } else { root.join("pids") }
}

/// Where a process's unit is looked up: systemd's own hierarchy, which is v2 on every host that has it.
fn of_units() -> PathBuf {
    let root = Path::new(ROOT);
    if root.join("cgroup.controllers").exists() { root.to_owned() } else { root.join("unified") }
}

/// A cgroup like a unit's, so that the proxy takes what is in it for a client of its own; removed at the end, when its processes have
/// gone.
pub(crate) struct Cgroup(PathBuf);

// === impl Cgroup ===

impl Cgroup {
    pub(crate) fn new(name: &str) -> Self {
        let path = of_units().join(format!("{name}.service"));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn add(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.0) {
            eprintln!("cgroup {} stays: {error}", self.0.display());
        }
    }
}

/// The part of the cgroups below `root` alone, as if it were all: the unified one itself, or v1's hierarchies by links in `folder`.
pub(crate) fn view(root: &str, folder: &Path) -> PathBuf {
    if Path::new(ROOT).join("cgroup.controllers").exists() {
        return Path::new(ROOT).join(root);
    }
    for controller in ["cpuset", "cpu", "memory"] {
        let link = folder.join(controller);
        if !link.exists() {
            std::os::unix::fs::symlink(Path::new(ROOT).join(controller).join(root), link).unwrap();
        }
    }
    folder.to_owned()
}

/// The pod's cgroup below `root`, the node's own, if it is there.
pub(crate) fn of_pod(root: &str, uid: &str) -> Option<PathBuf> {
    let kubepods = hierarchy().join(root).join("kubepods");
    let name = format!("pod{uid}");
    ["", "burstable", "besteffort"].iter().map(|class| kubepods.join(class).join(&name)).find(|path| path.is_dir())
}

/// The cgroups of all pods below `root`, in every hierarchy.
pub(crate) fn of_pods(root: &str) -> impl Iterator<Item = PathBuf> {
    let hierarchies: Vec<_> = if Path::new(ROOT).join("cgroup.controllers").exists() {
        vec![PathBuf::from(ROOT)]
    } else {
        directories(Path::new(ROOT)).collect()
    };
    let kubepods = hierarchies.into_iter().map(move |hierarchy| hierarchy.join(root).join("kubepods"));
    let parents = kubepods.flat_map(|kubepods| ["", "burstable", "besteffort"].map(|class| kubepods.join(class)));
    let pods = parents.flat_map(|parent| directories(&parent).collect::<Vec<_>>());
    pods.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("pod")))
}

/// How many of the cgroups directly in it run a program of their own: a pod's containers and its sandbox. Before that, runc waits there.
pub(crate) fn started_children(cgroup: &Path) -> usize {
    directories(cgroup).filter(|child| runs_a_program(child)).count()
}

fn runs_a_program(cgroup: &Path) -> bool {
    let pids = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    let name = |pid: &str| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let own = pids.lines().map(name).any(|name| !name.is_empty() && !name.starts_with("runc"));
    own || directories(cgroup).any(|child| runs_a_program(&child))
}

fn directories(cgroup: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(cgroup).into_iter().flatten().flatten().map(|entry| entry.path()).filter(|path| path.is_dir())
}
