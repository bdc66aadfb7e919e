//! Cgroups like those of pods, so that each client is one, and a limit on the CPU that abusers may have.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::cgroups::{Cgroups, hierarchies};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// The cgroup of a pod's container; what is in it is a client of its own. Removed when dropped.
pub(crate) struct Cgroup {
    _cgroups: Cgroups,
    path: PathBuf,
}

/// A cgroup whose processes have this part of one CPU. Removed when dropped.
pub(crate) struct Quota(PathBuf);

// === impl Cgroup ===

impl Cgroup {
    pub(crate) fn new(_name: &str) -> Self {
        let cgroups = Cgroups::new(&hierarchies()[0]);
        let number = NEXT.fetch_add(1, Relaxed);
        let path = cgroups.cgroup(&format!("kubepods/burstable/pod{number:08x}-aaaa-4bbb-8ccc-dddddddddddd/{number:064x}"));
        Self { _cgroups: cgroups, path }
    }

    pub(crate) fn add(&self, pid: u32) {
        fs::write(self.path.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.path.clone()
    }
}

// === impl Quota ===

impl Quota {
    /// Microseconds of CPU in each 100 ms.
    const PERIOD: u32 = 100_000;

    /// `None` where the machine has no cpu hierarchy of cgroup v1: a process of v2 is in one cgroup alone, and that is its pod's.
    pub(crate) fn new(part: f64) -> Option<Self> {
        let top = Path::new("/sys/fs/cgroup/cpu");
        if !top.join("cgroup.procs").exists() {
            return None;
        }
        let path = top.join(format!("podresources-proxy-abuse-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        #[expect(clippy::cast_possible_truncation, reason = "a part of a second in microseconds")]
        let quota = (part * f64::from(Self::PERIOD)) as i64;
        fs::write(path.join("cpu.cfs_period_us"), Self::PERIOD.to_string()).unwrap();
        fs::write(path.join("cpu.cfs_quota_us"), quota.to_string()).unwrap();
        Some(Self(path))
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.clone()
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.0) {
            eprintln!("cgroup {} stays: {error}", self.0.display());
        }
    }
}
