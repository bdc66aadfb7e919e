//! The kubelet's replies: what goes out is what came in, read as any generated client reads it; and a merge gives nothing two owners.

use std::collections::{BTreeMap, BTreeSet};

use podresources_proxy::proto::v1;
use podresources_proxy::snapshot::{Allocatable, Lookup, Malformed, PodList, PodRef, merge, merge_allocatable};
use prost::Message as _;

use super::source::Source;

pub(crate) fn check(input: &[u8]) {
    let mut source = Source(input);
    let (form, keep) = (source.below(4), source.byte());
    match form {
        0 | 1 => {
            let (old, new) = source.halves();
            lists(old, new, keep);
            allocatables(old, new, keep);
        }
        2 => {
            let (old, new) = (list(&mut source), list(&mut source));
            orders(&old);
            lists(&old.encode_to_vec(), &new.encode_to_vec(), keep);
        }
        _ => {
            let (old, new) = (allocatable(&mut source), allocatable(&mut source));
            allocatables(&old.encode_to_vec(), &new.encode_to_vec(), keep);
        }
    }
}

fn lists(old: &[u8], new: &[u8], keep: u8) {
    let (Some(old), Some(new)) = (built(old), built(new)) else { return };
    let (old_owners, new_owners) = (owners(old.message()), owners(new.message()));
    let (message, count, mut asked) = (new.message().to_vec(), new.len(), 0_u32);
    let lost: BTreeSet<_> =
        old.pods().map(|pod| pod.to_name()).filter(|pod| new.get(&pod.namespace, &pod.name) == Lookup::Absent).collect();
    let merged = merge(&old, new, |pod: &PodRef<'_>| {
        assert!(lost.contains(&pod.to_name()), "{pod:?} was not lost");
        asked += 1;
        keep >> (asked % 8) & 1 == 1 || keep == 0
    });
    let merged = merged.unwrap();
    assert!(merged.list.message().starts_with(&message), "the new reply has changed");
    assert_eq!(merged.list.len(), count + merged.kept.len());
    assert!(merged.list.pods().skip(count).map(|pod| pod.to_name()).eq(merged.kept.iter().cloned()));
    for pod in merged.list.pods().skip(count) {
        for (thing, _) in owners(pod.record) {
            let (Some(before), Some(now)) = (old_owners.get(&thing), new_owners.get(&thing)) else { continue };
            let carried = now.iter().any(|owner| before.contains(owner));
            let pool = matches!(thing, Thing::Cpu(_)) && now.len() > 1;
            assert!(before.len() > 1 && (carried || pool), "{thing:?} of {before:?}, then of {now:?}");
        }
    }
    for conflict in &merged.conflicts {
        assert!(lost.contains(&conflict.pod) && !merged.kept.contains(&conflict.pod) || lost.len() < old.len(), "{conflict:?}");
    }
}

/// What of a message becomes a list, and what else holds of it then.
fn built(message: &[u8]) -> Option<PodList> {
    let read = v1::ListPodResourcesResponse::decode(message);
    let list = match (PodList::build(message), &read) {
        (Ok(list), _) => list,
        // Groups; and unknown fields, which nobody else looks into.
        (Err(Malformed::WireType { .. }), _) | (Err(_), Err(_)) => return None,
        (Err(error), Ok(read)) => panic!("{error}, and others read {read:?}"),
    };
    let read = read.unwrap_or_else(|error| panic!("others cannot read it: {error}"));
    assert_eq!(list.message(), message);
    assert_eq!(list.framed()[..5], [&[0][..], &u32::try_from(message.len()).unwrap().to_be_bytes()].concat());
    assert_eq!(list.len(), read.pod_resources.len());
    let mut records = Vec::new();
    for (pod, read) in list.pods().zip(&read.pod_resources) {
        assert_eq!((pod.namespace, pod.name), (&read.namespace[..], &read.name[..]));
        let answer = v1::GetPodResourcesResponse::decode(pod.record).unwrap();
        assert_eq!(answer.pod_resources.as_ref(), Some(read));
        let namesakes = read_names(&list).filter(|name| *name == (pod.namespace, pod.name)).take(2).count();
        match list.get(pod.namespace, pod.name) {
            Lookup::Found(framed) => assert!(namesakes == 1 && framed[5..] == *pod.record),
            other => assert!(namesakes > 1 && other == Lookup::Ambiguous),
        }
        records.push(pod.record);
    }
    if records.iter().map(|record| record.len()).sum::<usize>() == message.len() {
        records.reverse();
        assert_eq!(PodList::build(&records.concat()).unwrap().digest(), list.digest(), "the order changes the digest");
    }
    Some(list)
}

fn read_names(list: &PodList) -> impl Iterator<Item = (&str, &str)> {
    list.pods().map(|pod| (pod.namespace, pod.name))
}

/// Something that one pod holds.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    Cpu(i64),
    Plugin(String, String),
    Dra(String, String, String, String),
    Cdi(String),
}

/// Who holds each thing, as any client would see it; of two pods with one name both.
fn owners(message: &[u8]) -> BTreeMap<Thing, Vec<(String, String)>> {
    let mut owners: BTreeMap<Thing, Vec<_>> = BTreeMap::new();
    for pod in v1::ListPodResourcesResponse::decode(message).unwrap().pod_resources {
        let mut things: BTreeSet<Thing> = pod.cpu_ids.iter().copied().map(Thing::Cpu).collect();
        for container in pod.containers {
            things.extend(container.cpu_ids.into_iter().map(Thing::Cpu));
            for devices in container.devices {
                things.extend(devices.device_ids.into_iter().map(|id| Thing::Plugin(devices.resource_name.clone(), id)));
            }
            for resource in container.dynamic_resources.into_iter().flat_map(|claim| claim.claim_resources) {
                if resource.device_name.is_empty() {
                    things.extend(resource.cdi_devices.into_iter().map(|cdi| Thing::Cdi(cdi.name)));
                } else {
                    let share = resource.share_id.unwrap_or_default();
                    things.insert(Thing::Dra(resource.driver_name, resource.pool_name, resource.device_name, share));
                }
            }
        }
        for thing in things {
            owners.entry(thing).or_default().push((pod.namespace.clone(), pod.name.clone()));
        }
    }
    owners
}

/// No order changes a digest.
fn orders(reply: &v1::ListPodResourcesResponse) {
    let digest = |reply: &v1::ListPodResourcesResponse| PodList::build(&reply.encode_to_vec()).unwrap().digest();
    let mut turned = reply.clone();
    turned.pod_resources.reverse();
    for pod in &mut turned.pod_resources {
        pod.containers.reverse();
        pod.cpu_ids.reverse();
        for container in &mut pod.containers {
            container.devices.reverse();
            container.cpu_ids.reverse();
            container.dynamic_resources.reverse();
            container.devices.iter_mut().for_each(|devices| devices.device_ids.reverse());
        }
    }
    assert_eq!(digest(reply), digest(&turned), "the order changes the digest");
    if let Some(container) = turned.pod_resources.first_mut().and_then(|pod| pod.containers.first_mut()) {
        container.cpu_ids.push(7);
        assert_ne!(digest(reply), digest(&turned), "a CPU more does not change the digest");
    }
}

fn allocatables(old: &[u8], new: &[u8], keep: u8) {
    let build = |message: &[u8]| {
        let read = v1::AllocatableResourcesResponse::decode(message);
        match (Allocatable::build(message), read) {
            (Ok(built), Ok(read)) => Some((built, read)),
            (Err(Malformed::WireType { .. }), _) | (Err(_), Err(_)) => None,
            (Ok(_), Err(error)) => panic!("others cannot read it: {error}"),
            (Err(error), Ok(read)) => panic!("{error}, and others read {read:?}"),
        }
    };
    let (Some((old, old_read)), Some((new, new_read))) = (build(old), build(new)) else { return };
    let message = new.message().to_vec();
    let kept = |resource: &str, id: &str| keep == 0 || keep >> ((resource.len() + id.len()) % 8) & 1 == 1;
    let merged = merge_allocatable(&old, new, |lost| kept(lost.device.resource, lost.device.id)).unwrap();
    let out = merged.allocatable.message();
    assert!(out.starts_with(&message), "the new reply has changed");
    let read = v1::AllocatableResourcesResponse::decode(out).unwrap();
    assert_eq!((&read.cpu_ids, &read.memory), (&new_read.cpu_ids, &new_read.memory));
    let (old, new, all) = (flat(&old_read.devices), flat(&new_read.devices), flat(&read.devices));
    let lost: Vec<_> = old.iter().filter(|device| !new.contains(device) && kept(device.0, device.1)).collect();
    let mut expected: Vec<_> = new.iter().chain(lost).collect();
    let mut all: Vec<_> = all.iter().collect();
    expected.sort_unstable();
    all.sort_unstable();
    assert_eq!(all, expected);
}

fn flat(devices: &[v1::ContainerDevices]) -> Vec<(&str, &str)> {
    let of = |devices: &'_ v1::ContainerDevices| devices.device_ids.len();
    let mut flat = Vec::with_capacity(devices.iter().map(of).sum());
    for devices in devices {
        flat.extend(devices.device_ids.iter().map(|id| (&devices.resource_name[..], &id[..])));
    }
    flat
}

// Replies whose lengths are right: few names and numbers, so that things meet.

fn word(source: &mut Source<'_>) -> String {
    ["", "a", "b", "c", "d", "é", "example.com/gpu", "a-name-of-some-length-that-a-pod-may-have"][usize::from(source.below(8))]
        .into()
}

fn some<T>(source: &mut Source<'_>, mut each: impl FnMut(&mut Source<'_>) -> T) -> Vec<T> {
    (0..source.below(4)).map(|_| each(source)).collect()
}

fn number(source: &mut Source<'_>) -> i64 {
    match source.byte() {
        255 => i64::MAX,
        254 => -1,
        other => i64::from(other % 12),
    }
}

fn devices(source: &mut Source<'_>) -> v1::ContainerDevices {
    let topology =
        (source.below(3) == 0).then(|| v1::TopologyInfo { nodes: some(source, |source| v1::NumaNode { id: number(source) }) });
    v1::ContainerDevices { resource_name: word(source), device_ids: some(source, word), topology }
}

fn memory(source: &mut Source<'_>) -> v1::ContainerMemory {
    v1::ContainerMemory { memory_type: word(source), size: source.byte().into(), topology: None }
}

fn resource(source: &mut Source<'_>) -> v1::ClaimResource {
    v1::ClaimResource {
        cdi_devices: some(source, |source| v1::CdiDevice { name: word(source) }),
        driver_name: word(source),
        pool_name: word(source),
        device_name: word(source),
        share_id: (source.below(2) == 0).then(|| word(source)),
    }
}

fn container(source: &mut Source<'_>) -> v1::ContainerResources {
    let claim = |source: &mut Source<'_>| v1::DynamicResource {
        claim_name: word(source),
        claim_namespace: word(source),
        claim_resources: some(source, resource),
    };
    v1::ContainerResources {
        name: word(source),
        devices: some(source, devices),
        cpu_ids: some(source, number),
        memory: some(source, memory),
        dynamic_resources: some(source, claim),
    }
}

fn list(source: &mut Source<'_>) -> v1::ListPodResourcesResponse {
    let pod = |source: &mut Source<'_>| v1::PodResources {
        name: word(source),
        namespace: word(source),
        containers: some(source, container),
        cpu_ids: some(source, number),
        memory: some(source, memory),
    };
    v1::ListPodResourcesResponse { pod_resources: (0..source.below(6)).map(|_| pod(source)).collect() }
}

fn allocatable(source: &mut Source<'_>) -> v1::AllocatableResourcesResponse {
    let devices = (0..source.below(6)).map(|_| devices(source)).collect();
    v1::AllocatableResourcesResponse { devices, cpu_ids: some(source, number), memory: some(source, memory) }
}
