//! What must hold for every reply, well-formed or not.

use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message as _;

use super::super::{Allocatable, Lookup, PodList, merge, merge_allocatable};
use super::generate::{Layout, Rng, allocatable, list, shuffle_allocatable, shuffle_list};
use crate::proto::v1;

/// One real change somewhere in the reply, or `None` where there is nothing to change.
fn edit(reply: &v1::ListPodResourcesResponse, rng: &mut Rng) -> Option<v1::ListPodResourcesResponse> {
    let mut edited = reply.clone();
    let pods = edited.pod_resources.len();
    if pods == 0 {
        edited.pod_resources.push(v1::PodResources::default());
        return Some(edited);
    }
    let place = rng.below(pods);
    let pod = &mut edited.pod_resources[place];
    let choice = rng.below(16);
    match choice {
        0 => pod.name.push('x'),
        1 => pod.namespace.push('x'),
        2 => pod.cpu_ids.push(5),
        3 => pod.containers.push(v1::ContainerResources::default()),
        4 => pod.memory.push(v1::ContainerMemory::default()),
        5 => edited.pod_resources.push(reply.pod_resources[place].clone()),
        6 => drop(edited.pod_resources.remove(place)),
        _ => {
            let container = pod.containers.first_mut()?;
            match choice {
                7 => container.name.push('x'),
                8 => container.cpu_ids.push(5),
                9 => container.memory.first_mut()?.size ^= 1 << rng.below(64),
                10 => {
                    let devices = container.devices.first_mut()?;
                    devices.topology = match devices.topology.take() {
                        None => Some(v1::TopologyInfo::default()),
                        Some(topology) if topology.nodes.is_empty() => None,
                        Some(mut topology) => {
                            topology.nodes[0].id += 1;
                            Some(topology)
                        }
                    };
                }
                11 => container.devices.first_mut()?.device_ids.push("0".into()),
                12 => container.dynamic_resources.first_mut()?.claim_name.push('x'),
                13 => container.dynamic_resources.first_mut()?.claim_resources.first_mut()?.pool_name.push('x'),
                14 => {
                    let share = &mut container.dynamic_resources.first_mut()?.claim_resources.first_mut()?.share_id;
                    *share = if share.is_some() { None } else { Some(String::new()) };
                }
                _ => drop(container.devices.pop()?),
            }
        }
    }
    Some(edited)
}

proptest! {
    #[test]
    fn what_goes_out_is_what_came_in(reply in list(), seed: u64, unknown: bool, loose: bool) {
        let message = Layout { rng: &mut Rng(seed), unknown, loose }.list(&reply);
        let list = PodList::build(&message).unwrap();
        prop_assert_eq!(list.message(), &message[..]);
        prop_assert_eq!(&list.framed()[1..5], &u32::try_from(message.len()).unwrap().to_be_bytes());
        prop_assert_eq!(list.framed()[0], 0);
        // The bytes are a reply that prost reads as the one that was laid out, numbers and all.
        let mut read = v1::ListPodResourcesResponse::decode(&message[..]).unwrap();
        let mut expected = reply;
        sort_list(&mut read);
        sort_list(&mut expected);
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn get_is_the_message_that_carries_the_pods_record_alone(reply in list(), seed: u64) {
        let rng = &mut Rng(seed);
        let records: Vec<_> = reply.pod_resources.iter().map(|pod| Layout { rng: &mut *rng, unknown: true, loose: true }.pod(pod)).collect();
        let list = PodList::build(&records.concat()).unwrap();
        prop_assert_eq!(list.len(), records.len());
        for (pod, record) in reply.pod_resources.iter().zip(&records) {
            let namesakes = reply.pod_resources.iter().filter(|other| (&other.name, &other.namespace) == (&pod.name, &pod.namespace));
            let found = list.get(&pod.namespace, &pod.name);
            if namesakes.count() > 1 {
                prop_assert_eq!(found, Lookup::Ambiguous);
                continue;
            }
            let Lookup::Found(framed) = found else { return Err(TestCaseError::fail("not found")) };
            prop_assert_eq!(&framed[5..], &record[..]);
            prop_assert_eq!(&framed[1..5], &u32::try_from(record.len()).unwrap().to_be_bytes());
            let answer = v1::GetPodResourcesResponse::decode(&framed[5..]).unwrap().pod_resources.unwrap();
            prop_assert_eq!((&answer.namespace, &answer.name), (&pod.namespace, &pod.name));
            prop_assert_eq!(answer.containers.len(), pod.containers.len());
        }
        prop_assert!(list.pods().map(|pod| pod.record).eq(records.iter().map(|record| &record[..])));
        prop_assert_eq!(list.get("nowhere", "nobody"), Lookup::Absent);
    }

    #[test]
    fn no_order_changes_the_digest(mut reply in list(), seed: u64) {
        let rng = &mut Rng(seed);
        let digest = PodList::build(&reply.encode_to_vec()).unwrap().digest();
        shuffle_list(&mut reply, rng);
        prop_assert_eq!(PodList::build(&reply.encode_to_vec()).unwrap().digest(), digest);
        let loose = Layout { rng, unknown: false, loose: true }.list(&reply);
        prop_assert_eq!(PodList::build(&loose).unwrap().digest(), digest);
    }

    #[test]
    fn every_real_edit_changes_the_digest(reply in list(), seed: u64) {
        let Some(edited) = edit(&reply, &mut Rng(seed)) else { return Ok(()) };
        let digest = |reply: &v1::ListPodResourcesResponse| PodList::build(&reply.encode_to_vec()).unwrap().digest();
        prop_assert_ne!(digest(&reply), digest(&edited));
    }

    #[test]
    fn a_field_that_no_version_has_yet_changes_the_digest(reply in list(), seed: u64) {
        let plain = Layout { rng: &mut Rng(seed), unknown: false, loose: false }.list(&reply);
        let more = Layout { rng: &mut Rng(seed), unknown: true, loose: false }.list(&reply);
        let digest = |message: &[u8]| PodList::build(message).unwrap().digest();
        prop_assert_eq!(digest(&plain) == digest(&more), plain == more);
    }

    #[test]
    fn allocatable_goes_out_as_it_came_with_a_digest_of_its_content(mut reply in allocatable(), seed: u64) {
        let message = reply.encode_to_vec();
        let built = Allocatable::build(&message).unwrap();
        prop_assert_eq!(built.message(), &message[..]);
        prop_assert_eq!(&built.framed()[5..], &message[..]);
        shuffle_allocatable(&mut reply, &mut Rng(seed));
        prop_assert_eq!(Allocatable::build(&reply.encode_to_vec()).unwrap().digest(), built.digest());
        reply.cpu_ids.push(1);
        prop_assert_ne!(Allocatable::build(&reply.encode_to_vec()).unwrap().digest(), built.digest());
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in vec(any::<u8>(), 0..200), at: usize, with: u8, reply in list()) {
        let mut message = reply.encode_to_vec();
        if !message.is_empty() {
            let at = at % message.len();
            message[at] = with;
        }
        for bytes in [&bytes, &message] {
            if let Ok(list) = PodList::build(bytes) {
                prop_assert_eq!(list.message(), &bytes[..]);
                for pod in list.pods() {
                    prop_assert_ne!(list.get(pod.namespace, pod.name), Lookup::Absent);
                }
                let old = PodList::build(&reply.encode_to_vec()).unwrap();
                merge(&old, list, |_| true).unwrap();
                merge(&PodList::build(bytes).unwrap(), old, |_| true).unwrap();
            }
            if let Ok(allocatable) = Allocatable::build(bytes) {
                let again = Allocatable::build(bytes).unwrap();
                prop_assert_eq!(merge_allocatable(&allocatable, again, |_| true).unwrap().kept, 0);
            }
        }
    }
}

/// One order for all that repeats, by the items' own bytes.
fn sort_list(reply: &mut v1::ListPodResourcesResponse) {
    fn sort<T: prost::Message>(items: &mut [T]) {
        items.sort_by_cached_key(prost::Message::encode_to_vec);
    }
    fn sort_topology(topology: Option<&mut v1::TopologyInfo>) {
        if let Some(topology) = topology {
            sort(&mut topology.nodes);
        }
    }
    fn sort_memory(memory: &mut [v1::ContainerMemory]) {
        for memory in memory.iter_mut() {
            sort_topology(memory.topology.as_mut());
        }
        sort(memory);
    }
    for pod in &mut reply.pod_resources {
        for container in &mut pod.containers {
            for devices in &mut container.devices {
                devices.device_ids.sort();
                sort_topology(devices.topology.as_mut());
            }
            for claim in &mut container.dynamic_resources {
                claim.claim_resources.iter_mut().for_each(|resource| sort(&mut resource.cdi_devices));
                sort(&mut claim.claim_resources);
            }
            container.cpu_ids.sort_unstable();
            sort_memory(&mut container.memory);
            sort(&mut container.devices);
            sort(&mut container.dynamic_resources);
        }
        pod.cpu_ids.sort_unstable();
        sort_memory(&mut pod.memory);
        sort(&mut pod.containers);
    }
    sort(&mut reply.pod_resources);
}
