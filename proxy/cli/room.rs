//! What a node can give, what is taken of it and what is free, by NUMA node: List and GetAllocatableResources put together.
//!
//! A pod's own set and its containers' overlap: sets are united, amounts are the larger of the two, nothing is counted twice.

use std::collections::{BTreeMap, BTreeSet};

use super::cpus::{Cpus, NodesOfCpus, fitting, format_list};
use super::quantity;
use super::table::{NOTHING, list, render, shown};
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

/// Puts the two replies together. `nodes_of_cpus`: from sysfs; it counts only where it can be that of the replies' node.
pub(super) fn room(node: &v1::AllocatableResourcesResponse, pods: &[v1::PodResources], nodes_of_cpus: &NodesOfCpus) -> Vec<Room> {
    let mut rooms = memory_room(node, pods);
    rooms.extend(device_room(node, pods));
    let nodes: Nodes = rooms.iter().flat_map(|room| &room.nodes).copied().collect();
    rooms.extend(cpus(node, pods, &nodes, nodes_of_cpus));
    rooms.sort_by_key(|room| (room.nodes.is_empty(), room.nodes.clone(), room.amounts.order(), room.resource.clone()));
    rooms
}

/// The table of it.
pub(super) fn table(rooms: &[Room]) -> String {
    render(
        vec!["NUMA", "RESOURCE", "ALLOCATABLE", "TAKEN", "FREE"],
        rooms.iter().map(|room| {
            let [allocatable, taken, free] = room.amounts.cells();
            vec![list(&room.nodes), shown(&room.resource), allocatable, taken, free]
        }),
    )
}

fn cpus(
    node: &v1::AllocatableResourcesResponse,
    pods: &[v1::PodResources],
    nodes: &Nodes,
    nodes_of_cpus: &NodesOfCpus,
) -> Vec<Room> {
    let allocatable: Cpus = node.cpu_ids.iter().copied().collect();
    let of_containers = pods.iter().flat_map(|pod| &pod.containers).flat_map(|container| &container.cpu_ids);
    let taken: Cpus = pods.iter().flat_map(|pod| &pod.cpu_ids).chain(of_containers).copied().collect();
    let nodes_of_cpus = fitting(nodes_of_cpus, allocatable.iter().chain(&taken), nodes.iter());
    let nodes_of = |cpu: &i64| nodes_of_cpus.get(cpu).copied().into_iter().collect::<Nodes>();
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
    fn cells(&self) -> [String; 3] {
        match self {
            Self::Cpus { allocatable, taken } => {
                let free: Cpus = allocatable.difference(taken).copied().collect();
                [allocatable, taken, &free].map(counted)
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
                [allocatable.len(), taken.len(), allocatable.difference(taken).count()].map(|count| count.to_string())
            }
        }
    }
}

/// `3 (2-4)`
fn counted(cpus: &Cpus) -> String {
    if cpus.is_empty() { "0".to_owned() } else { format!("{} ({})", cpus.len(), format_list(cpus)) }
}

/// A line for each device: where it is, and who holds it.
pub(super) fn devices_table(node: &v1::AllocatableResourcesResponse, pods: &[v1::PodResources]) -> String {
    let allocatable = devices(&node.devices);
    let mut lines: BTreeMap<(bool, Nodes, &str, &str), Vec<String>> = BTreeMap::new();
    let key = |nodes: &Nodes| (nodes.is_empty(), nodes.clone());
    for (resource, ids) in &allocatable {
        for (id, nodes) in ids {
            let (last, nodes) = key(nodes);
            lines.insert((last, nodes, resource, id), Vec::new());
        }
    }
    let held: Vec<_> = pods
        .iter()
        .flat_map(|pod| pod.containers.iter().map(move |container| (pod, container)))
        .map(|(pod, container)| (format!("{}/{}/{}", pod.namespace, pod.name, container.name), devices(&container.devices)))
        .collect();
    for (holder, devices) in &held {
        for (resource, ids) in devices {
            for (id, nodes) in ids {
                let told = allocatable.get(resource).and_then(|ids| ids.get(id));
                let (last, nodes) = key(told.unwrap_or(nodes));
                let ill = if told.is_some() { "" } else { " (not allocatable)" };
                lines.entry((last, nodes, resource, id)).or_default().push(format!("{}{ill}", shown(holder)));
            }
        }
    }
    let line = |((_, nodes, resource, id), holders): ((bool, Nodes, &str, &str), Vec<String>)| {
        let holders = if holders.is_empty() { NOTHING.to_owned() } else { holders.join(", ") };
        vec![list(&nodes), shown(resource), shown(id), holders]
    };
    render(vec!["NUMA", "RESOURCE", "DEVICE", "HOLDER"], lines.into_iter().map(line))
}
