//! What the host says with what the kubelet said last of the same pods. Pure.

use std::collections::{HashMap, HashSet};

use crate::snapshot::{Allocatable, Malformed, PodList, PodName, merge_allocatable};

/// A List of the host's with the kubelet's own record of each pod that both have, byte for byte; and the pods that the kubelet did
/// not know. Both versions of List read alike.
pub(super) fn list(host: &[u8], kubelet: &[u8]) -> Result<(Vec<u8>, HashSet<PodName>), Malformed> {
    let (host, kubelet) = (PodList::build(host)?, PodList::build(kubelet)?);
    let known: HashMap<(&str, &str), &[u8]> = kubelet.pods().map(|pod| ((pod.namespace, pod.name), pod.record)).collect();
    let (mut message, mut unknown) = (Vec::with_capacity(kubelet.message().len()), HashSet::new());
    let mut told = HashSet::new();
    for pod in host.pods() {
        match known.get(&(pod.namespace, pod.name)) {
            // Of two incarnations in the cgroups the kubelet knows one.
            Some(_) if !told.insert((pod.namespace, pod.name)) => {}
            Some(record) => message.extend_from_slice(record),
            None => {
                message.extend_from_slice(pod.record);
                unknown.insert(pod.to_name());
            }
        }
    }
    Ok((message, unknown))
}

/// What can be given out as the host sees it, with the devices that the kubelet told.
pub(super) fn allocatable(host: &[u8], kubelet: &[u8]) -> Result<Vec<u8>, Malformed> {
    let merged = merge_allocatable(&Allocatable::build(kubelet)?, Allocatable::build(host)?, |_| true)?;
    Ok(merged.allocatable.message().to_vec())
}
