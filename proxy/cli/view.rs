//! A reply as people want to see it: sorted, devices grouped by resource, the pod's own set apart from its containers'.
//!
//! The kubelet's order is random from call to call, save that of a pod's containers: everything else is in an order of its own here.

use std::collections::{BTreeMap, BTreeSet};

use super::cpus::{Cpus, NodesOfCpus};
use crate::proto::{v1, v1alpha1};

/// One line: a container, or a pod's own share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) owner: Owner,
    pub(super) holds: Holds,
}

/// Whose line it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Owner {
    /// The pod as a whole: what its containers hold lies within this, or beside it; never add them up.
    #[default]
    Pod,
    Container(String),
}

/// What somebody holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Holds {
    pub(super) cpus: Cpus,
    /// Bytes by type and NUMA nodes.
    pub(super) memory: BTreeMap<(String, Nodes), u64>,
    /// Device ids with their NUMA nodes, by resource.
    pub(super) devices: BTreeMap<String, BTreeMap<String, Nodes>>,
    pub(super) claims: BTreeSet<Claim>,
}

/// NUMA nodes; empty: no affinity, or none known.
pub(super) type Nodes = Cpus;

/// One claim and what it got.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Claim {
    pub(super) namespace: String,
    pub(super) name: String,
    /// `driver/pool/device`.
    pub(super) devices: BTreeSet<String>,
}

/// Puts what the kubelet shuffles into an order of its own, for output that two calls can be compared by.
pub(super) trait Sorted {
    fn sort(&mut self);
}

/// The lines for these pods.
pub(super) fn rows(pods: &[v1::PodResources]) -> Vec<Row> {
    let mut rows: Vec<Row> = pods.iter().flat_map(pod_rows).collect();
    // Stable: containers stay in the order of the pod's spec, sidecars first.
    rows.sort_by(|a, b| (&a.namespace, &a.pod).cmp(&(&b.namespace, &b.pod)));
    rows
}

/// The lines for `v1alpha1`, which knows devices alone.
pub(super) fn alpha_rows(pods: &[v1alpha1::PodResources]) -> Vec<Row> {
    let device = |device: &v1alpha1::ContainerDevices| v1::ContainerDevices {
        resource_name: device.resource_name.clone(),
        device_ids: device.device_ids.clone(),
        topology: None,
    };
    let container = |container: &v1alpha1::ContainerResources| v1::ContainerResources {
        name: container.name.clone(),
        devices: container.devices.iter().map(device).collect(),
        ..v1::ContainerResources::default()
    };
    let pod = |pod: &v1alpha1::PodResources| v1::PodResources {
        name: pod.name.clone(),
        namespace: pod.namespace.clone(),
        containers: pod.containers.iter().map(container).collect(),
        ..v1::PodResources::default()
    };
    rows(&pods.iter().map(pod).collect::<Vec<_>>())
}

fn pod_rows(pod: &v1::PodResources) -> Vec<Row> {
    let row = |owner, holds| Row { namespace: pod.namespace.clone(), pod: pod.name.clone(), owner, holds };
    let own = Holds { cpus: pod.cpu_ids.iter().copied().collect(), memory: memory(&pod.memory), ..Holds::default() };
    let containers = pod.containers.iter().map(|container| row(Owner::Container(container.name.clone()), Holds::of(container)));
    // A pod that has neither a share of its own nor a container is still a pod.
    let of_pod = (own != Holds::default() || pod.containers.is_empty()).then(|| row(Owner::Pod, own));
    of_pod.into_iter().chain(containers).collect()
}

/// Bytes by type and nodes. Two blocks of one container are two blocks: these add up.
pub(super) fn memory(blocks: &[v1::ContainerMemory]) -> BTreeMap<(String, Nodes), u64> {
    let mut sizes: BTreeMap<(String, Nodes), u64> = BTreeMap::new();
    for block in blocks {
        let size = sizes.entry((block.memory_type.clone(), nodes(block.topology.as_ref()))).or_default();
        *size = size.saturating_add(block.size);
    }
    sizes
}

/// Device ids by resource. A device on two nodes comes in two entries: its nodes are united.
pub(super) fn devices(entries: &[v1::ContainerDevices]) -> BTreeMap<String, BTreeMap<String, Nodes>> {
    let mut devices: BTreeMap<String, BTreeMap<String, Nodes>> = BTreeMap::new();
    for entry in entries {
        let ids = devices.entry(entry.resource_name.clone()).or_default();
        for id in &entry.device_ids {
            ids.entry(id.clone()).or_default().extend(nodes(entry.topology.as_ref()));
        }
    }
    devices
}

fn nodes(topology: Option<&v1::TopologyInfo>) -> Nodes {
    topology.iter().flat_map(|topology| &topology.nodes).map(|node| node.id).collect()
}

// === impl Holds ===

impl Holds {
    fn of(container: &v1::ContainerResources) -> Self {
        let claim = |claim: &v1::DynamicResource| Claim {
            namespace: claim.claim_namespace.clone(),
            name: claim.claim_name.clone(),
            devices: claim.claim_resources.iter().map(|d| format!("{}/{}/{}", d.driver_name, d.pool_name, d.device_name)).collect(),
        };
        Self {
            cpus: container.cpu_ids.iter().copied().collect(),
            memory: memory(&container.memory),
            devices: devices(&container.devices),
            claims: container.dynamic_resources.iter().map(claim).collect(),
        }
    }

    /// The NUMA nodes that the reply names, each as often as it does.
    pub(super) fn listed_nodes(&self) -> impl Iterator<Item = &i64> {
        let memory = self.memory.keys().flat_map(|(_, nodes)| nodes);
        memory.chain(self.devices.values().flat_map(BTreeMap::values).flatten())
    }

    /// The NUMA nodes of everything held; CPUs count where their nodes are known.
    pub(super) fn nodes(&self, nodes_of_cpus: &NodesOfCpus) -> Nodes {
        let cpus = self.cpus.iter().filter_map(|cpu| nodes_of_cpus.get(cpu));
        self.listed_nodes().chain(cpus).copied().collect()
    }
}

// === impl Sorted ===

impl Sorted for v1::ListPodResourcesResponse {
    fn sort(&mut self) {
        self.pod_resources.iter_mut().for_each(Sorted::sort);
        self.pod_resources.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    }
}

impl Sorted for v1::GetPodResourcesResponse {
    fn sort(&mut self) {
        self.pod_resources.iter_mut().for_each(Sorted::sort);
    }
}

impl Sorted for v1::AllocatableResourcesResponse {
    fn sort(&mut self) {
        sort_parts(&mut self.devices, &mut self.cpu_ids, &mut self.memory);
    }
}

impl Sorted for v1::PodResources {
    fn sort(&mut self) {
        sort_parts(&mut Vec::new(), &mut self.cpu_ids, &mut self.memory);
        for container in &mut self.containers {
            sort_parts(&mut container.devices, &mut container.cpu_ids, &mut container.memory);
            for claim in &mut container.dynamic_resources {
                claim.claim_resources.sort_by(|a, b| {
                    (&a.driver_name, &a.pool_name, &a.device_name).cmp(&(&b.driver_name, &b.pool_name, &b.device_name))
                });
            }
            container
                .dynamic_resources
                .sort_by(|a, b| (&a.claim_namespace, &a.claim_name).cmp(&(&b.claim_namespace, &b.claim_name)));
        }
    }
}

impl Sorted for v1alpha1::ListPodResourcesResponse {
    fn sort(&mut self) {
        for pod in &mut self.pod_resources {
            for container in &mut pod.containers {
                container.devices.iter_mut().for_each(|device| device.device_ids.sort());
                container.devices.sort_by(|a, b| (&a.resource_name, &a.device_ids).cmp(&(&b.resource_name, &b.device_ids)));
            }
        }
        self.pod_resources.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    }
}

fn sort_parts(devices: &mut [v1::ContainerDevices], cpus: &mut [i64], memory: &mut [v1::ContainerMemory]) {
    cpus.sort_unstable();
    let topologies = devices.iter_mut().map(|d| &mut d.topology).chain(memory.iter_mut().map(|m| &mut m.topology));
    for topology in topologies.flatten() {
        topology.nodes.sort_by_key(|node| node.id);
    }
    for device in &mut *devices {
        device.device_ids.sort();
    }
    devices.sort_by(|a, b| (&a.resource_name, &a.device_ids).cmp(&(&b.resource_name, &b.device_ids)));
    memory.sort_by_cached_key(|block| (block.memory_type.clone(), nodes(block.topology.as_ref())));
}
