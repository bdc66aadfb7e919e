//! Pods of the synthetic node: what they ask for and what they hold.

use std::fmt;

/// Namespace and name, the only identity that the API has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodKey {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
}

/// A pod that wants to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRequest {
    /// Under which it will be listed.
    pub key: PodKey,
    /// In the order in which they are listed; sidecars first.
    pub containers: Vec<ContainerRequest>,
    /// Exclusive CPUs of the pod as a whole, shared by its containers.
    pub pod_cpus: usize,
    /// Memory of the pod as a whole, in bytes.
    pub pod_memory: u64,
}

/// What one container wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerRequest {
    /// The container's name.
    pub name: String,
    /// A restartable init container.
    pub sidecar: bool,
    /// Exclusive CPUs.
    pub cpus: usize,
    /// Memory that the static memory manager pins, in bytes.
    pub memory: u64,
    /// 1 GiB pages, in bytes.
    pub hugepages: u64,
    /// How many of which resource.
    pub devices: Vec<(String, usize)>,
    /// Claims of one device each.
    pub claims: usize,
}

/// A pod of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Under which it is listed.
    pub key: PodKey,
    /// As the state files name it.
    pub uid: String,
    /// How far it is.
    pub phase: Phase,
    /// What it asked for.
    pub request: PodRequest,
    /// What each of `request.containers` holds, in the same order.
    pub containers: Vec<Container>,
    /// Exclusive CPUs of the pod as a whole.
    pub cpus: Vec<u32>,
    /// Memory of the pod as a whole.
    pub memory: Vec<MemoryBlock>,
}

/// How far a pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Listed, and holds nothing yet.
    Admitted,
    /// Holds its CPUs, memory and plugin devices; claims are not prepared.
    Allocated,
    /// Holds its claims as well.
    Prepared,
    /// Ended; known to the kubelet still, and holds nothing.
    Terminated,
}

/// What one container holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Container {
    /// Exclusive CPUs.
    pub cpus: Vec<u32>,
    /// Memory by NUMA node.
    pub memory: Vec<MemoryBlock>,
    /// Indices into the node's devices.
    pub devices: Vec<usize>,
    /// Claims, once prepared.
    pub claims: Vec<Claim>,
}

/// A prepared claim on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The `ResourceClaim`'s name.
    pub name: String,
    /// Index into the node's claimable devices.
    pub device: usize,
    /// Set where the device is given out in shares.
    pub share_id: Option<String>,
}

/// Memory of one type from one NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryBlock {
    /// `memory` or `hugepages-1Gi`.
    pub memory_type: &'static str,
    /// In bytes.
    pub size: u64,
    /// The NUMA node.
    pub numa_node: usize,
}

// === impl PodKey ===

impl PodKey {
    /// The key of `namespace`/`name`.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

// === impl Pod ===

impl Pod {
    /// Forgets what it holds; whoever calls this has put it back.
    pub(super) fn drop_resources(&mut self) {
        self.containers.fill(Container::default());
        self.cpus.clear();
        self.memory.clear();
    }
}

// === impl PodRequest ===

impl PodRequest {
    /// A pod without containers; add them with [`PodRequest::container`].
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { key: PodKey::new(namespace, name), containers: Vec::new(), pod_cpus: 0, pod_memory: 0 }
    }

    /// With one more container.
    #[must_use]
    pub fn container(mut self, container: ContainerRequest) -> Self {
        self.containers.push(container);
        self
    }

    /// The same pod, content with the shared pool and no devices.
    #[must_use]
    pub fn without_resources(mut self) -> Self {
        self.pod_cpus = 0;
        self.pod_memory = 0;
        for container in &mut self.containers {
            *container =
                ContainerRequest { sidecar: container.sidecar, ..ContainerRequest::named(std::mem::take(&mut container.name)) };
        }
        self
    }
}

// === impl ContainerRequest ===

impl ContainerRequest {
    /// A container that asks for nothing.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// With exclusive CPUs.
    #[must_use]
    pub fn cpus(mut self, cpus: usize) -> Self {
        self.cpus = cpus;
        self
    }

    /// With memory, in bytes.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = bytes;
        self
    }

    /// With `count` devices of `resource`.
    #[must_use]
    pub fn devices(mut self, resource: impl Into<String>, count: usize) -> Self {
        self.devices.push((resource.into(), count));
        self
    }

    /// With claims of one device each.
    #[must_use]
    pub fn claims(mut self, claims: usize) -> Self {
        self.claims = claims;
        self
    }
}
