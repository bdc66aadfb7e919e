//! Where the kubelet's view of the node and the host's disagree, container by container.
//!
//! [`compare()`] is the judgement, pure; [`Confirmation`] says which of its findings last, since both sides change while they are looked
//! at. docs/HOST.md says what each kind means. In doubt there is no finding.

mod compare;
mod confirm;

use std::time::Duration;

use serde::Serialize;

use crate::cpuset::{CpuSet, MOST};
use crate::proto::v1;

pub use compare::compare;
pub use confirm::{Confirmation, News};

/// The kubelet corrects the shared containers' cpusets this often (`cpuManagerReconcilePeriod`, 10 s by default): until then those that
/// run may still have CPUs that a new container was given alone.
const RECONCILED: Duration = Duration::from_secs(11);

/// The kubelet makes and removes a pod's cgroup some time before or after it lists it; it looks for cgroups left over every 2 s.
const SETTLED: Duration = Duration::from_secs(4);

/// What kind of disagreement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A container may not run on all of the CPUs that it is told to have alone.
    CpusNotInCpuset,
    /// A container's cpuset is none that the kubelet gave it: somebody else wrote it.
    CpusetRewritten,
    /// CPUs that are told to be one container's alone are another's too.
    ExclusiveOverlap,
    /// A pod is listed, holds nothing, and has no cgroup.
    PodGone,
    /// A pod is listed with devices, CPUs or memory, and has no cgroup.
    DevicesOfDeadPod,
    /// A cgroup is there whose pod or container is not.
    CgroupWithoutPod,
    /// CPUs went offline or came online since the kubelet started, which fixes its set then.
    OnlineCpus,
}

/// One disagreement. Two looks that find the same find equal ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// What kind.
    pub kind: Kind,
    /// The pod's namespace, where it is about a pod that has a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The pod's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The container's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The cgroup, below its hierarchy's mount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// What each side says, for people.
    pub detail: String,
}

/// What the kubelet tells.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// List.
    pub pods: Vec<v1::PodResources>,
    /// The CPUs of `GetAllocatableResources`; `None`: it tells none, so that no CPU can be had alone, or has no such call.
    pub allocatable: Option<CpuSet>,
}

// === impl Kind ===

impl Kind {
    /// All, in the order of findings.
    pub const ALL: [Self; 7] = [
        Self::CpusNotInCpuset,
        Self::CpusetRewritten,
        Self::ExclusiveOverlap,
        Self::PodGone,
        Self::DevicesOfDeadPod,
        Self::CgroupWithoutPod,
        Self::OnlineCpus,
    ];

    /// As output, logs and the metric have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CpusNotInCpuset => "cpus_not_in_cpuset",
            Self::CpusetRewritten => "cpuset_rewritten",
            Self::ExclusiveOverlap => "exclusive_overlap",
            Self::PodGone => "pod_gone",
            Self::DevicesOfDeadPod => "devices_of_dead_pod",
            Self::CgroupWithoutPod => "cgroup_without_pod",
            Self::OnlineCpus => "online_cpus",
        }
    }

    /// How long it must last before it is one: a pod that starts or ends is none.
    #[must_use]
    pub const fn patience(self) -> Duration {
        match self {
            Self::CpusetRewritten | Self::ExclusiveOverlap => RECONCILED,
            Self::CpusNotInCpuset | Self::PodGone | Self::DevicesOfDeadPod | Self::CgroupWithoutPod | Self::OnlineCpus => SETTLED,
        }
    }
}

// === impl Finding ===

impl Finding {
    /// `namespace/pod/container`, or the cgroup, or nothing.
    #[must_use]
    pub fn whose(&self) -> String {
        match (&self.namespace, &self.pod, &self.container, &self.cgroup) {
            (Some(namespace), Some(pod), Some(container), _) => format!("{namespace}/{pod}/{container}"),
            (Some(namespace), Some(pod), None, _) => format!("{namespace}/{pod}"),
            (.., Some(cgroup)) => cgroup.clone(),
            _ => String::new(),
        }
    }
}

// === impl Told ===

impl Told {
    /// From the kubelet's two replies. A kubelet without `GetAllocatableResources` has the one.
    #[must_use]
    pub fn new(list: v1::ListPodResourcesResponse, allocatable: Option<&v1::AllocatableResourcesResponse>) -> Self {
        let allocatable = allocatable.map(|reply| cpus(&reply.cpu_ids)).filter(|cpus| !cpus.is_empty());
        Self { pods: list.pod_resources, allocatable }
    }
}

/// A reply's CPU numbers as a set; what no kernel has is left out.
fn cpus(ids: &[i64]) -> CpuSet {
    ids.iter().filter_map(|&id| u32::try_from(id).ok()).filter(|&id| id < MOST).collect()
}

#[cfg(test)]
mod tests;
