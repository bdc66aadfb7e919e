//! Cgroups of our own for tests, shaped as a node's: v1 cpuset where the machine has it, v2 elsewhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

/// A pod's.
pub(super) const UID: &str = "01234567-89ab-cdef-0123-456789abcdef";

/// Tests with cgroups run one at a time: a mark on a file system sees them all.
static ALONE: Mutex<()> = Mutex::new(());

/// A directory in a real cgroup hierarchy, which stands for the whole hierarchy below a mount of our own. Removed at the end.
pub(super) struct Cgroups {
    _alone: MutexGuard<'static, ()>,
    mount: TempDir,
    top: PathBuf,
}

// === impl Cgroups ===

impl Cgroups {
    /// `None` where no cgroups can be made; in CI that is a failure.
    pub(super) fn new(name: &str) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let name = format!("podresources-proxy-{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let hierarchies = [("cpuset", "/sys/fs/cgroup/cpuset"), ("unified", "/sys/fs/cgroup")];
        let (hierarchy, top) = hierarchies
            .into_iter()
            .map(|(hierarchy, mount)| (hierarchy, Path::new(mount).join(&name)))
            .find(|(_, top)| top.parent().is_some_and(|mount| mount.join("cgroup.procs").exists()) && fs::create_dir(top).is_ok())
            .or_else(|| {
                assert!(std::env::var_os("CI").is_none(), "CI must be able to make cgroups");
                eprintln!("passed over: this needs root and a cgroup file system that can be written to");
                None
            })?;
        if hierarchy == "unified" {
            let _as_far_as_allowed = fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+cpuset");
        }
        give_cpus(&top);
        let mount = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(&top, mount.path().join(hierarchy)).unwrap();
        Some(Self { _alone: alone, mount, top })
    }

    /// What takes the place of `/sys/fs/cgroup`.
    pub(super) fn mount(&self) -> PathBuf {
        self.mount.path().to_owned()
    }

    /// Makes a cgroup and those above it.
    pub(super) fn make(&self, path: &str) {
        let mut dir = self.top.clone();
        for part in Path::new(path) {
            let above = dir.clone();
            dir.push(part);
            if fs::create_dir(&dir).is_ok() {
                let _v2_only = fs::write(above.join("cgroup.subtree_control"), "+cpuset");
                give_cpus(&dir);
            }
        }
        assert!(dir.is_dir(), "{}", dir.display());
    }

    pub(super) fn write(&self, path: &str, file: &str, text: &str) {
        let file = self.top.join(path).join(file);
        let open = fs::OpenOptions::new().write(true).open(&file);
        let written = open.and_then(|mut open| std::io::Write::write_all(&mut open, text.as_bytes()));
        assert!(written.is_ok(), "{} {written:?}", file.display());
    }

    pub(super) fn remove(&self, path: &str) {
        fs::remove_dir(self.top.join(path)).unwrap();
    }

    /// The race of [`Self::race`] while the watching thread and a client that asks are at work too: `watch` and `look`, again and again.
    pub(super) fn race_among_others(&self, watch: impl Fn() + Sync, look: impl Fn() -> u64 + Sync) -> Vec<String> {
        let over = AtomicBool::new(false);
        let again = |what: &dyn Fn()| {
            while !over.load(Ordering::Relaxed) {
                what();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                again(&|| {
                    watch();
                    std::thread::yield_now();
                });
            });
            scope.spawn(|| {
                again(&|| {
                    look();
                });
            });
            let missed = self.race(&look);
            over.store(true, Ordering::Relaxed);
            missed
        })
    }

    /// Makes a pod and a container, writes its cpuset twice, removes both, again and again, and looks after each step at once. Says
    /// which steps were missed.
    pub(super) fn race(&self, look: impl Fn() -> u64) -> Vec<String> {
        let (pod, container) = (format!("kubepods/pod{UID}"), format!("kubepods/pod{UID}/c1"));
        let subtree = |path: &str| drop(fs::write(self.top.join(path).join("cgroup.subtree_control"), "+cpuset"));
        subtree("kubepods");
        let steps: [(&str, &dyn Fn()); 7] = [
            ("pod made", &|| fs::create_dir(self.top.join(&pod)).unwrap()),
            ("pod's cpuset written at once", &|| self.write(&pod, "cpuset.cpus", "0")),
            ("container made", &|| {
                subtree(&pod);
                fs::create_dir(self.top.join(&container)).unwrap();
            }),
            ("cpuset written at once", &|| self.write(&container, "cpuset.cpus", "0")),
            ("cpuset written again", &|| self.write(&container, "cpuset.cpus", "\n")),
            ("container removed", &|| self.remove(&container)),
            ("pod removed", &|| self.remove(&pod)),
        ];
        let mut missed = Vec::new();
        for round in 0..rounds() {
            for (step, change) in &steps {
                let before = look();
                change();
                if look() <= before {
                    missed.push(format!("round {round}: {step}"));
                }
            }
        }
        missed
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        remove_all(&self.top);
    }
}

/// A CI run's thousand; more where somebody asks for it.
fn rounds() -> usize {
    std::env::var("RACE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1_000)
}

/// In v1 a cpuset has nothing at first, and its children may have no more.
fn give_cpus(dir: &Path) {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let _only_v1 = fs::write(dir.join(file), "0");
    }
}

/// A cgroup's directories; its files go with it.
fn remove_all(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_all(&entry.path());
        }
    }
    let _busy = fs::remove_dir(dir);
}
