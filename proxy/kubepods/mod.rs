//! The pods as the node itself knows them: their cgroups, and their names in the pod log directory.
//!
//! Reads directories only, never a pod's data. Everything here blocks: call it off the serving threads.

mod bundle;
mod cgroups;
mod container;
mod names;
pub mod path;
mod pod_logs;
pub mod roots;
mod uid;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use crate::snapshot::PodName;

pub use bundle::{BundleError, Identity};
pub use container::Child;
pub use names::{Names, Unnamed};
pub use uid::PodUid;

/// Where the node keeps what we look at.
#[derive(Clone, Debug)]
pub struct Kubepods {
    /// Where the cgroup hierarchies are mounted, `/sys/fs/cgroup`.
    pub cgroup_root: PathBuf,
    /// The kubelet's pod log directory, `/var/log/pods`.
    pub pod_logs: PathBuf,
}

// === impl Kubepods ===

impl Kubepods {
    /// The uids under which pods of these names have logged, old incarnations among them. Empty where the
    /// directory cannot be read.
    pub fn uids(&self) -> HashMap<PodName, Vec<PodUid>> {
        pod_logs::uids(&self.pod_logs)
    }

    /// The namespaces and names of the pods that have logged here, by their uid. Empty where the directory cannot be read.
    pub fn names(&self) -> HashMap<PodUid, PodName> {
        pod_logs::names(&self.pod_logs)
    }

    /// Which of these pods have a process in their cgroup. `None` where no kubepods cgroup is in sight, so that nothing can be told.
    pub fn living(&self, of: &HashSet<PodUid>) -> Option<HashSet<PodUid>> {
        cgroups::living(&self.cgroup_root, of)
    }
}

/// Whether a process is in this cgroup or below it.
pub fn is_populated(cgroup: &Path) -> bool {
    cgroups::is_populated(cgroup)
}
