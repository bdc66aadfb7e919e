//! What of the podresources API the snapshot has to know: which fields are messages, which repeat. It bounds how deep a reply is
//! walked. `v1alpha1` is a part of `v1` with the same numbers, so one schema serves both.

use xxhash_rust::const_xxh3::xxh3_64;

/// A message of the API.
#[derive(Debug)]
pub(super) struct Message {
    /// Its name in the API.
    pub(super) name: &'static str,
    id: u8,
    /// By field number, from 1, without gaps.
    fields: &'static [Known],
}

/// A field of the API.
#[derive(Debug)]
pub(super) struct Known {
    /// Its name in the API.
    pub(super) name: &'static str,
    /// What it holds.
    pub(super) kind: Kind,
    /// Stands for this field of this message in the digest.
    pub(super) key: u64,
}

/// What a field holds.
#[derive(Debug)]
pub(super) enum Kind {
    /// One string.
    Text,
    /// Many strings.
    Texts,
    /// One number.
    Number,
    /// Many numbers, packed or not.
    Numbers,
    /// Messages; where the API has but one, several are merged, as protobuf says.
    Message(&'static Message),
    /// Reserved: whatever stands there is handled like a field that nobody declared.
    Reserved,
}

const LIST_ID: u8 = 1;
const POD_ID: u8 = 2;
const CONTAINER_ID: u8 = 3;
const DEVICES_ID: u8 = 4;
const MEMORY_ID: u8 = 5;
const TOPOLOGY_ID: u8 = 6;
const NUMA_NODE_ID: u8 = 7;
const CLAIM_ID: u8 = 8;
const CLAIM_RESOURCE_ID: u8 = 9;
const CDI_DEVICE_ID: u8 = 10;
const ALLOCATABLE_ID: u8 = 11;

/// `ListPodResourcesResponse`, and `GetPodResourcesResponse`, which has its pod under the same tag.
pub(super) static LIST: Message = Message {
    name: "ListPodResourcesResponse",
    id: LIST_ID,
    fields: &[Known::new(LIST_ID, 1, "pod_resources", Kind::Message(&POD))],
};

/// `PodResources`
pub(super) static POD: Message = Message {
    name: "PodResources",
    id: POD_ID,
    fields: &[
        Known::new(POD_ID, 1, "name", Kind::Text),
        Known::new(POD_ID, 2, "namespace", Kind::Text),
        Known::new(POD_ID, 3, "containers", Kind::Message(&CONTAINER)),
        Known::new(POD_ID, 4, "cpu_ids", Kind::Numbers),
        Known::new(POD_ID, 5, "memory", Kind::Message(&MEMORY)),
    ],
};

static CONTAINER: Message = Message {
    name: "ContainerResources",
    id: CONTAINER_ID,
    fields: &[
        Known::new(CONTAINER_ID, 1, "name", Kind::Text),
        Known::new(CONTAINER_ID, 2, "devices", Kind::Message(&DEVICES)),
        Known::new(CONTAINER_ID, 3, "cpu_ids", Kind::Numbers),
        Known::new(CONTAINER_ID, 4, "memory", Kind::Message(&MEMORY)),
        Known::new(CONTAINER_ID, 5, "dynamic_resources", Kind::Message(&CLAIM)),
    ],
};

static DEVICES: Message = Message {
    name: "ContainerDevices",
    id: DEVICES_ID,
    fields: &[
        Known::new(DEVICES_ID, 1, "resource_name", Kind::Text),
        Known::new(DEVICES_ID, 2, "device_ids", Kind::Texts),
        Known::new(DEVICES_ID, 3, "topology", Kind::Message(&TOPOLOGY)),
    ],
};

static MEMORY: Message = Message {
    name: "ContainerMemory",
    id: MEMORY_ID,
    fields: &[
        Known::new(MEMORY_ID, 1, "memory_type", Kind::Text),
        Known::new(MEMORY_ID, 2, "size", Kind::Number),
        Known::new(MEMORY_ID, 3, "topology", Kind::Message(&TOPOLOGY)),
    ],
};

static TOPOLOGY: Message =
    Message { name: "TopologyInfo", id: TOPOLOGY_ID, fields: &[Known::new(TOPOLOGY_ID, 1, "nodes", Kind::Message(&NUMA_NODE))] };

static NUMA_NODE: Message =
    Message { name: "NUMANode", id: NUMA_NODE_ID, fields: &[Known::new(NUMA_NODE_ID, 1, "ID", Kind::Number)] };

static CLAIM: Message = Message {
    name: "DynamicResource",
    id: CLAIM_ID,
    fields: &[
        // class_name until Kubernetes 1.30.
        Known::new(CLAIM_ID, 1, "class_name", Kind::Reserved),
        Known::new(CLAIM_ID, 2, "claim_name", Kind::Text),
        Known::new(CLAIM_ID, 3, "claim_namespace", Kind::Text),
        Known::new(CLAIM_ID, 4, "claim_resources", Kind::Message(&CLAIM_RESOURCE)),
    ],
};

static CLAIM_RESOURCE: Message = Message {
    name: "ClaimResource",
    id: CLAIM_RESOURCE_ID,
    fields: &[
        Known::new(CLAIM_RESOURCE_ID, 1, "cdi_devices", Kind::Message(&CDI_DEVICE)),
        Known::new(CLAIM_RESOURCE_ID, 2, "driver_name", Kind::Text),
        Known::new(CLAIM_RESOURCE_ID, 3, "pool_name", Kind::Text),
        Known::new(CLAIM_RESOURCE_ID, 4, "device_name", Kind::Text),
        Known::new(CLAIM_RESOURCE_ID, 5, "share_id", Kind::Text),
    ],
};

static CDI_DEVICE: Message =
    Message { name: "CDIDevice", id: CDI_DEVICE_ID, fields: &[Known::new(CDI_DEVICE_ID, 1, "name", Kind::Text)] };

/// `AllocatableResourcesResponse`
pub(super) static ALLOCATABLE: Message = Message {
    name: "AllocatableResourcesResponse",
    id: ALLOCATABLE_ID,
    fields: &[
        Known::new(ALLOCATABLE_ID, 1, "devices", Kind::Message(&DEVICES)),
        Known::new(ALLOCATABLE_ID, 2, "cpu_ids", Kind::Numbers),
        Known::new(ALLOCATABLE_ID, 3, "memory", Kind::Message(&MEMORY)),
    ],
};

/// Wire type in keys of known fields: those have one meaning whatever their encoding (`cpu_ids` packed or not).
const ANY_WIRE_TYPE: u8 = u8::MAX;

const fn key(message: u8, number: u32, wire_type: u8) -> u64 {
    let [a, b, c, d] = number.to_le_bytes();
    xxh3_64(&[message, wire_type, a, b, c, d])
}

// === impl Message ===

impl Message {
    /// The field of this number, where the API declares one.
    #[inline]
    pub(super) fn field(&self, number: u32) -> Option<&'static Known> {
        let known = self.fields.get(number.checked_sub(1)? as usize)?;
        (!matches!(known.kind, Kind::Reserved)).then_some(known)
    }

    /// Stands for an undeclared field of this message in the digest.
    pub(super) fn unknown_key(&self, number: u32, wire_type: u8) -> u64 {
        key(self.id, number, wire_type)
    }

    /// Stands for this message as a whole in the digest.
    pub(super) fn root_key(&self) -> u64 {
        key(self.id, 0, ANY_WIRE_TYPE)
    }
}

// === impl Known ===

impl Known {
    const fn new(message: u8, number: u32, name: &'static str, kind: Kind) -> Self {
        Self { name, kind, key: key(message, number, ANY_WIRE_TYPE) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_field_of_every_message_has_a_key_of_its_own() {
        let messages =
            [&LIST, &POD, &CONTAINER, &DEVICES, &MEMORY, &TOPOLOGY, &NUMA_NODE, &CLAIM, &CLAIM_RESOURCE, &CDI_DEVICE, &ALLOCATABLE];
        let mut keys = HashSet::new();
        for message in messages {
            assert!(keys.insert(message.root_key()), "{}", message.name);
            for (number, known) in (1..).zip(message.fields) {
                assert!(keys.insert(known.key), "{}.{}", message.name, known.name);
                for wire_type in [0, 1, 2, 5] {
                    assert!(keys.insert(message.unknown_key(number, wire_type)), "{}.{}", message.name, known.name);
                }
            }
        }
    }
}
