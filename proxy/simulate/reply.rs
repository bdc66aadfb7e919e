//! From the model to the API's messages, as a kubelet of the given features would say it. Everything that a kubelet keeps in a map
//! comes in a fresh random order.

use rand::Rng;
use rand::seq::SliceRandom;

use super::inventory::Device;
use super::node::Node;
use super::pod::{Claim, Container, MemoryBlock, Phase, Pod, PodKey};
use super::profile::Features;
use crate::proto::{v1, v1alpha1};

/// The driver behind all claims.
const DRIVER: &str = "gpu.nvidia.com";
/// The one pool of that driver, named after the node.
const POOL: &str = "node1";

/// `v1` List.
pub(super) fn list(node: &Node, features: &Features, rng: &mut impl Rng) -> v1::ListPodResourcesResponse {
    let shared = if features.shared_pool { node.shared_pool() } else { Vec::new() };
    let listed = node.pods().filter(|pod| !features.active_pods_only || pod.phase != Phase::Terminated);
    let mut pod_resources: Vec<_> = listed.map(|pod| pod_resources(node, pod, features, &shared, rng)).collect();
    pod_resources.shuffle(rng);
    v1::ListPodResourcesResponse { pod_resources }
}

/// `v1` Get: any pod that the kubelet knows, ended ones too.
pub(super) fn get(node: &Node, features: &Features, key: &PodKey, rng: &mut impl Rng) -> Option<v1::GetPodResourcesResponse> {
    let shared = if features.shared_pool { node.shared_pool() } else { Vec::new() };
    let pod_resources = pod_resources(node, node.pod(key)?, features, &shared, rng);
    Some(v1::GetPodResourcesResponse { pod_resources: Some(pod_resources) })
}

/// `v1` GetAllocatableResources; without devices as long as no plugin has registered.
pub(super) fn allocatable(
    node: &Node,
    features: &Features,
    registered: bool,
    rng: &mut impl Rng,
) -> v1::AllocatableResourcesResponse {
    let inventory = node.inventory();
    let healthy = inventory.devices.iter().filter(|device| registered && device.healthy);
    let mut devices: Vec<_> = healthy.flat_map(container_devices).collect();
    devices.shuffle(rng);
    let mut memory = Vec::new();
    if features.memory {
        for numa_node in 0..inventory.cpus.len() {
            for (memory_type, size) in [("memory", inventory.memory), ("hugepages-1Gi", inventory.hugepages)] {
                memory.push(container_memory(&MemoryBlock { memory_type, size, numa_node }));
            }
        }
        memory.shuffle(rng);
    }
    v1::AllocatableResourcesResponse { devices, cpu_ids: cpu_ids(inventory.cpus.iter().flatten(), rng), memory }
}

/// `v1alpha1` List: ended pods too, sidecars never.
pub(super) fn alpha_list(node: &Node, rng: &mut impl Rng) -> v1alpha1::ListPodResourcesResponse {
    let mut pod_resources: Vec<_> = node
        .pods()
        .map(|pod| {
            let containers = pod.request.containers.iter().zip(&pod.containers).filter(|(request, _)| !request.sidecar);
            let containers = containers.map(|(request, container)| v1alpha1::ContainerResources {
                name: request.name.clone(),
                devices: devices(node, container, rng)
                    .into_iter()
                    .map(|device| v1alpha1::ContainerDevices { resource_name: device.resource_name, device_ids: device.device_ids })
                    .collect(),
            });
            v1alpha1::PodResources {
                name: pod.key.name.clone(),
                namespace: pod.key.namespace.clone(),
                containers: containers.collect(),
            }
        })
        .collect();
    pod_resources.shuffle(rng);
    v1alpha1::ListPodResourcesResponse { pod_resources }
}

fn pod_resources(node: &Node, pod: &Pod, features: &Features, shared: &[u32], rng: &mut impl Rng) -> v1::PodResources {
    let listed = pod.request.containers.iter().zip(&pod.containers).filter(|(request, _)| features.sidecars || !request.sidecar);
    let containers = listed.map(|(request, container)| {
        let cpus = if container.cpus.is_empty() { shared } else { &container.cpus };
        let claims = if features.dynamic_resources { container.claims.as_slice() } else { &[] };
        v1::ContainerResources {
            name: request.name.clone(),
            devices: devices(node, container, rng),
            cpu_ids: cpu_ids(cpus, rng),
            memory: memory(&container.memory, features.memory),
            dynamic_resources: claims.iter().map(|claim| dynamic_resource(node, pod, claim, features)).collect(),
        }
    });
    v1::PodResources {
        name: pod.key.name.clone(),
        namespace: pod.key.namespace.clone(),
        containers: containers.collect(),
        cpu_ids: if features.pod_level { cpu_ids(&pod.cpus, rng) } else { Vec::new() },
        memory: memory(&pod.memory, features.pod_level),
    }
}

fn devices(node: &Node, container: &Container, rng: &mut impl Rng) -> Vec<v1::ContainerDevices> {
    let held = container.devices.iter().map(|i| &node.inventory().devices[*i]);
    let mut devices: Vec<_> = held.flat_map(container_devices).collect();
    devices.shuffle(rng);
    devices
}

/// One entry for each NUMA node that the device is near to, or one without topology.
fn container_devices(device: &Device) -> impl Iterator<Item = v1::ContainerDevices> {
    let entry = |topology| v1::ContainerDevices {
        resource_name: device.resource.to_owned(),
        device_ids: vec![device.id.clone()],
        topology,
    };
    let without = device.numa_nodes.is_empty().then(|| entry(None));
    without.into_iter().chain(device.numa_nodes.iter().map(move |numa_node| entry(Some(topology(*numa_node)))))
}

fn topology(numa_node: usize) -> v1::TopologyInfo {
    #[expect(clippy::cast_possible_wrap, reason = "there are at most 64 NUMA nodes")]
    v1::TopologyInfo { nodes: vec![v1::NumaNode { id: numa_node as i64 }] }
}

fn memory(blocks: &[MemoryBlock], shown: bool) -> Vec<v1::ContainerMemory> {
    if shown { blocks.iter().map(container_memory).collect() } else { Vec::new() }
}

fn container_memory(block: &MemoryBlock) -> v1::ContainerMemory {
    v1::ContainerMemory { memory_type: block.memory_type.to_owned(), size: block.size, topology: Some(topology(block.numa_node)) }
}

fn cpu_ids<'a>(cpus: impl IntoIterator<Item = &'a u32>, rng: &mut impl Rng) -> Vec<i64> {
    let mut cpus: Vec<_> = cpus.into_iter().map(|cpu| i64::from(*cpu)).collect();
    cpus.shuffle(rng);
    cpus
}

fn dynamic_resource(node: &Node, pod: &Pod, claim: &Claim, features: &Features) -> v1::DynamicResource {
    let device_name = node.inventory().claimable[claim.device].clone();
    v1::DynamicResource {
        claim_name: claim.name.clone(),
        claim_namespace: pod.key.namespace.clone(),
        claim_resources: vec![v1::ClaimResource {
            cdi_devices: vec![v1::CdiDevice { name: format!("k8s.{DRIVER}/device={device_name}") }],
            driver_name: DRIVER.to_owned(),
            pool_name: POOL.to_owned(),
            device_name,
            share_id: claim.share_id.clone().filter(|_| features.share_id),
        }],
    }
}
