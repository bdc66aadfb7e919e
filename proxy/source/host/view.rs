//! What the host knows, as values: for answers, and for whoever compares them with the kubelet's.

use std::sync::Arc;

use super::exclusive::Verdict;
use super::node::Node;
use super::skip::{Skipped, Why};
use crate::cpuset::CpuSet;
use crate::kubepods::PodUid;
use crate::snapshot::PodName;

/// All that the host knows at one moment.
#[derive(Clone, Debug)]
pub struct View {
    /// The machine.
    pub node: Arc<Node>,
    /// Its pods.
    pub pods: Pods,
}

/// The pods in the cgroups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pods {
    /// The kubepods roots, as paths below the hierarchy's mount. None: there are no pods because there is no kubelet.
    pub roots: Vec<String>,
    /// All pods, by name; those that are left out of answers too.
    pub pods: Vec<Pod>,
    /// What was passed over.
    pub skipped: Skipped,
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its name, where it is told.
    pub name: Option<PodName>,
    /// Its uid, from its cgroup.
    pub uid: PodUid,
    /// Its cgroup, as a path below the hierarchy's mount.
    pub cgroup: String,
    /// Whether it sits directly below the kubepods root.
    pub guaranteed: bool,
    /// Its containers, without its sandbox.
    pub containers: Vec<Container>,
    /// CPUs that are the pod's as a whole.
    pub cpus: Option<CpuSet>,
    /// Containers' cgroups in it without processes and without a bundle, the first few.
    pub left_over: Vec<String>,
    /// Why answers do not have it.
    pub left_out: Option<Why>,
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Its name in the pod; `None` where nobody tells it: then answers do not have it.
    pub name: Option<String>,
    /// The runtime's id.
    pub id: String,
    /// Its cgroup.
    pub cgroup: String,
    /// Its effective CPUs; `None` where they cannot be read.
    pub cpus: Option<CpuSet>,
    /// Whether they are its alone.
    pub verdict: Verdict,
    /// Memory that it is bound to.
    pub memory: Vec<Memory>,
}

/// Memory of one kind on some memory nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The size of its huge pages in KiB; `None`: ordinary memory.
    pub page_kib: Option<u64>,
    /// How much, in bytes.
    pub bytes: u64,
    /// The NUMA nodes.
    pub nodes: CpuSet,
}

// === impl Pods ===

impl Pods {
    /// The pods that answers have.
    pub fn listed(&self) -> impl Iterator<Item = (&PodName, &Pod)> {
        self.pods.iter().filter(|pod| pod.left_out.is_none()).filter_map(|pod| Some((pod.name.as_ref()?, pod)))
    }
}

// === impl Container ===

impl Container {
    /// Its CPUs, where they are its alone.
    #[must_use]
    pub fn exclusive(&self) -> Option<&CpuSet> {
        self.cpus.as_ref().filter(|_| self.verdict == Verdict::Exclusive)
    }
}
