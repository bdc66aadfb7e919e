//! From what the host knows to the messages of the podresources API. Pure.

use prost::Message as _;

use super::node::Node;
use super::settings;
use super::view::{Memory, Pod, Pods};
use crate::cpuset::CpuSet;
use crate::proto::{v1, v1alpha1};
use crate::snapshot::PodName;

/// `v1` List.
pub(super) fn list(pods: &Pods) -> Vec<u8> {
    let pod_resources = pods.listed().map(|(name, listed)| pod(name, listed)).collect();
    v1::ListPodResourcesResponse { pod_resources }.encode_to_vec()
}

/// `v1` Get; `None`: there is no such pod. Of two incarnations, the one with more in it.
pub(super) fn get(pods: &Pods, namespace: &str, name: &str) -> Option<Vec<u8>> {
    let same = pods.listed().filter(|(pod, _)| pod.namespace == namespace && pod.name == name);
    let (name, found) = same.max_by_key(|(_, pod)| pod.containers.len())?;
    Some(v1::GetPodResourcesResponse { pod_resources: Some(pod(name, found)) }.encode_to_vec())
}

/// `v1alpha1` List: the same pods and containers, without devices, which the host does not know.
pub(super) fn alpha_list(pods: &Pods) -> Vec<u8> {
    let containers = |pod: &Pod| {
        let names = pod.containers.iter().filter_map(|container| container.name.clone());
        names.map(|name| v1alpha1::ContainerResources { name, devices: Vec::new() }).collect()
    };
    let pod_resources = pods.listed().map(|(name, pod)| v1alpha1::PodResources {
        name: name.name.clone(),
        namespace: name.namespace.clone(),
        containers: containers(pod),
    });
    v1alpha1::ListPodResourcesResponse { pod_resources: pod_resources.collect() }.encode_to_vec()
}

/// `v1` GetAllocatableResources, by the kubelet's own arithmetic: online CPUs without the reserved ones; of each node's memory what is
/// neither in huge pages nor reserved (`pkg/kubelet/cm/memorymanager`). What comes to nothing is not listed.
pub(super) fn allocatable(node: &Node) -> Vec<u8> {
    let cpu_ids = match &node.settings.cpus {
        settings::Cpus::AllBut(reserved) => ids(&node.online.difference(reserved)),
        settings::Cpus::None(_) => Vec::new(),
    };
    let mut memory = Vec::new();
    if let settings::Memory::AllBut(reserved) = &node.settings.memory {
        for numa in &node.numa {
            let mut block = |memory_type: String, bytes: u64| {
                let kept = reserved.get(&(numa.id, memory_type.clone())).copied().unwrap_or_default();
                let size = bytes.saturating_sub(kept);
                if size > 0 {
                    memory.push(v1::ContainerMemory { memory_type, size, topology: Some(topology(std::iter::once(numa.id))) });
                }
            };
            let huge = numa.hugepages.iter().map(|(kib, pages)| kib.saturating_mul(*pages).saturating_mul(1024));
            block("memory".to_owned(), numa.memory.saturating_sub(huge.clone().sum()));
            for ((kib, _), bytes) in numa.hugepages.iter().zip(huge) {
                block(memory_type(Some(*kib)), bytes);
            }
        }
    }
    v1::AllocatableResourcesResponse { devices: Vec::new(), cpu_ids, memory }.encode_to_vec()
}

fn pod(name: &PodName, pod: &Pod) -> v1::PodResources {
    let containers = pod.containers.iter().filter_map(|container| {
        Some(v1::ContainerResources {
            name: container.name.clone()?,
            cpu_ids: container.exclusive().map(ids).unwrap_or_default(),
            memory: container.memory.iter().map(memory).collect(),
            ..v1::ContainerResources::default()
        })
    });
    let mut containers: Vec<_> = containers.collect();
    containers.sort_by(|a, b| a.name.cmp(&b.name));
    v1::PodResources {
        name: name.name.clone(),
        namespace: name.namespace.clone(),
        containers,
        cpu_ids: pod.cpus.as_ref().map(ids).unwrap_or_default(),
        memory: Vec::new(),
    }
}

fn memory(memory: &Memory) -> v1::ContainerMemory {
    v1::ContainerMemory {
        memory_type: memory_type(memory.page_kib),
        size: memory.bytes,
        topology: Some(topology(memory.nodes.iter())),
    }
}

fn ids(set: &CpuSet) -> Vec<i64> {
    set.iter().map(i64::from).collect()
}

fn topology(nodes: impl Iterator<Item = u32>) -> v1::TopologyInfo {
    v1::TopologyInfo { nodes: nodes.map(|id| v1::NumaNode { id: id.into() }).collect() }
}

/// As Kubernetes calls it: `memory`, `hugepages-2Mi`.
fn memory_type(page_kib: Option<u64>) -> String {
    match page_kib {
        None => "memory".to_owned(),
        Some(kib) if kib % (1 << 20) == 0 => format!("hugepages-{}Gi", kib >> 20),
        Some(kib) if kib % (1 << 10) == 0 => format!("hugepages-{}Mi", kib >> 10),
        Some(kib) => format!("hugepages-{kib}Ki"),
    }
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
