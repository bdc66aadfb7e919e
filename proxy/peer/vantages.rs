//! From where we see each cgroup hierarchy: where the root of our cgroup namespace is, and where we are ourselves.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use procfs::process::Process;

use crate::kubepods::path::{Vantage, memberships};

/// The inode of the first cgroup namespace, the same on every Linux (`PROC_CGROUP_INIT_INO`).
const FIRST_NAMESPACE: u64 = 0xEFFF_FFFB;
/// How deep a cgroup namespace's root is looked for below a hierarchy's root; a container in a cluster in a cluster is at 10.
const DEPTH: usize = 12;

/// A mounted hierarchy.
struct Mount {
    /// How far the mount's root is above that of our cgroup namespace.
    up: usize,
    point: PathBuf,
}

/// Ours of each hierarchy that we are in, by its controllers as `/proc/<pid>/cgroup` names them.
pub(super) fn ours() -> HashMap<String, Vantage> {
    let Ok(text) = fs::read_to_string("/proc/self/cgroup") else { return HashMap::new() };
    let is_first =
        fs::metadata("/proc/self/ns/cgroup").is_ok_and(|link| std::os::unix::fs::MetadataExt::ino(&link) == FIRST_NAMESPACE);
    memberships(&text)
        .map(|own| {
            let root = if is_first { None } else { mount_above(own.controllers).and_then(|mount| root(&mount, own.path)) };
            let root = root.unwrap_or_default();
            (own.controllers.to_owned(), Vantage::new(&root, &format!("{root}{}", own.path)))
        })
        .collect()
}

/// Where a hierarchy is mounted from further up than our namespace begins.
fn mount_above(controllers: &str) -> Option<Mount> {
    let mounts = Process::myself().and_then(|process| process.mountinfo()).ok()?;
    let shows = |mount: &procfs::process::MountInfo| {
        let has = |option: &str| mount.super_options.contains_key(option);
        match (mount.fs_type.as_str(), controllers) {
            ("cgroup2", "") => true,
            ("cgroup", named) if !named.is_empty() => named.split(',').all(|controller| match controller.strip_prefix("name=") {
                Some(name) => mount.super_options.get("name").and_then(Option::as_deref) == Some(name),
                None => has(controller),
            }),
            _ => false,
        }
    };
    let above = mounts.into_iter().filter(shows).filter_map(|mount| {
        let up = Path::new(&mount.root).components().skip(1).collect::<Vec<_>>();
        (!up.is_empty() && up.iter().all(|part| part.as_os_str() == ".."))
            .then_some(Mount { up: up.len(), point: mount.mount_point })
    });
    above.max_by_key(|mount| mount.up)
}

/// The path of our namespace's root below a mount: of all cgroups as deep as it is, the one where we are at `own`.
fn root(mount: &Mount, own: &str) -> Option<String> {
    let pid = std::process::id().to_string();
    let own = own.trim_start_matches('/');
    let is_ours = |dir: &Path| {
        let procs = fs::read_to_string(dir.join(own).join("cgroup.procs"));
        procs.is_ok_and(|procs| procs.lines().any(|line| line == pid))
    };
    let found = find(&mount.point, mount.up.min(DEPTH), &is_ours)?;
    Some(format!("/{}", found.strip_prefix(&mount.point).ok()?.to_str()?))
}

fn find(dir: &Path, depth: usize, is_it: &impl Fn(&Path) -> bool) -> Option<PathBuf> {
    if depth == 0 {
        return is_it(dir).then(|| dir.to_path_buf());
    }
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    dirs.into_iter().find_map(|entry| find(&entry.path(), depth - 1, is_it))
}
