//! The kubepods cgroups: cgroupfs and systemd drivers, v1 and v2, nested roots.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::roots::{Hierarchy, directories};
use super::uid::PodUid;

/// How deep a pod's own cgroups are walked: container, and what a runtime or a workload nests in it.
const POD_DEPTH: usize = 4;

pub(super) fn living(mount: &Path, of: &HashSet<PodUid>) -> Option<HashSet<PodUid>> {
    let roots: Vec<PathBuf> = Hierarchy::find(mount).iter().flat_map(Hierarchy::roots).map(|root| root.path).collect();
    if roots.is_empty() {
        return None;
    }
    let mut living = HashSet::new();
    for root in roots {
        // Guaranteed pods lie in the root itself, the others in a directory for each QoS class.
        let classes = directories(&root).filter(|(name, ..)| name.contains("burstable") || name.contains("besteffort"));
        let parents: Vec<PathBuf> = classes.map(|(_, path, _)| path).chain([root.clone()]).collect();
        for (name, path, _) in parents.iter().flat_map(|parent| directories(parent)) {
            if let Some(uid) = PodUid::of_cgroup(&name)
                && of.contains(&uid)
                && populated(&path, POD_DEPTH)
            {
                living.insert(uid);
            }
        }
    }
    Some(living)
}

/// Whether a process is in this cgroup or below it.
pub(super) fn is_populated(cgroup: &Path) -> bool {
    populated(cgroup, POD_DEPTH)
}

fn populated(cgroup: &Path, depth: usize) -> bool {
    // v2 says so itself, for the whole subtree.
    if let Ok(events) = fs::read_to_string(cgroup.join("cgroup.events")) {
        return events.lines().any(|line| line == "populated 1");
    }
    let own = fs::read(cgroup.join("cgroup.procs")).is_ok_and(|pids| !pids.is_empty());
    own || (depth > 0 && directories(cgroup).any(|(_, path, _)| populated(&path, depth - 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "01234567-89ab-cdef-0123-456789abcdef";
    const B: &str = "fedcba98-7654-3210-fedc-ba9876543210";

    fn uid(text: &str) -> PodUid {
        PodUid::parse(text).unwrap()
    }

    fn look(mount: &Path) -> Option<HashSet<PodUid>> {
        living(mount, &[uid(A), uid(B)].into())
    }

    /// A v1 cgroup with these pids.
    fn v1(mount: &Path, path: &str, pids: &str) {
        fs::create_dir_all(mount.join(path)).unwrap();
        fs::write(mount.join(path).join("cgroup.procs"), pids).unwrap();
    }

    #[test]
    fn without_a_kubepods_cgroup_nothing_can_be_told() {
        let mount = tempfile::tempdir().unwrap();
        v1(mount.path(), "cpuset/system.slice", "1\n");
        assert_eq!(look(mount.path()), None);
    }

    #[test]
    fn cgroupfs_pods_live_while_a_process_is_in_them_or_below() {
        let mount = tempfile::tempdir().unwrap();
        v1(mount.path(), &format!("cpuset/lab/kubepods/burstable/pod{A}/c1"), "17\n");
        v1(mount.path(), &format!("cpuset/lab/kubepods/pod{B}/c2"), "");
        assert_eq!(look(mount.path()), Some([uid(A)].into()));
    }

    #[test]
    fn systemd_pods_on_v2_live_while_they_are_populated() {
        let mount = tempfile::tempdir().unwrap();
        fs::write(mount.path().join("cgroup.controllers"), "cpuset\n").unwrap();
        let slice = |class: &str, uid: &str| {
            let uid = uid.replace('-', "_");
            format!("kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-{class}.slice/kubelet-kubepods-{class}-pod{uid}.slice")
        };
        for (path, populated) in [(slice("burstable", A), 0), (slice("besteffort", B), 1)] {
            fs::create_dir_all(mount.path().join(&path)).unwrap();
            fs::write(mount.path().join(&path).join("cgroup.events"), format!("populated {populated}\nfrozen 0\n")).unwrap();
        }
        assert_eq!(look(mount.path()), Some([uid(B)].into()));
    }

    #[test]
    fn a_deeper_cgroup_that_looks_like_a_pod_is_none() {
        let mount = tempfile::tempdir().unwrap();
        v1(mount.path(), &format!("cpuset/kubepods/burstable/pod{A}/c1/kubepods/pod{B}"), "17\n");
        assert_eq!(look(mount.path()), Some([uid(A)].into()));
    }
}
