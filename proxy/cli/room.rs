//! What a node can give, what is taken of it and what is free, by NUMA node: List and GetAllocatableResources put together.
//!
//! A pod's own set and its containers' overlap: sets are united, amounts are the larger of the two, nothing is counted twice.

use std::collections::{BTreeMap, BTreeSet};

use super::cpus::{Cpus, format_list};
use super::quantity;
use super::table::{NOTHING, list, render};
use super::view::{Nodes, devices, memory};
use crate::proto::v1;

/// One line: a resource on a NUMA node, or on a group of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// Empty: no affinity, or none known.
    pub(super) nodes: Nodes,
    pub(super) resource: String,
    pub(super) amounts: Amounts,
}

/// How much there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Amounts {
    Cpus {
        allocatable: Cpus,
        taken: Cpus,
    },
    /// In bytes. `at_most`: part of a group of nodes of which something is taken, nobody knows from which: the most that can be free.
    Memory {
        allocatable: u64,
        taken: u64,
        at_most: Option<u64>,
    },
    Devices {
        allocatable: BTreeSet<String>,
        taken: BTreeSet<String>,
    },
}

/// Bytes by type and nodes.
type Sizes = BTreeMap<(String, Nodes), u64>;

/// Puts the two replies together. `nodes_of_cpus`: from sysfs; it counts only where it knows every CPU of the reply, since a reply that
/// names others is not about this machine.
pub(super) fn room(
    node: &v1::AllocatableResourcesResponse,
    pods: &[v1::PodResources],
    nodes_of_cpus: &BTreeMap<i64, i64>,
) -> Vec<Room> {
    let mut rooms = cpus(node, pods, nodes_of_cpus);
    rooms.extend(memory_room(node, pods));
    rooms.extend(device_room(node, pods));
    rooms.sort_by_key(|room| (room.nodes.is_empty(), room.nodes.clone(), room.amounts.order(), room.resource.clone()));
    rooms
}

/// The table of it.
pub(super) fn table(rooms: &[Room], wide: bool) -> String {
    render(
        vec!["NUMA", "RESOURCE", "ALLOCATABLE", "TAKEN", "FREE"],
        rooms.iter().map(|room| {
            let [allocatable, taken, free] = room.amounts.cells(wide);
            vec![list(&room.nodes), room.resource.clone(), allocatable, taken, free]
        }),
    )
}

fn cpus(node: &v1::AllocatableResourcesResponse, pods: &[v1::PodResources], nodes_of_cpus: &BTreeMap<i64, i64>) -> Vec<Room> {
    let allocatable: Cpus = node.cpu_ids.iter().copied().collect();
    let of_containers = pods.iter().flat_map(|pod| &pod.containers).flat_map(|container| &container.cpu_ids);
    let taken: Cpus = pods.iter().flat_map(|pod| &pod.cpu_ids).chain(of_containers).copied().collect();
    let known = allocatable.iter().chain(&taken).all(|cpu| nodes_of_cpus.contains_key(cpu));
    let nodes_of = |cpu: &i64| nodes_of_cpus.get(cpu).filter(|_| known).copied().into_iter().collect::<Nodes>();
    let mut rooms: BTreeMap<Nodes, (Cpus, Cpus)> = BTreeMap::new();
    for cpu in allocatable {
        rooms.entry(nodes_of(&cpu)).or_default().0.insert(cpu);
    }
    for cpu in taken {
        rooms.entry(nodes_of(&cpu)).or_default().1.insert(cpu);
    }
    let room =
        |(nodes, (allocatable, taken))| Room { nodes, resource: "cpu".into(), amounts: Amounts::Cpus { allocatable, taken } };
    rooms.into_iter().map(room).collect()
}

fn memory_room(node: &v1::AllocatableResourcesResponse, pods: &[v1::PodResources]) -> Vec<Room> {
    let allocatable = memory(&node.memory);
    let mut taken = Sizes::new();
    for pod in pods {
        let blocks: Vec<_> = pod.containers.iter().flat_map(|container| container.memory.iter().cloned()).collect();
        let mut of_pod = memory(&blocks);
        for (key, size) in memory(&pod.memory) {
            let within = of_pod.entry(key).or_default();
            *within = size.max(*within);
        }
        for (key, size) in of_pod {
            let sum = taken.entry(key).or_default();
            *sum = sum.saturating_add(size);
        }
    }
    let keys: BTreeSet<_> = allocatable.keys().chain(taken.keys()).cloned().collect();
    let room = |key: (String, Nodes)| {
        let amount = |sizes: &BTreeMap<_, u64>| sizes.get(&key).copied().unwrap_or(0);
        let at_most = at_most(&key, &allocatable, &taken);
        let amounts = Amounts::Memory { allocatable: amount(&allocatable), taken: amount(&taken), at_most };
        Room { resource: key.0, nodes: key.1, amounts }
    };
    keys.into_iter().map(room).collect()
}

/// What all the groups that these nodes are part of leave free: their nodes' memory less all that is taken within the group.
fn at_most((kind, nodes): &(String, Nodes), allocatable: &Sizes, taken: &Sizes) -> Option<u64> {
    let groups = taken.keys().filter(|(k, group)| k == kind && group.len() > nodes.len() && group.is_superset(nodes));
    let within = |sizes: &Sizes, group: &Nodes| {
        let inside = sizes.iter().filter(|((k, nodes), _)| k == kind && !nodes.is_empty() && nodes.is_subset(group));
        inside.fold(0_u64, |sum, (_, size)| sum.saturating_add(*size))
    };
    groups.map(|(_, group)| within(allocatable, group).saturating_sub(within(taken, group))).min()
}

fn device_room(node: &v1::AllocatableResourcesResponse, pods: &[v1::PodResources]) -> Vec<Room> {
    type Ids = BTreeSet<String>;
    let allocatable = devices(&node.devices);
    let held: Vec<_> =
        pods.iter().flat_map(|pod| &pod.containers).flat_map(|container| container.devices.iter().cloned()).collect();
    let mut rooms: BTreeMap<(Nodes, String), (Ids, Ids)> = BTreeMap::new();
    for (resource, ids) in &allocatable {
        for (id, nodes) in ids {
            rooms.entry((nodes.clone(), resource.clone())).or_default().0.insert(id.clone());
        }
    }
    for (resource, ids) in devices(&held) {
        for (id, nodes) in ids {
            // Where the node's own list has the device, that says where it is.
            let nodes = allocatable.get(&resource).and_then(|ids| ids.get(&id)).cloned().unwrap_or(nodes);
            rooms.entry((nodes, resource.clone())).or_default().1.insert(id);
        }
    }
    let room =
        |((nodes, resource), (allocatable, taken))| Room { nodes, resource, amounts: Amounts::Devices { allocatable, taken } };
    rooms.into_iter().map(room).collect()
}

// === impl Amounts ===

impl Amounts {
    /// CPUs, then memory, then devices.
    fn order(&self) -> u8 {
        match self {
            Self::Cpus { .. } => 0,
            Self::Memory { .. } => 1,
            Self::Devices { .. } => 2,
        }
    }

    /// Allocatable, taken, free.
    fn cells(&self, wide: bool) -> [String; 3] {
        match self {
            Self::Cpus { allocatable, taken } => {
                let free: Cpus = allocatable.difference(taken).copied().collect();
                [allocatable, taken, &free].map(|cpus| counted(cpus.len(), &format_list(cpus), true))
            }
            // A group's memory is its nodes'; they have lines of their own.
            Self::Memory { allocatable: 0, taken, .. } => [NOTHING.to_owned(), quantity::memory(*taken), NOTHING.to_owned()],
            Self::Memory { allocatable, taken, at_most } => {
                let own = allocatable.saturating_sub(*taken);
                let free = match at_most {
                    Some(most) => format!("at most {}", quantity::memory(own.min(*most))),
                    None => quantity::memory(own),
                };
                [quantity::memory(*allocatable), quantity::memory(*taken), free]
            }
            Self::Devices { allocatable, taken } => {
                let free: BTreeSet<String> = allocatable.difference(taken).cloned().collect();
                [allocatable, taken, &free].map(|ids| {
                    let names: Vec<_> = ids.iter().map(String::as_str).collect();
                    counted(ids.len(), &names.join(","), wide)
                })
            }
        }
    }
}

/// `3 (2-4)`
fn counted(count: usize, which: &str, show: bool) -> String {
    match count {
        0 => "0".to_owned(),
        count if show => format!("{count} ({which})"),
        count => count.to_string(),
    }
}
