//! Replies to test with: generated, shuffled, with fields that no version has yet.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};

use crate::proto::v1;

/// A small generator of numbers (splitmix64), for choices that need no shrinking.
pub(super) struct Rng(pub(super) u64);

// === impl Rng ===

impl Rng {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-z]{1,3}", "[a-z0-9.-]{8,60}", "[é中🦀]{1,4}"]
}

fn cpus() -> impl Strategy<Value = Vec<i64>> {
    vec(prop_oneof![0i64..6, Just(300), Just(-1), Just(i64::MAX)], 0..4)
}

fn topology() -> impl Strategy<Value = Option<v1::TopologyInfo>> {
    let node = (0i64..3).prop_map(|id| v1::NumaNode { id });
    option::of(vec(node, 0..3).prop_map(|nodes| v1::TopologyInfo { nodes }))
}

fn memory() -> impl Strategy<Value = Vec<v1::ContainerMemory>> {
    let one = (text(), any::<u64>(), topology()).prop_map(|(memory_type, size, topology)| v1::ContainerMemory {
        memory_type,
        size,
        topology,
    });
    vec(one, 0..3)
}

pub(super) fn devices() -> impl Strategy<Value = Vec<v1::ContainerDevices>> {
    let one = ("[ab]", vec("[0-9]", 0..4), topology()).prop_map(|(resource_name, device_ids, topology)| v1::ContainerDevices {
        resource_name,
        device_ids,
        topology,
    });
    vec(one, 0..3)
}

fn claims() -> impl Strategy<Value = Vec<v1::DynamicResource>> {
    let cdi = text().prop_map(|name| v1::CdiDevice { name });
    let resource = (vec(cdi, 0..3), text(), text(), text(), option::of(text())).prop_map(
        |(cdi_devices, driver_name, pool_name, device_name, share_id)| v1::ClaimResource {
            cdi_devices,
            driver_name,
            pool_name,
            device_name,
            share_id,
        },
    );
    let one = (text(), text(), vec(resource, 0..3)).prop_map(|(claim_name, claim_namespace, claim_resources)| {
        v1::DynamicResource { claim_name, claim_namespace, claim_resources }
    });
    vec(one, 0..2)
}

fn container() -> impl Strategy<Value = v1::ContainerResources> {
    (text(), devices(), cpus(), memory(), claims()).prop_map(|(name, devices, cpu_ids, memory, dynamic_resources)| {
        v1::ContainerResources { name, devices, cpu_ids, memory, dynamic_resources }
    })
}

/// A reply of a few pods, some of them with one name.
pub(super) fn list() -> impl Strategy<Value = v1::ListPodResourcesResponse> {
    let pod = (prop_oneof!["[a-c]", text()], "[xy]?", vec(container(), 0..3), cpus(), memory()).prop_map(
        |(name, namespace, containers, cpu_ids, memory)| v1::PodResources { name, namespace, containers, cpu_ids, memory },
    );
    vec(pod, 0..7).prop_map(|pod_resources| v1::ListPodResourcesResponse { pod_resources })
}

pub(super) fn allocatable() -> impl Strategy<Value = v1::AllocatableResourcesResponse> {
    (devices(), cpus(), memory()).prop_map(|(devices, cpu_ids, memory)| v1::AllocatableResourcesResponse {
        devices,
        cpu_ids,
        memory,
    })
}

fn shuffle_topology(topology: Option<&mut v1::TopologyInfo>, rng: &mut Rng) {
    if let Some(topology) = topology {
        rng.shuffle(&mut topology.nodes);
    }
}

fn shuffle_memory(memory: &mut [v1::ContainerMemory], rng: &mut Rng) {
    rng.shuffle(memory);
    for memory in memory {
        shuffle_topology(memory.topology.as_mut(), rng);
    }
}

fn shuffle_devices(devices: &mut [v1::ContainerDevices], rng: &mut Rng) {
    rng.shuffle(devices);
    for devices in devices {
        rng.shuffle(&mut devices.device_ids);
        shuffle_topology(devices.topology.as_mut(), rng);
    }
}

/// Another order of everything that repeats.
pub(super) fn shuffle_list(reply: &mut v1::ListPodResourcesResponse, rng: &mut Rng) {
    rng.shuffle(&mut reply.pod_resources);
    for pod in &mut reply.pod_resources {
        rng.shuffle(&mut pod.cpu_ids);
        shuffle_memory(&mut pod.memory, rng);
        rng.shuffle(&mut pod.containers);
        for container in &mut pod.containers {
            rng.shuffle(&mut container.cpu_ids);
            shuffle_memory(&mut container.memory, rng);
            shuffle_devices(&mut container.devices, rng);
            rng.shuffle(&mut container.dynamic_resources);
            for claim in &mut container.dynamic_resources {
                rng.shuffle(&mut claim.claim_resources);
                claim.claim_resources.iter_mut().for_each(|resource| rng.shuffle(&mut resource.cdi_devices));
            }
        }
    }
}

pub(super) fn shuffle_allocatable(reply: &mut v1::AllocatableResourcesResponse, rng: &mut Rng) {
    rng.shuffle(&mut reply.cpu_ids);
    shuffle_memory(&mut reply.memory, rng);
    shuffle_devices(&mut reply.devices, rng);
}

/// How a message is laid out on the wire, beyond what prost does by itself.
pub(super) struct Layout<'a> {
    pub(super) rng: &'a mut Rng,
    /// Fields that no version has yet are strewn in.
    pub(super) unknown: bool,
    /// Records of a message come in any order, and numbers unpacked.
    pub(super) loose: bool,
}

/// The wire form of a message as a list of its records, so that they can be rearranged.
type Records = Vec<Vec<u8>>;

// === impl Layout ===

impl Layout<'_> {
    pub(super) fn list(&mut self, reply: &v1::ListPodResourcesResponse) -> Vec<u8> {
        let records = reply.pod_resources.iter().map(|pod| self.pod(pod)).collect();
        self.join(records)
    }

    /// A pod under the tag it has in List and Get.
    pub(super) fn pod(&mut self, pod: &v1::PodResources) -> Vec<u8> {
        let mut records = vec![text_record(1, &pod.name), text_record(2, &pod.namespace)];
        for container in &pod.containers {
            records.push(self.container(container));
        }
        records.extend(self.numbers(4, &pod.cpu_ids));
        for memory in &pod.memory {
            records.push(self.memory(5, memory));
        }
        self.message(1, records)
    }

    fn container(&mut self, container: &v1::ContainerResources) -> Vec<u8> {
        let mut records = vec![text_record(1, &container.name)];
        for devices in &container.devices {
            records.push(self.devices(2, devices));
        }
        records.extend(self.numbers(3, &container.cpu_ids));
        for memory in &container.memory {
            records.push(self.memory(4, memory));
        }
        for claim in &container.dynamic_resources {
            let mut parts = vec![text_record(2, &claim.claim_name), text_record(3, &claim.claim_namespace)];
            for resource in &claim.claim_resources {
                let mut inner = vec![
                    text_record(2, &resource.driver_name),
                    text_record(3, &resource.pool_name),
                    text_record(4, &resource.device_name),
                ];
                inner.extend(resource.share_id.as_ref().map(|share| record(5, share.as_bytes())));
                for cdi in &resource.cdi_devices {
                    inner.push(self.message(1, vec![text_record(1, &cdi.name)]));
                }
                parts.push(self.message(4, inner));
            }
            records.push(self.message(5, parts));
        }
        self.message(3, records)
    }

    pub(super) fn devices(&mut self, number: u32, devices: &v1::ContainerDevices) -> Vec<u8> {
        let mut records = vec![text_record(1, &devices.resource_name)];
        records.extend(devices.device_ids.iter().map(|id| record(2, id.as_bytes())));
        records.extend(devices.topology.as_ref().map(|topology| self.topology(topology)));
        self.message(number, records)
    }

    fn memory(&mut self, number: u32, memory: &v1::ContainerMemory) -> Vec<u8> {
        // prost leaves the default values away; the digest must be the same as that of prost's own bytes.
        let rest = v1::ContainerMemory { topology: None, memory_type: String::new(), ..memory.clone() };
        let mut records = vec![text_record(1, &memory.memory_type), rest.encode_to_vec()];
        records.extend(memory.topology.as_ref().map(|topology| self.topology(topology)));
        self.message(number, records)
    }

    fn topology(&mut self, topology: &v1::TopologyInfo) -> Vec<u8> {
        let nodes = topology.nodes.iter().map(|node| self.message(1, vec![node.encode_to_vec()])).collect();
        self.message(3, nodes)
    }

    fn numbers(&mut self, number: u32, values: &[i64]) -> Records {
        let as_varint = |value: &i64, buffer: &mut Vec<u8>| encode_varint(value.cast_unsigned(), buffer);
        if self.loose && self.rng.below(2) == 0 {
            let unpacked = |value| {
                let mut bytes = Vec::new();
                encode_key(number, WireType::Varint, &mut bytes);
                as_varint(value, &mut bytes);
                bytes
            };
            return values.iter().map(unpacked).collect();
        }
        let mut packed = Vec::new();
        for value in values {
            as_varint(value, &mut packed);
        }
        if packed.is_empty() { Vec::new() } else { vec![record(number, &packed)] }
    }

    fn message(&mut self, number: u32, records: Records) -> Vec<u8> {
        record(number, &self.join(records))
    }

    fn join(&mut self, mut records: Records) -> Vec<u8> {
        if self.unknown {
            for _ in 0..self.rng.below(3) {
                let at = self.rng.below(records.len() + 1);
                records.insert(at, self.unknown_record());
            }
        }
        if self.loose {
            self.rng.shuffle(&mut records);
        }
        records.concat()
    }

    fn unknown_record(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let number = 6 + u32::try_from(self.rng.below(2_000)).unwrap();
        match self.rng.below(4) {
            0 => {
                encode_key(number, WireType::Varint, &mut bytes);
                encode_varint(self.rng.next(), &mut bytes);
            }
            1 => {
                encode_key(number, WireType::SixtyFourBit, &mut bytes);
                bytes.extend(self.rng.next().to_le_bytes());
            }
            2 => {
                encode_key(number, WireType::ThirtyTwoBit, &mut bytes);
                bytes.extend(&self.rng.next().to_le_bytes()[..4]);
            }
            _ => {
                // No protobuf and no UTF-8 within: nobody but its reader may look into it.
                let body: Vec<u8> = (0..self.rng.below(300)).map(|_| self.rng.next().to_le_bytes()[0]).collect();
                bytes = record(number, &body);
            }
        }
        bytes
    }
}

/// A record of wire type 2.
pub(super) fn record(number: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_key(number, WireType::LengthDelimited, &mut bytes);
    encode_varint(body.len() as u64, &mut bytes);
    bytes.extend(body);
    bytes
}

/// As prost does it: nothing for the empty string.
fn text_record(number: u32, text: &str) -> Vec<u8> {
    if text.is_empty() { Vec::new() } else { record(number, text.as_bytes()) }
}
