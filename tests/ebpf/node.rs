//! Real cgroups of our own, and the programs that watch them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use podresources_proxy::change::ebpf::{Ebpf, Event, KernelFiles, Kind};
use podresources_proxy::change::{Epoch, Layout, PartReport, Source as _, State, Watched};
use tempfile::TempDir;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::TryRecvError;

/// One test at a time: a kubepods root that one makes lets everything through in all of them, until it has been looked at.
static ALONE: Mutex<()> = Mutex::new(());
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A node: a folder of ours in each hierarchy, a kubelet's directories, the programs.
pub(crate) struct Node {
    pub(crate) ebpf: Ebpf,
    pub(crate) epoch: Arc<Epoch>,
    /// The tops of the hierarchies that count, `cpuset` of version 1 first where it is there.
    pub(crate) tops: Vec<PathBuf>,
    /// Our folder's name in each of them.
    pub(crate) name: String,
    pub(crate) kubelet: PathBuf,
    _dir: TempDir,
    _alone: MutexGuard<'static, ()>,
}

/// The ways to see a cgroup made.
pub(crate) const MKDIR: [&str; 2] = ["tp_btf/cgroup_mkdir", "tracepoint/cgroup_mkdir"];

/// A machine that lacks something for these tests.
pub(crate) fn not_run(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "in CI nothing may be missing: {why}");
    eprintln!("NOT RUN: {why}");
}

/// What this kernel does not have, whoever runs the tests.
pub(crate) fn not_here(what: &str) {
    eprintln!("not on this kernel: {what}");
}

impl Node {
    /// A node whose programs see cgroups made and removed. `None`, with the reason told, where this machine does not let us.
    pub(crate) fn new() -> Option<Self> {
        Self::with(&KernelFiles::default(), &["kubepods"])
    }

    /// The same, on a kernel that describes itself elsewhere.
    pub(crate) fn with(files: &KernelFiles, roots: &[&str]) -> Option<Self> {
        Self::made(files, roots, &[])
    }

    /// The same, as if this kernel had not the parts whose names begin so.
    pub(crate) fn without(parts: &[&str]) -> Option<Self> {
        Self::made(&KernelFiles::default(), &["kubepods"], parts)
    }

    fn made(files: &KernelFiles, roots: &[&str], without: &[&str]) -> Option<Self> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mount = Path::new("/sys/fs/cgroup");
        let tops: Vec<PathBuf> = if mount.join("cgroup.controllers").exists() {
            vec![mount.to_owned()]
        } else {
            // A kernel without the first has its mount point all the same.
            ["cpuset", "unified"].map(|name| mount.join(name)).into_iter().filter(|top| top.join("cgroup.procs").exists()).collect()
        };
        let name = format!("podresources-proxy-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        for top in &tops {
            if let Err(error) = fs::create_dir(top.join(&name)) {
                not_run(&format!("no cgroup may be made in {}: {error}; run it as root", top.display()));
                return None;
            }
            // Version 2 has cpusets only where the parent gives them away.
            let _refused = fs::write(top.join("cgroup.subtree_control"), "+cpuset");
            let _refused = fs::write(top.join(&name).join("cgroup.subtree_control"), "+cpuset");
            for root in roots {
                fs::create_dir_all(top.join(&name).join(root)).unwrap();
                let _refused = fs::write(top.join(&name).join(root).join("cgroup.subtree_control"), "+cpuset");
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let kubelet = dir.path().join("kubelet");
        fs::create_dir_all(kubelet.join("device-plugins")).unwrap();
        fs::create_dir_all(kubelet.join("pod-resources")).unwrap();
        let layout = Layout { socket: kubelet.join("pod-resources/kubelet.sock"), root_dir: kubelet.clone() };
        let ebpf = Ebpf::attach_without(Watched { cgroup_root: mount.to_owned(), kubelet: layout }, files, without);
        let epoch = Arc::new(Epoch::new(Vec::new()));
        ebpf.begin(&epoch);
        Some(Self { ebpf, epoch, tops, name, kubelet, _dir: dir, _alone: alone })
    }

    /// The same, with these kubepods roots made beforehand.
    pub(crate) fn with_roots(roots: &[&str]) -> Option<Self> {
        Self::with(&KernelFiles::default(), roots)
    }

    /// The same, where one of these parts works.
    pub(crate) fn where_attached(parts: &[&str]) -> Option<Self> {
        Self::new().filter(|node| node.attached(parts))
    }

    /// Whether one of these parts works; where not, that is told. No fault of the machine's owner: the kernel decides, and
    /// `each_program_is_attached_or_tells_why_it_is_not` holds it to what it must have.
    pub(crate) fn attached(&self, parts: &[&str]) -> bool {
        let found: Vec<PartReport> = self.ebpf.parts().into_iter().filter(|part| parts.contains(&part.name.as_str())).collect();
        let works = found.iter().any(|part| part.state == State::Attached);
        if !works {
            not_here(&found.iter().map(|part| format!("{}: {}", part.name, part.state)).collect::<Vec<_>>().join(", "));
        }
        works
    }

    /// Gives a cgroup the CPUs that its children may have.
    pub(crate) fn give_cpus(&self, top: usize, path: &str) {
        let cgroup = self.cgroup(top, path);
        for (file, value) in [("cpuset.mems", "0"), ("cpuset.cpus", "0-1")] {
            let _not_here = fs::write(cgroup.join(file), value);
        }
    }

    /// A cgroup of ours as the kernel calls it.
    pub(crate) fn path(&self, path: &str) -> String {
        format!("/{}/{path}", self.name)
    }

    pub(crate) fn part(&self, name: &str) -> Option<PartReport> {
        self.ebpf.parts().into_iter().find(|part| part.name == name)
    }

    /// A cgroup of ours in a hierarchy.
    pub(crate) fn cgroup(&self, top: usize, path: &str) -> PathBuf {
        self.tops[top].join(&self.name).join(path)
    }

    /// By how much the epoch moves.
    pub(crate) fn bumps(&self, change: impl FnOnce()) -> u64 {
        let before = self.epoch.now();
        change();
        self.epoch.now() - before
    }

    /// By how much the epoch moves, exactly: after all that was removed before is really gone, which counts once more.
    pub(crate) fn exact_bumps(&self, change: impl FnOnce()) -> u64 {
        self.settle();
        self.bumps(change)
    }

    /// Waits until the kernel has let go of every cgroup that was removed. It does so a moment later.
    pub(crate) fn settle(&self) {
        let events = |what: &str| {
            let of = |part: &PartReport| part.state == State::Attached && part.name.ends_with(what);
            self.ebpf.parts().into_iter().find(of).map_or(0, |part| part.events)
        };
        for _ in 0..10_000 {
            if events("cgroup_release") >= events("cgroup_rmdir") {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("cgroups that were removed are still there");
    }

    /// Begins to listen: what was sent before is not heard.
    pub(crate) fn listen(&self) -> Receiver<Arc<Event>> {
        self.settle();
        self.ebpf.woken(&self.epoch);
        self.ebpf.events()
    }

    /// The events of our cgroups, and of our directories, that were sent so far.
    pub(crate) fn events(&self, from: &mut Receiver<Arc<Event>>) -> Vec<Arc<Event>> {
        self.ebpf.woken(&self.epoch);
        let mut events = Vec::new();
        loop {
            match from.try_recv() {
                Ok(event) if event.kind == Kind::Rename || event.path.contains(&self.name) => events.push(event),
                Ok(_) | Err(TryRecvError::Lagged(_)) => {}
                Err(_) => return events,
            }
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for top in &self.tops {
            remove(&top.join(&self.name));
        }
    }
}

/// Removes a cgroup and all below it. Its processes go to the top first.
fn remove(cgroup: &Path) {
    for child in fs::read_dir(cgroup).into_iter().flatten().flatten() {
        if child.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&child.path());
        }
    }
    if let Err(error) = fs::remove_dir(cgroup) {
        eprintln!("{} is left behind: {error}", cgroup.display());
    }
}
