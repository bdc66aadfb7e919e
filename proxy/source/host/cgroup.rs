//! The files of the cgroups: where each controller is mounted, and how its files are called in v1 and v2.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::exclusive::{Entitlement, Weight};
use crate::cpuset::{CpuSet, ListError};
use crate::kubepods;
use crate::kubepods::roots::{Hierarchy, Root};

/// Longer than any file that is read here: a list of every other of 8,192 CPUs has 20 KiB.
const LONGEST: usize = 64 << 10;

/// The version of a hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// One hierarchy for each controller.
    V1,
    /// The unified one.
    V2,
}

/// Where a controller is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    mount: PathBuf,
    version: Version,
}

/// Where the controllers are that matter here. A pod has the same path in each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hierarchies {
    pods: Place,
    cpu: Option<Place>,
    memory: Option<Place>,
    hugetlb: Option<Place>,
}

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// It, or its cgroup, is not there any more.
    #[error("it has vanished")]
    Vanished,
    /// Something else.
    #[error(transparent)]
    Failed(#[from] io::Error),
    /// No list of numbers.
    #[error(transparent)]
    List(#[from] ListError),
    /// No text, or too long a one.
    #[error("it is no text that a kernel writes")]
    Odd,
}

// === impl Hierarchies ===

impl Hierarchies {
    /// Looks below `/sys/fs/cgroup` for the hierarchy that holds kubepods with their cpusets, and for the controllers beside it.
    pub(super) fn find(cgroup_root: &Path) -> Self {
        let v2 = |mount: PathBuf| Place { mount, version: Version::V2 };
        if cgroup_root.join("cgroup.controllers").exists() {
            let all = v2(cgroup_root.to_owned());
            return Self { pods: all.clone(), cpu: Some(all.clone()), memory: Some(all.clone()), hugetlb: Some(all) };
        }
        let unified = cgroup_root.join("unified");
        let unified_has = |controller: &str| {
            let controllers = read(&unified.join("cgroup.controllers")).unwrap_or_default();
            controllers.split_whitespace().any(|has| has == controller)
        };
        let of = |controller: &str| {
            let mount = cgroup_root.join(controller);
            if unified_has(controller) {
                Some(v2(unified.clone()))
            } else {
                mount.is_dir().then_some(Place { mount, version: Version::V1 })
            }
        };
        // Without any cpuset the pods can still be told.
        let pods = of("cpuset").unwrap_or_else(|| v2(unified.clone()));
        Self { pods, cpu: of("cpu"), memory: of("memory"), hugetlb: of("hugetlb") }
    }

    /// Where the pods and their cpusets are.
    pub(super) fn mount(&self) -> &Path {
        &self.pods.mount
    }

    /// The version of the hierarchy with the pods.
    pub(super) const fn version(&self) -> Version {
        self.pods.version
    }

    /// The kubepods roots, relative to the mount.
    pub(super) fn roots(&self) -> Vec<String> {
        let name = if self.pods.version == Version::V1 { "cpuset" } else { "unified" };
        let found = Hierarchy { name, top: self.pods.mount.clone() }.roots();
        let relative = |root: Root| root.path.strip_prefix(&self.pods.mount).ok()?.to_str().map(str::to_owned);
        let mut roots: Vec<String> = found.into_iter().filter_map(relative).collect();
        roots.sort_unstable();
        roots
    }

    /// The effective CPUs of a cgroup; `None` where it has no cpuset of its own, so that its parent's holds.
    pub(super) fn cpus(&self, cgroup: &str) -> Result<Option<CpuSet>, ReadError> {
        self.set(
            cgroup,
            [("cpuset.cpus.effective", Version::V2), ("cpuset.effective_cpus", Version::V1), ("cpuset.cpus", Version::V1)],
        )
    }

    /// The effective memory nodes of a cgroup, likewise.
    pub(super) fn mems(&self, cgroup: &str) -> Result<Option<CpuSet>, ReadError> {
        self.set(
            cgroup,
            [("cpuset.mems.effective", Version::V2), ("cpuset.effective_mems", Version::V1), ("cpuset.mems", Version::V1)],
        )
    }

    fn set(&self, cgroup: &str, files: [(&str, Version); 3]) -> Result<Option<CpuSet>, ReadError> {
        let dir = self.pods.mount.join(cgroup);
        for (file, _) in files.into_iter().filter(|(_, version)| *version == self.pods.version) {
            match read(&dir.join(file)) {
                Ok(text) => return Ok(Some(CpuSet::parse(&text)?)),
                Err(ReadError::Vanished) => {}
                Err(error) => return Err(error),
            }
        }
        // Without a controller in this subtree there are no files; without the directory there is no cgroup.
        if dir.is_dir() { Ok(None) } else { Err(ReadError::Vanished) }
    }

    /// Whether the cgroup is a valid partition root (v2): its CPUs are taken from everybody else.
    pub(super) fn is_partition(&self, cgroup: &str) -> bool {
        self.version() == Version::V2
            && read(&self.pods.mount.join(cgroup).join("cpuset.cpus.partition"))
                .is_ok_and(|text| matches!(text.trim(), "root" | "isolated"))
    }

    /// Whether a process is in the cgroup or below it.
    pub(super) fn is_populated(&self, cgroup: &str) -> bool {
        kubepods::is_populated(&self.pods.mount.join(cgroup))
    }

    /// What CPU time the cgroup may use.
    pub(super) fn entitlement(&self, cgroup: &str) -> Entitlement {
        let Some(Place { mount, version }) = &self.cpu else { return Entitlement::default() };
        let dir = mount.join(cgroup);
        let number = |file: &str| read(&dir.join(file)).ok()?.trim().parse::<u64>().ok();
        match version {
            // -1 is no quota.
            Version::V1 => Entitlement {
                quota: number("cpu.cfs_quota_us").zip(number("cpu.cfs_period_us")),
                weight: number("cpu.shares").map(Weight::Shares),
            },
            Version::V2 => {
                let max = read(&dir.join("cpu.max")).unwrap_or_default();
                let (quota, period) = max.trim().split_once(' ').unwrap_or_default();
                Entitlement { quota: quota.parse().ok().zip(period.parse().ok()), weight: number("cpu.weight").map(Weight::Weight) }
            }
        }
    }

    /// The limit on memory in bytes, where there is one.
    pub(super) fn memory_limit(&self, cgroup: &str) -> Option<u64> {
        let Place { mount, version } = self.memory.as_ref()?;
        let file = if *version == Version::V1 { "memory.limit_in_bytes" } else { "memory.max" };
        limit(&mount.join(cgroup).join(file))
    }

    /// The limit on huge pages of this size (in KiB) in bytes, where there is one.
    pub(super) fn hugepages_limit(&self, cgroup: &str, page_kib: u64) -> Option<u64> {
        let Place { mount, version } = self.hugetlb.as_ref()?;
        let size = match page_kib {
            kib if kib % (1 << 20) == 0 => format!("{}GB", kib >> 20),
            kib if kib % (1 << 10) == 0 => format!("{}MB", kib >> 10),
            kib => format!("{kib}KB"),
        };
        let file = if *version == Version::V1 { "limit_in_bytes" } else { "max" };
        limit(&mount.join(cgroup).join(format!("hugetlb.{size}.{file}")))
    }
}

/// A limit; v1 has a number near 2^63 for none, v2 the word `max`.
fn limit(path: &Path) -> Option<u64> {
    read(path).ok()?.trim().parse().ok().filter(|limit| *limit < 1 << 62)
}

/// A small file as the kernel writes it.
pub(super) fn read(path: &Path) -> Result<String, ReadError> {
    let mut buffer = [0; 4096];
    let mut file = File::open(path).map_err(gone)?;
    let mut text = Vec::new();
    loop {
        let some = file.read(&mut buffer).map_err(gone)?;
        text.extend_from_slice(&buffer[..some]);
        if text.len() > LONGEST {
            return Err(ReadError::Odd);
        }
        // The usual case takes one call: a line, whole.
        if some == 0 || (some < buffer.len() && text.ends_with(b"\n")) {
            return String::from_utf8(text).map_err(|_| ReadError::Odd);
        }
    }
}

/// A cgroup that is being removed answers `ENODEV` on files that were open already.
fn gone(error: io::Error) -> ReadError {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ReadError::Vanished,
        _ if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => ReadError::Vanished,
        _ => ReadError::Failed(error),
    }
}
