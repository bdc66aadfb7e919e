//! Messages as the kubelet shapes them.

use std::collections::BTreeMap;

use prost::Message as _;

use super::super::exclusive::{Because, Verdict};
use super::super::view::Container;
use super::super::{NumaNode, Settings, Why};
use super::*;
use crate::kubepods::PodUid;

fn node(settings: Settings) -> Node {
    let numa = |id, hugepages| NumaNode { id, cpus: CpuSet::new(), memory: 1 << 30, hugepages };
    Node {
        online: CpuSet::parse("0-3").unwrap(),
        numa: vec![numa(0, vec![(2048, 0)]), numa(1, vec![(2048, 8), (1 << 20, 0)])],
        settings,
        ..Node::default()
    }
}

fn allocatable_of(settings: Settings) -> v1::AllocatableResourcesResponse {
    v1::AllocatableResourcesResponse::decode(allocatable(&node(settings)).as_slice()).unwrap()
}

fn block(memory_type: &str, size: u64, node: i64) -> v1::ContainerMemory {
    let topology = Some(v1::TopologyInfo { nodes: vec![v1::NumaNode { id: node }] });
    v1::ContainerMemory { memory_type: memory_type.to_owned(), size, topology }
}

#[test]
fn allocatable_is_what_is_neither_reserved_nor_in_huge_pages_and_nothing_is_not_listed() {
    let kept = BTreeMap::from([((0, "memory".to_owned()), 1 << 20), ((1, "hugepages-2Mi".to_owned()), 4 << 20)]);
    let reserved = CpuSet::parse("0").unwrap();
    let settings = Settings { cpus: settings::Cpus::AllBut(reserved), memory: settings::Memory::AllBut(kept), always_shared: None };
    let reply = allocatable_of(settings);
    assert_eq!(reply.cpu_ids, [1, 2, 3]);
    let memory = [
        block("memory", (1 << 30) - (1 << 20), 0),
        block("memory", (1 << 30) - (16 << 20), 1),
        block("hugepages-2Mi", 12 << 20, 1),
    ];
    assert_eq!(reply.memory, memory);
    assert_eq!(reply.devices, []);
}

#[test]
fn more_reserved_than_there_is_leaves_nothing() {
    let kept = BTreeMap::from([((0, "memory".to_owned()), u64::MAX), ((1, "memory".to_owned()), 1 << 30)]);
    let settings = Settings { cpus: settings::Cpus::None("why"), memory: settings::Memory::AllBut(kept), always_shared: None };
    let reply = allocatable_of(settings);
    assert_eq!((reply.cpu_ids, reply.memory), (vec![], vec![block("hugepages-2Mi", 16 << 20, 1)]));
}

#[test]
fn huge_pages_are_called_as_kubernetes_calls_them() {
    for (kib, name) in [(64, "hugepages-64Ki"), (2048, "hugepages-2Mi"), (32_768, "hugepages-32Mi"), (1 << 20, "hugepages-1Gi")] {
        assert_eq!(memory_type(Some(kib)), name);
    }
}

fn pods() -> Pods {
    let container = |name: Option<&str>, cpus: &str, verdict| Container {
        name: name.map(str::to_owned),
        id: "id".to_owned(),
        cgroup: "c".to_owned(),
        cpus: CpuSet::parse(cpus).ok(),
        verdict,
        memory: vec![Memory { page_kib: None, bytes: 7, nodes: CpuSet::parse("1").unwrap() }],
    };
    let pod = |name: &str, containers, left_out| Pod {
        name: Some(PodName { namespace: "ns".to_owned(), name: name.to_owned() }),
        uid: PodUid::parse("0123456789abcdef0123456789abcdef").unwrap(),
        cgroup: name.to_owned(),
        guaranteed: true,
        containers,
        cpus: None,
        left_out,
        left_over: Vec::new(),
    };
    let exclusive = container(Some("main"), "3,1", Verdict::Exclusive);
    let shared = container(Some("a"), "0,2", Verdict::Not(Because::Overlaps));
    let nameless = container(None, "5", Verdict::Not(Because::Unknown));
    Pods {
        pods: vec![pod("web", vec![exclusive, shared, nameless], None), pod("gone", vec![], Some(Why::EmptyPod))],
        ..Pods::default()
    }
}

#[test]
fn list_has_the_named_containers_of_the_pods_that_are_not_left_out_and_exclusive_cpus_only() {
    let reply = v1::ListPodResourcesResponse::decode(list(&pods()).as_slice()).unwrap();
    let containers: Vec<_> = reply
        .pod_resources
        .iter()
        .flat_map(|pod| pod.containers.iter().map(|c| (pod.name.as_str(), c.name.as_str(), c.cpu_ids.clone())))
        .collect();
    assert_eq!(containers, [("web", "a", vec![]), ("web", "main", vec![1, 3])]);
    assert_eq!(reply.pod_resources[0].containers[0].memory, [block("memory", 7, 1)]);
}

#[test]
fn get_is_the_pods_part_of_list() {
    let reply = v1::GetPodResourcesResponse::decode(get(&pods(), "ns", "web").unwrap().as_slice()).unwrap();
    let all = v1::ListPodResourcesResponse::decode(list(&pods()).as_slice()).unwrap();
    assert_eq!(reply.pod_resources.as_ref(), all.pod_resources.first());
    assert_eq!(get(&pods(), "ns", "gone"), None);
    assert_eq!(get(&pods(), "other", "web"), None);
}

#[test]
fn the_old_list_has_the_same_pods_and_containers() {
    let reply = v1alpha1::ListPodResourcesResponse::decode(alpha_list(&pods()).as_slice()).unwrap();
    let names: Vec<_> = reply.pod_resources[0].containers.iter().map(|container| container.name.as_str()).collect();
    assert_eq!((reply.pod_resources.len(), names), (1, vec!["main", "a"]));
}
