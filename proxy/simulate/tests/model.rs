//! The model alone, under any order of events.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use crate::simulate::{Node, NodeSpec, Phase, PodKey};

#[derive(Clone, Debug)]
enum Event {
    Admit,
    Allocate(prop::sample::Index),
    Prepare(prop::sample::Index),
    Terminate(prop::sample::Index),
    Remove(prop::sample::Index),
    Release,
    Health(prop::sample::Index, bool),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let some = any::<prop::sample::Index>;
    let event = prop_oneof![
        3 => Just(Event::Admit),
        4 => some().prop_map(Event::Allocate),
        3 => some().prop_map(Event::Prepare),
        1 => some().prop_map(Event::Terminate),
        3 => some().prop_map(Event::Remove),
        2 => Just(Event::Release),
        1 => (some(), any::<bool>()).prop_map(|(device, healthy)| Event::Health(device, healthy)),
    ];
    prop::collection::vec(event, 1..150)
}

/// A small node, so that things run short.
fn spec(seed: u64) -> NodeSpec {
    NodeSpec { pods: 12, terminated: 2, devices: 16, claims: 6, numa_nodes: 2, pod_level: true, seed }
}

/// Everything that is held, each with its one owner; panics where there are two.
fn holders(node: &Node) -> HashMap<String, PodKey> {
    let mut holders = HashMap::new();
    for pod in node.holders() {
        let mut hold = |what: String| {
            let before = holders.insert(what.clone(), pod.key.clone());
            assert!(before.is_none(), "{what} is held by {} and by {}", pod.key, before.unwrap());
        };
        let cpus = pod.containers.iter().flat_map(|container| &container.cpus).chain(&pod.cpus);
        for cpu in cpus {
            hold(format!("CPU {cpu}"));
        }
        for container in &pod.containers {
            for device in &container.devices {
                hold(format!("device {device}"));
            }
            for claim in &container.claims {
                hold(format!("claimed device {}", claim.device));
            }
        }
    }
    holders
}

/// Held and free CPUs and memory together are the node's.
fn check_sums(node: &Node, whole: &Node) {
    let held: HashSet<_> =
        node.holders().flat_map(|pod| pod.containers.iter().flat_map(|c| &c.cpus).chain(&pod.cpus)).copied().collect();
    let free: HashSet<_> = node.shared_pool().into_iter().collect();
    assert!(held.is_disjoint(&free), "an exclusive CPU is in the shared pool");
    assert_eq!(held.union(&free).copied().collect::<HashSet<_>>(), whole.shared_pool().into_iter().collect());
    for numa_node in 0..2 {
        let blocks = node.holders().flat_map(|pod| pod.containers.iter().flat_map(|c| &c.memory).chain(&pod.memory));
        let here = blocks.filter(|block| block.memory_type == "memory" && block.numa_node == numa_node);
        let held: u64 = here.map(|block| block.size).sum();
        assert_eq!(held + node.free_memory(numa_node), whole.free_memory(numa_node));
    }
}

proptest! {
    #[test]
    fn nothing_ever_has_two_owners_and_nothing_is_lost(seed: u64, events in events()) {
        let (mut node, whole) = (Node::new(&spec(seed)), Node::empty(&spec(seed)));
        let mut leaving = Vec::new();
        for event in events {
            let pick = |at: prop::sample::Index| {
                let keys: Vec<_> = node.pods().map(|pod| pod.key.clone()).collect();
                if keys.is_empty() { PodKey::new("no", "pod") } else { keys[at.index(keys.len())].clone() }
            };
            // Steps out of order are refused, and refusals change nothing: that is checked below with all else.
            match event {
                Event::Admit => drop(node.admit_next()),
                Event::Allocate(at) => drop(node.allocate(&pick(at))),
                Event::Prepare(at) => drop(node.prepare(&pick(at))),
                Event::Terminate(at) => drop(node.terminate(&pick(at))),
                Event::Remove(at) => leaving.extend(node.remove(&pick(at))),
                Event::Release => if let Some(uid) = leaving.pop() { node.release(&uid) },
                Event::Health(at, healthy) => {
                    let id = node.devices().nth(at.index(16)).unwrap().1.to_owned();
                    node.set_device_health(&id, healthy);
                }
            }
            holders(&node);
            check_sums(&node, &whole);
        }
        let keys: Vec<_> = node.pods().map(|pod| pod.key.clone()).collect();
        leaving.extend(keys.iter().map(|key| node.remove(key).unwrap()));
        for uid in &leaving {
            node.release(uid);
        }
        prop_assert!(holders(&node).is_empty());
        check_sums(&node, &whole);
    }

    #[test]
    fn a_new_node_is_the_same_for_the_same_seed(seed: u64) {
        let pods = |node: &Node| node.pods().cloned().collect::<Vec<_>>();
        let (one, other) = (Node::new(&spec(seed)), Node::new(&spec(seed)));
        prop_assert_eq!(pods(&one), pods(&other));
        prop_assert_eq!(one.pods().filter(|pod| pod.phase == Phase::Prepared).count(), 12);
    }
}
