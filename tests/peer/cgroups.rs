//! Cgroups of a test's own, removed at its end.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

const ROOT: &str = "/sys/fs/cgroup";
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A directory of ours in one hierarchy, beside everything else of the machine.
pub(crate) struct Cgroups {
    top: PathBuf,
    /// New cpusets of v1 are empty, and nothing can run there.
    is_cpuset_v1: bool,
}

/// The hierarchies of this machine that pods may be told by: v2's, and v1's cpuset.
pub(crate) fn hierarchies() -> Vec<PathBuf> {
    let root = Path::new(ROOT);
    let candidates = [root.to_owned(), root.join("unified"), root.join("cpuset")];
    let found: Vec<_> = candidates.into_iter().filter(|path| path.join("cgroup.procs").exists()).collect();
    assert!(!found.is_empty(), "mount the cgroup hierarchies at {ROOT}");
    found
}

// === impl Cgroups ===

impl Cgroups {
    pub(crate) fn new(hierarchy: &Path) -> Self {
        let name = format!("podresources-proxy-peer-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let cgroups = Self {
            top: hierarchy.join(name),
            is_cpuset_v1: hierarchy.join("cpuset.cpus").exists() && hierarchy.ends_with("cpuset"),
        };
        cgroups.make(Path::new(""));
        cgroups
    }

    /// A cgroup below it, with all above.
    pub(crate) fn cgroup(&self, path: &str) -> PathBuf {
        let path = Path::new(path.trim_start_matches('/'));
        let all: Vec<_> = path.ancestors().collect();
        all.into_iter().rev().for_each(|path| self.make(path));
        self.top.join(path)
    }

    fn make(&self, path: &Path) {
        // No bar at the end.
        let path = if path == Path::new("") { self.top.clone() } else { self.top.join(path) };
        if path.exists() {
            return;
        }
        fs::create_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if self.is_cpuset_v1 {
            for file in ["cpuset.cpus", "cpuset.mems"] {
                fs::write(path.join(file), fs::read(path.parent().unwrap().join(file)).unwrap()).unwrap();
            }
        }
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        remove(&self.top);
        if self.top.exists() {
            eprintln!("cgroup {} stays", self.top.display());
        }
    }
}

/// Removes a cgroup and those below it. A process that has been reaped leaves its cgroup a moment later.
fn remove(cgroup: &Path) {
    for entry in fs::read_dir(cgroup).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    for _ in 0..100 {
        match fs::remove_dir(cgroup) {
            Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            _ => return,
        }
    }
}
