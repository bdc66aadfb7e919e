//! Replies in one order: the kubelet shuffles pods, devices and CPUs from call to call.
//!
//! A shuffled reply keeps its length to the byte, so length and this text together show that nothing was lost, not even a field that
//! the types here do not know.

use podresources_proxy::proto::{v1, v1alpha1};
use prost::Message as _;

use crate::call;

/// The text of a reply to `path`, in one order.
pub(crate) fn text(path: &str, message: &[u8]) -> String {
    let bytes = message.len();
    match path {
        call::LIST => {
            let mut reply = v1::ListPodResourcesResponse::decode(message).unwrap();
            reply.pod_resources.iter_mut().for_each(pod);
            reply.pod_resources.sort_by_key(|pod| (pod.namespace.clone(), pod.name.clone()));
            format!("{bytes} bytes: {reply:?}")
        }
        call::GET => {
            let mut reply = v1::GetPodResourcesResponse::decode(message).unwrap();
            reply.pod_resources.iter_mut().for_each(pod);
            format!("{bytes} bytes: {reply:?}")
        }
        call::ALLOCATABLE => {
            let mut reply = v1::AllocatableResourcesResponse::decode(message).unwrap();
            devices(&mut reply.devices);
            reply.cpu_ids.sort_unstable();
            memory(&mut reply.memory);
            format!("{bytes} bytes: {reply:?}")
        }
        call::ALPHA_LIST => {
            let mut reply = v1alpha1::ListPodResourcesResponse::decode(message).unwrap();
            for pod in &mut reply.pod_resources {
                for container in &mut pod.containers {
                    container.devices.sort_by_cached_key(|device| format!("{device:?}"));
                }
                pod.containers.sort_by(|a, b| a.name.cmp(&b.name));
            }
            reply.pod_resources.sort_by_key(|pod| (pod.namespace.clone(), pod.name.clone()));
            format!("{bytes} bytes: {reply:?}")
        }
        other => panic!("no method {other}"),
    }
}

fn pod(pod: &mut v1::PodResources) {
    for container in &mut pod.containers {
        devices(&mut container.devices);
        container.cpu_ids.sort_unstable();
        memory(&mut container.memory);
        for claim in &mut container.dynamic_resources {
            claim.claim_resources.sort_by_cached_key(|resource| format!("{resource:?}"));
        }
        container.dynamic_resources.sort_by_cached_key(|claim| format!("{claim:?}"));
    }
    pod.containers.sort_by(|a, b| a.name.cmp(&b.name));
    pod.cpu_ids.sort_unstable();
    memory(&mut pod.memory);
}

fn devices(devices: &mut [v1::ContainerDevices]) {
    for entry in devices.iter_mut() {
        entry.device_ids.sort();
        if let Some(topology) = &mut entry.topology {
            topology.nodes.sort_by_key(|node| node.id);
        }
    }
    devices.sort_by_cached_key(|entry| format!("{entry:?}"));
}

fn memory(memory: &mut [v1::ContainerMemory]) {
    memory.sort_by_cached_key(|block| format!("{block:?}"));
}
