//! What the programs let through, as it is now: the kubepods roots and the kubelet's directories.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use podresources_proxy_ebpf_common::{DIRECTORIES, Directory, Filter, Filters, NO_HIERARCHY, Prefix, ROOTS, Role, Root};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use crate::change::{Layout, Watched};
use crate::kubepods::roots::Hierarchy;
use crate::sys::SharedWords;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The hierarchies that count.
    hierarchies: [i32; 2],
    /// The roots; `None` where they cannot be told from other cgroups, so that everything counts.
    roots: Option<Vec<FoundRoot>>,
    directories: Vec<Directory>,
    /// The directories of the kubelet's that are not there.
    pub(super) missing: Vec<PathBuf>,
}

/// A kubepods root.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FoundRoot {
    root: Root,
    /// From the hierarchy's top, with a slash at the beginning and none at the end.
    path: Vec<u8>,
}

/// The filter that the programs read, and which of its two banks counts.
#[derive(Debug)]
pub(super) struct Installed {
    memory: SharedWords,
    active: usize,
}

// === impl Found ===

impl Found {
    /// Looks. What is not there is left out.
    pub(super) fn now(watched: &Watched) -> Self {
        let mounts = mounts();
        let hierarchies = Hierarchy::find(&watched.cgroup_root);
        let mut numbers = [NO_HIERARCHY; 2];
        let mut roots = Some(Vec::new());
        for (hierarchy, counts) in hierarchies.iter().zip(&mut numbers) {
            let number = if hierarchy.name == "unified" { Some(0) } else { cpuset_hierarchy() };
            let Some(number) = number else { continue };
            *counts = number;
            for found in hierarchy.roots() {
                // Links are followed: what counts is where in the whole hierarchy it is.
                let Some((mount, path)) = in_mount(&found.path, &mounts) else { continue };
                if mount.root != "/" {
                    // Where only a part of a hierarchy is mounted, nobody can tell how deep in the whole a cgroup is.
                    roots = None;
                }
                let Some(roots) = &mut roots else { continue };
                let level = u32::try_from(path.components().count()).unwrap_or(u32::MAX);
                let root = Root { id: found.id, hierarchy: number, level };
                roots.push(FoundRoot { root, path: Path::new("/").join(path).as_os_str().as_bytes().to_vec() });
            }
        }
        let mut directories = Vec::new();
        let mut missing = Vec::new();
        for (path, role) in kubelet_directories(&watched.kubelet) {
            match directory(&path, role, &mounts) {
                Some(directory) if directories.len() < DIRECTORIES => directories.push(directory),
                _ => missing.push(path),
            }
        }
        Self { hierarchies: numbers, roots, directories, missing }
    }

    /// The filter for it. `late_seen` is the word that was read before the look.
    pub(super) fn filter(&self, late_seen: u64) -> Filter {
        let mut filter = Filter { late_seen, hierarchies: self.hierarchies, ..Filter::NOTHING };
        match &self.roots {
            Some(roots) if roots.len() <= ROOTS => {
                for (index, found) in roots.iter().enumerate() {
                    filter.roots[index] = found.root;
                    match Prefix::of(&found.path) {
                        Some(prefix) => filter.prefixes[index] = prefix,
                        None => filter.everything = 1,
                    }
                }
                filter.roots_len = u32::try_from(roots.len()).unwrap_or(0);
            }
            _ => filter.everything = 1,
        }
        filter.directories[..self.directories.len()].copy_from_slice(&self.directories);
        filter.directories_len = u32::try_from(self.directories.len()).unwrap_or(0);
        filter
    }
}

// === impl Installed ===

impl Installed {
    /// The memory of the programs' filter map, which lets nothing through so far.
    pub(super) fn new(memory: SharedWords) -> Self {
        Self { memory, active: 0 }
    }

    /// Puts a filter in force. The one that programs may be reading is left as it is.
    pub(super) fn install(&mut self, filter: &Filter) {
        let next = 1 - self.active;
        for (index, word) in filter.words().iter().enumerate() {
            self.memory.store(Filters::bank(next) + index, *word);
        }
        self.memory.store(Filters::ACTIVE, next as u64);
        self.active = next;
    }
}

fn kubelet_directories(layout: &Layout) -> Vec<(PathBuf, Role)> {
    let sockets = layout.socket.parent().unwrap_or(Path::new("/"));
    vec![
        (layout.root_dir.clone(), Role::State),
        (layout.root_dir.join("device-plugins"), Role::Plugins),
        (sockets.to_owned(), Role::Socket),
    ]
}

/// A directory as the kernel knows it.
fn directory(path: &Path, role: Role, mounts: &HashMap<i32, Mount>) -> Option<Directory> {
    let flags = StatxFlags::INO | StatxFlags::TYPE | StatxFlags::MNT_ID;
    let found = statx(CWD, path, AtFlags::empty(), flags).ok()?;
    if !rustix::fs::FileType::from_raw_mode(found.stx_mode.into()).is_dir() {
        return None;
    }
    // A file may show another device than its superblock's (btrfs); the mount shows the right one.
    let mount = i32::try_from(found.stx_mnt_id).ok().and_then(|id| mounts.get(&id));
    let (major, minor) = mount.map_or((found.stx_dev_major, found.stx_dev_minor), |mount| mount.device);
    Some(Directory { inode: found.stx_ino, device: (major << 20) | minor, role: role as u32 })
}

/// The number of the hierarchy that the cpuset controller of version 1 is in.
fn cpuset_hierarchy() -> Option<i32> {
    let controllers = procfs::cgroups().ok()?;
    let cpuset = controllers.0.into_iter().find(|controller| controller.name == "cpuset")?;
    i32::try_from(cpuset.hierarchy).ok().filter(|number| *number != 0)
}

/// The cgroup mount that a path is in, and the path from there. `None` where it is in no cgroup file system.
fn in_mount<'a>(path: &Path, mounts: &'a HashMap<i32, Mount>) -> Option<(&'a Mount, PathBuf)> {
    let path = path.canonicalize().ok()?;
    let around = mounts.values().filter(|mount| path.starts_with(&mount.point));
    let mount = around.max_by_key(|mount| mount.point.components().count())?;
    let below = path.strip_prefix(&mount.point).ok()?.to_owned();
    mount.cgroups.then_some((mount, below))
}

/// What of a mount matters here.
struct Mount {
    device: (u32, u32),
    root: String,
    point: PathBuf,
    /// Whether it is a cgroup file system.
    cgroups: bool,
}

/// This process's mounts by their ids; none where they cannot be read.
fn mounts() -> HashMap<i32, Mount> {
    let mounts = procfs::process::Process::myself().and_then(|process| process.mountinfo());
    let device = |text: &str| {
        let (major, minor) = text.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    let entry = |mount: procfs::process::MountInfo| {
        let cgroups = mount.fs_type.starts_with("cgroup");
        Some((mount.mnt_id, Mount { device: device(&mount.majmin)?, root: mount.root, point: mount.mount_point, cgroups }))
    };
    mounts.map(|mounts| mounts.into_iter().filter_map(entry).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(roots: Option<Vec<FoundRoot>>) -> Found {
        Found { hierarchies: [0, 4], roots, directories: Vec::new(), missing: Vec::new() }
    }

    fn root(id: u64, path: &str) -> FoundRoot {
        FoundRoot { root: Root { id, hierarchy: 4, level: 2 }, path: path.as_bytes().to_vec() }
    }

    #[test]
    fn a_filter_has_each_root_by_id_and_by_path() {
        let filter = found(Some(vec![root(7, "/lab/kubepods"), root(8, "/b/kubepods.slice")])).filter(3);
        assert_eq!((filter.late_seen, filter.hierarchies, filter.everything, filter.roots_len), (3, [0, 4], 0, 2));
        assert_eq!(filter.roots[1], Root { id: 8, hierarchy: 4, level: 2 });
        assert_eq!(Some(filter.prefixes[0]), Prefix::of(b"/lab/kubepods"));
        assert_eq!(filter.prefixes[2], Prefix::NONE);
    }

    #[test]
    fn more_roots_than_fit_or_longer_ones_or_roots_that_cannot_be_told_let_everything_through() {
        let many = (0..=ROOTS as u64).map(|id| root(id, "/a/kubepods")).collect();
        assert_eq!(found(Some(many)).filter(0).everything, 1);
        assert_eq!(found(Some(vec![root(1, &format!("/{}/kubepods", "a".repeat(200)))])).filter(0).everything, 1);
        assert_eq!(found(None).filter(0).everything, 1);
    }

    #[test]
    fn the_kubelets_directories_are_known_by_inode_and_missing_ones_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let root_dir = dir.path().join("kubelet");
        std::fs::create_dir_all(root_dir.join("pod-resources")).unwrap();
        let kubelet = Layout { socket: root_dir.join("pod-resources/kubelet.sock"), root_dir: root_dir.clone() };
        let found = Found::now(&Watched { cgroup_root: dir.path().to_owned(), kubelet });
        assert_eq!(found.missing, [root_dir.join("device-plugins")]);
        let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap());
        let filter = found.filter(0);
        assert_eq!(filter.directories_len, 2);
        assert_eq!((filter.directories[0].inode, filter.directories[0].role), (inode(&root_dir), Role::State as u32));
        assert_eq!(filter.directories[1].inode, inode(&root_dir.join("pod-resources")));
        assert_eq!(filter.hierarchies, [NO_HIERARCHY; 2], "there are no cgroups here");
    }
}
