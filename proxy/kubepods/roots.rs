//! Where the kubepods cgroups are: every root in every hierarchy that counts, and what lies below it down to the containers.
//!
//! Roots lie anywhere near the top: `kubepods` (cgroupfs driver), `kubepods.slice` (systemd driver), `<parent>-kubepods.slice` under a
//! kubelet's `--cgroup-root`, or deeper where the kubelet runs in a container itself.

use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::uid::PodUid;

/// How deep below a hierarchy's mount a kubepods root may lie: a kubelet in a container has
/// `<runtime>/<id>/kubelet.slice/kubelet-kubepods.slice`.
pub const ROOT_DEPTH: usize = 5;

/// A cgroup hierarchy in which pods are seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// `unified` (v2) or `cpuset` (v1).
    pub name: &'static str,
    /// Its top directory.
    pub top: PathBuf,
}

/// A kubepods cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// The hierarchy's name.
    pub hierarchy: &'static str,
    /// Its directory.
    pub path: PathBuf,
    /// Its inode, which is the cgroup's id in its hierarchy (kernfs, 64-bit kernels).
    pub id: u64,
}

/// What a cgroup in a kubepods tree is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// The kubepods root.
    Root,
    /// A class of pods: burstable, besteffort.
    Class,
    /// A pod.
    Pod,
    /// A container, or whatever else lies directly in a pod. What a workload nests in it is its own affair.
    Container,
}

/// A directory in a kubepods tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dir {
    /// Where.
    pub path: PathBuf,
    /// What it is.
    pub level: Level,
    /// The cgroup's id in its hierarchy.
    pub id: u64,
}

// === impl Hierarchy ===

impl Hierarchy {
    /// Those under a mount that count: v2 at the mount itself or, on a hybrid or v1 host, `unified` and `cpuset`, as far as they are there.
    pub fn find(mount: &Path) -> Vec<Self> {
        if mount.join("cgroup.controllers").exists() {
            return vec![Self { name: "unified", top: mount.to_owned() }];
        }
        let there = ["unified", "cpuset"].map(|name| Self { name, top: mount.join(name) });
        there.into_iter().filter(|hierarchy| hierarchy.top.is_dir()).collect()
    }

    /// Every kubepods root in it.
    pub fn roots(&self) -> Vec<Root> {
        let mut roots = Vec::new();
        self.search(&mut |_| {}, &mut roots);
        roots
    }

    /// Every kubepods root in it; `above` is told of each directory that is searched, before it is read.
    pub fn search(&self, above: &mut dyn FnMut(&Path), roots: &mut Vec<Root>) {
        self.search_in(&self.top, 0, above, roots);
    }

    fn search_in(&self, dir: &Path, depth: usize, above: &mut dyn FnMut(&Path), roots: &mut Vec<Root>) {
        if depth >= ROOT_DEPTH {
            return;
        }
        above(dir);
        for (name, path, id) in directories(dir) {
            if is_root(&name) {
                roots.push(Root { hierarchy: self.name, path, id });
            } else {
                self.search_in(&path, depth + 1, above, roots);
            }
        }
    }
}

// === impl Root ===

impl Root {
    /// The root itself as a directory of its tree.
    pub fn dir(&self) -> Dir {
        Dir { path: self.path.clone(), level: Level::Root, id: self.id }
    }
}

// === impl Level ===

impl Level {
    /// What a directory of this name is below one of this level; `None` for what lies below containers.
    pub fn below(self, name: &str) -> Option<Self> {
        match self {
            Self::Root | Self::Class if PodUid::of_cgroup(name).is_some() => Some(Self::Pod),
            Self::Root if name.contains("burstable") || name.contains("besteffort") => Some(Self::Class),
            Self::Root | Self::Class | Self::Pod => Some(Self::Container),
            Self::Container => None,
        }
    }
}

// === impl Dir ===

impl Dir {
    /// What lies directly below it and counts. Empty where it is gone.
    pub fn children(&self) -> Vec<Self> {
        if self.level == Level::Container {
            return Vec::new();
        }
        let dir = |(name, path, id): (String, PathBuf, u64)| Some(Self { level: self.level.below(&name)?, path, id });
        directories(&self.path).filter_map(dir).collect()
    }

    /// It and all that lies below it. `visit` is told of each before it is read, and says whether to go on.
    pub fn walk(self, visit: &mut dyn FnMut(&Self) -> bool) -> bool {
        visit(&self) && self.children().into_iter().all(|child| child.walk(visit))
    }
}

/// Whether a cgroup of this name is a kubepods root.
pub fn is_root(name: &str) -> bool {
    name == "kubepods" || name == "kubepods.slice" || name.ends_with("-kubepods.slice")
}

/// The id of the cgroup that a directory is.
pub fn id_of(dir: &Path) -> Option<u64> {
    fs::metadata(dir).ok().map(|found| found.ino())
}

/// The directories in one, with their inodes; empty where it vanished meanwhile, which is normal here.
pub(super) fn directories(dir: &Path) -> impl Iterator<Item = (String, PathBuf, u64)> {
    fs::read_dir(dir).into_iter().flatten().flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        entry.file_type().ok()?.is_dir().then(|| (name, entry.path(), entry.ino()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "01234567-89ab-cdef-0123-456789abcdef";

    fn found(mount: &Path) -> Vec<(&'static str, String)> {
        let roots = Hierarchy::find(mount).iter().flat_map(Hierarchy::roots).collect::<Vec<_>>();
        let mut found: Vec<_> = roots
            .into_iter()
            .map(|root| {
                assert_eq!(id_of(&root.path), Some(root.id), "{}", root.path.display());
                (root.hierarchy, root.path.strip_prefix(mount).unwrap().display().to_string())
            })
            .collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn roots_of_both_drivers_are_found_in_both_hierarchies_of_a_hybrid_host_also_nested() {
        let mount = tempfile::tempdir().unwrap();
        for dir in [
            "cpuset/kubepods/burstable",
            "cpuset/runtime/abc/kubelet.slice/kubelet-kubepods.slice",
            "unified/kubepods.slice/kubepods-besteffort.slice",
            "unified/a/b/c/d/e/kubepods",
            "memory/kubepods",
            "cpuset/system.slice/kubepods-like",
        ] {
            fs::create_dir_all(mount.path().join(dir)).unwrap();
        }
        assert_eq!(
            found(mount.path()),
            [
                ("cpuset", "cpuset/kubepods".to_owned()),
                ("cpuset", "cpuset/runtime/abc/kubelet.slice/kubelet-kubepods.slice".to_owned()),
                ("unified", "unified/kubepods.slice".to_owned()),
            ]
        );
    }

    #[test]
    fn on_v2_the_mount_is_the_hierarchy() {
        let mount = tempfile::tempdir().unwrap();
        fs::write(mount.path().join("cgroup.controllers"), "cpuset\n").unwrap();
        fs::create_dir_all(mount.path().join("kubepods.slice")).unwrap();
        assert_eq!(found(mount.path()), [("unified", "kubepods.slice".to_owned())]);
    }

    #[test]
    fn a_tree_is_walked_down_to_its_containers_and_no_deeper() {
        let mount = tempfile::tempdir().unwrap();
        fs::create_dir_all(mount.path().join(format!("cpuset/kubepods/burstable/pod{UID}/c1/kubepods/pod{UID}"))).unwrap();
        fs::create_dir_all(mount.path().join(format!("cpuset/kubepods/pod{UID}/c2"))).unwrap();
        let mut levels = Vec::new();
        let root = Hierarchy::find(mount.path()).iter().flat_map(Hierarchy::roots).next().unwrap();
        root.dir().walk(&mut |dir| {
            levels.push((dir.path.file_name().unwrap().to_str().unwrap().to_owned(), dir.level));
            true
        });
        levels.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let pod = format!("pod{UID}");
        let expected = [
            ("burstable", Level::Class),
            ("c1", Level::Container),
            ("c2", Level::Container),
            ("kubepods", Level::Root),
            (&pod, Level::Pod),
            (&pod, Level::Pod),
        ];
        assert_eq!(levels, expected.map(|(name, level)| (name.to_owned(), level)));
    }
}
