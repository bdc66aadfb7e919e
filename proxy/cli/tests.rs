//! Tables from replies that real kubelets gave.

use std::collections::BTreeMap;
use std::path::Path;

use insta::assert_snapshot;
use prost::Message;

use super::output::Output;
use super::room::{self, room};
use super::table::{self, Style};
use super::view::{self, Sorted};
use super::{list, message};
use crate::config::setting;
use crate::proto::{v1, v1alpha1};

/// A recorded reply from `tests/cases/kubelet`.
fn recorded<M: Message + Default>(case: &str) -> M {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/kubelet").join(format!("{case}.hex"));
    let hex = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let bytes: Vec<u8> = digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect();
    M::decode(bytes.as_slice()).unwrap()
}

fn table(case: &str, wide: bool) -> String {
    let reply: v1::ListPodResourcesResponse = recorded(&format!("list-{case}"));
    table::pods(&view::rows(&reply.pod_resources), Style { wide, ..Style::default() })
}

fn node(alloc: &str, list: &str, nodes_of_cpus: &BTreeMap<i64, i64>) -> String {
    let pods: v1::ListPodResourcesResponse = recorded(list);
    room::table(&room(&recorded(alloc), &pods.pod_resources, nodes_of_cpus))
}

#[test]
fn a_two_node_machine_as_a_table() {
    assert_snapshot!(table("1.36.2-vm-2numa", false), @"
    NAMESPACE    POD           CONTAINER  CPUS  MEMORY  DEVICES                  CLAIMS
    default      excl1-node1   main       1     -       example.com/resource: 1  -
    default      excl2-node1   main       2     -       example.com/resource: 1  -
    kube-system  shared-node1  a          -     -       -                        -
    kube-system  shared-node1  b          -     -       -                        -
    ");
    assert_snapshot!(table("1.36.2-vm-2numa", true), @"
    NAMESPACE    POD           CONTAINER  CPUS  MEMORY  DEVICES                          CLAIMS  NUMA
    default      excl1-node1   main       1     -       example.com/resource: 1 (Dev-1)  -       0
    default      excl2-node1   main       2     -       example.com/resource: 1 (Dev-2)  -       1
    kube-system  shared-node1  a          -     -       -                                -       -
    kube-system  shared-node1  b          -     -       -                                -       -
    ");
}

#[test]
fn a_claim_stands_beside_devices_and_cpus() {
    assert_snapshot!(table("1.37.2-host-dra", false), @"
    NAMESPACE  POD          CONTAINER  CPUS  MEMORY  DEVICES                  CLAIMS
    default    dra-pod      main       -     -       -                        dra-pod-claim-qm9j2
    default    probe-p6ht4  main       1     -       example.com/resource: 1  -
    ");
    assert_snapshot!(table("1.37.2-host-dra", true), @"
    NAMESPACE  POD          CONTAINER  CPUS  MEMORY  DEVICES                          CLAIMS                                             NUMA
    default    dra-pod      main       -     -       -                                dra-pod-claim-qm9j2 (lab.example.com/node1/dra-0)  -
    default    probe-p6ht4  main       1     -       example.com/resource: 1 (Dev-0)  -                                                  0
    ");
}

#[test]
fn what_the_pod_itself_holds_has_a_line_of_its_own() {
    assert_snapshot!(table("1.37.2-host-podlevel", true), @"
    NAMESPACE  POD       CONTAINER  CPUS  MEMORY  DEVICES  CLAIMS  NUMA
    default    podlevel  (pod)      1     -       -        -       -
    default    podlevel  main       -     -       -        -       -
    default    podlevel  side       -     -       -        -       -
    ");
}

#[test]
fn v1alpha1_has_devices_alone() {
    let reply: v1alpha1::ListPodResourcesResponse = recorded("list-v1alpha1-1.36.2-host");
    let style = Style { devices_only: true, ..Style::default() };
    assert_snapshot!(table::pods(&view::alpha_rows(&reply.pod_resources), style), @"
    NAMESPACE    POD           CONTAINER  DEVICES
    default      excl1-node1   main       example.com/resource: 1
    kube-system  shared-node1  a          -
    kube-system  shared-node1  b          -
    ");
}

#[test]
fn a_table_has_one_line_for_each_container_in_a_fixed_order() {
    let mut reply: v1::ListPodResourcesResponse = recorded("list-1.36.2-host-100pods");
    let before = list::rendered(&view::rows(&reply.pod_resources), Output::Table, false, Path::new("/nowhere"));
    // A header, 102 pods, one of them with two containers.
    assert_eq!(before.lines().count(), 104);
    reply.pod_resources.reverse();
    for pod in &mut reply.pod_resources {
        pod.containers.iter_mut().for_each(|container| container.devices.reverse());
    }
    assert_eq!(list::rendered(&view::rows(&reply.pod_resources), Output::Table, false, Path::new("/nowhere")), before);

    let sorted = |mut reply: v1::ListPodResourcesResponse| {
        reply.sort();
        message::json("v1.ListPodResourcesResponse", &reply).unwrap()
    };
    assert_eq!(sorted(reply), sorted(recorded("list-1.36.2-host-100pods")));
}

#[test]
fn names_are_one_a_pod() {
    let reply: v1::ListPodResourcesResponse = recorded("list-1.37.2-host-podlevel");
    assert_snapshot!(list::rendered(&view::rows(&reply.pod_resources), Output::Name, false, Path::new("/nowhere")), @"default/podlevel");
}

#[test]
fn json_has_the_mappings_names_numbers_as_numbers_and_every_field() {
    let mut reply: v1::AllocatableResourcesResponse = recorded("alloc-1.36.2-vm-2numa");
    reply.sort();
    assert_snapshot!(message::yaml("v1.AllocatableResourcesResponse", &reply).unwrap(), @"
    cpuIds:
    - 1
    - 2
    - 3
    devices:
    - deviceIds:
      - Dev-1
      resourceName: example.com/resource
      topology:
        nodes:
        - ID: 0
    - deviceIds:
      - Dev-2
      resourceName: example.com/resource
      topology:
        nodes:
        - ID: 1
    memory: []
    ");
    reply.memory = vec![block(1 << 40, &[0])];
    let value: serde_json::Value =
        serde_json::from_str(&message::json("v1.AllocatableResourcesResponse", &reply).unwrap()).unwrap();
    assert_eq!(
        value["memory"][0],
        serde_json::json!({"memoryType": "memory", "size": 1_u64 << 40, "topology": {"nodes": [{"ID": 0}]}})
    );
}

#[test]
fn a_node_tells_what_is_taken_and_what_is_free() {
    let nodes = BTreeMap::from([(0, 0), (1, 0), (2, 1), (3, 1)]);
    assert_snapshot!(node("alloc-1.36.2-vm-2numa", "list-1.36.2-vm-2numa", &nodes), @"
    NUMA  RESOURCE              ALLOCATABLE  TAKEN  FREE
    0     cpu                   1 (1)        1 (1)  0
    0     example.com/resource  1            1      0
    1     cpu                   2 (2-3)      1 (2)  1 (3)
    1     example.com/resource  1            1      0
    ");
    let (node_reply, pods): (_, v1::ListPodResourcesResponse) =
        (recorded("alloc-1.36.2-vm-2numa"), recorded("list-1.36.2-vm-2numa"));
    assert_snapshot!(room::devices_table(&node_reply, &pods.pod_resources), @"
    NUMA  RESOURCE              DEVICE  HOLDER
    0     example.com/resource  Dev-1   default/excl1-node1/main
    1     example.com/resource  Dev-2   default/excl2-node1/main
    ");
    // This machine's CPUs are not the reply's.
    let other = BTreeMap::from([(0, 0), (1, 0)]);
    assert_snapshot!(node("alloc-1.36.2-vm-2numa", "list-1.36.2-vm-2numa", &other), @"
    NUMA  RESOURCE              ALLOCATABLE  TAKEN    FREE
    0     example.com/resource  1            1        0
    1     example.com/resource  1            1        0
    -     cpu                   3 (1-3)      2 (1-2)  1 (3)
    ");
}

fn block(size: u64, nodes: &[i64]) -> v1::ContainerMemory {
    let nodes = nodes.iter().map(|&id| v1::NumaNode { id }).collect();
    v1::ContainerMemory { memory_type: "memory".into(), size, topology: Some(v1::TopologyInfo { nodes }) }
}

#[test]
fn a_pods_own_set_and_its_containers_are_united_and_never_added_up() {
    let container = v1::ContainerResources { cpu_ids: vec![2, 3], memory: vec![block(1 << 30, &[0])], ..Default::default() };
    let pods = [v1::PodResources {
        cpu_ids: vec![2, 3, 4],
        memory: vec![block(2 << 30, &[0])],
        containers: vec![container.clone(), v1::ContainerResources { cpu_ids: vec![4], ..container }],
        ..Default::default()
    }];
    let node = v1::AllocatableResourcesResponse {
        cpu_ids: (1..8).collect(),
        memory: vec![block(8 << 30, &[0]), block(8 << 30, &[1])],
        ..Default::default()
    };
    let nodes = (0..8).map(|cpu| (cpu, 0)).chain([(8, 1)]).collect();
    assert_snapshot!(room::table(&room(&node, &pods, &nodes)), @"
    NUMA  RESOURCE  ALLOCATABLE  TAKEN    FREE
    0     cpu       7 (1-7)      3 (2-4)  4 (1,5-7)
    0     memory    8Gi          2Gi      6Gi
    1     memory    8Gi          0        8Gi
    ");
}

#[test]
fn memory_of_a_group_of_nodes_bounds_what_its_nodes_have_free() {
    let container = v1::ContainerResources { memory: vec![block(10 << 30, &[0, 1])], ..Default::default() };
    let pods = [v1::PodResources { containers: vec![container], ..Default::default() }];
    let node = v1::AllocatableResourcesResponse { memory: vec![block(8 << 30, &[0]), block(8 << 30, &[1])], ..Default::default() };
    assert_snapshot!(room::table(&room(&node, &pods, &BTreeMap::new())), @"
    NUMA  RESOURCE  ALLOCATABLE  TAKEN  FREE
    0     memory    8Gi          0      at most 6Gi
    0-1   memory    -            10Gi   -
    1     memory    8Gi          0      at most 6Gi
    ");
}

#[test]
fn a_taken_device_stands_where_the_node_lists_it_and_an_unhealthy_one_is_never_free() {
    let device = |id: &str, node: Option<i64>| v1::ContainerDevices {
        resource_name: "example.com/dev".into(),
        device_ids: vec![id.into()],
        topology: node.map(|id| v1::TopologyInfo { nodes: vec![v1::NumaNode { id }] }),
    };
    let node = v1::AllocatableResourcesResponse {
        // Device a is on both nodes: the kubelet sends an entry for each.
        devices: vec![device("a", Some(0)), device("a", Some(1)), device("b", Some(1)), device("c", None)],
        ..Default::default()
    };
    let held = v1::ContainerResources {
        name: "main".into(),
        devices: vec![device("b", None), device("sick", Some(1))],
        ..Default::default()
    };
    let pods = [v1::PodResources { namespace: "ns".into(), name: "pod".into(), containers: vec![held], ..Default::default() }];
    assert_snapshot!(room::table(&room(&node, &pods, &BTreeMap::new())), @"
    NUMA  RESOURCE         ALLOCATABLE  TAKEN  FREE
    0-1   example.com/dev  1            0      1
    1     example.com/dev  1            2      0
    -     example.com/dev  1            0      1
    ");
    assert_snapshot!(room::devices_table(&node, &pods), @"
    NUMA  RESOURCE         DEVICE  HOLDER
    0-1   example.com/dev  a       -
    1     example.com/dev  b       ns/pod/main
    1     example.com/dev  sick    ns/pod/main (not allocatable)
    -     example.com/dev  c       -
    ");
}

#[test]
fn memory_of_several_kinds_is_named_and_plain_memory_comes_first() {
    let pages = v1::ContainerMemory { memory_type: "hugepages-1Gi".into(), ..block(1 << 30, &[0]) };
    let memory = vec![pages, block(1 << 30, &[0]), block(1 << 29, &[1])];
    let containers = vec![
        v1::ContainerResources { name: "a".into(), memory: memory.clone(), ..Default::default() },
        v1::ContainerResources { name: "b".into(), memory: memory[..1].to_vec(), ..Default::default() },
        v1::ContainerResources { name: "c".into(), memory: memory[1..].to_vec(), ..Default::default() },
    ];
    let rows = view::rows(&[v1::PodResources { name: "p".into(), namespace: "ns".into(), containers, ..Default::default() }]);
    assert_snapshot!(table::pods(&rows, Style::default()), @"
    NAMESPACE  POD  CONTAINER  CPUS  MEMORY                             DEVICES  CLAIMS
    ns         p    a          -     memory: 1.5Gi, hugepages-1Gi: 1Gi  -        -
    ns         p    b          -     hugepages-1Gi: 1Gi                 -        -
    ns         p    c          -     1.5Gi                              -        -
    ");
    assert_snapshot!(table::pods(&rows, Style { wide: true, ..Style::default() }), @"
    NAMESPACE  POD  CONTAINER  CPUS  MEMORY                   DEVICES  CLAIMS  NUMA
    ns         p    a          -     memory: 1Gi on 0         -        -       0-1
                                     memory: 512Mi on 1
                                     hugepages-1Gi: 1Gi on 0
    ns         p    b          -     hugepages-1Gi: 1Gi on 0  -        -       0
    ns         p    c          -     1Gi on 0                 -        -       0-1
                                     512Mi on 1
    ");
}

#[test]
fn names_with_control_characters_do_not_reach_the_terminal() {
    let pods = [v1::PodResources { name: "a\u{1b}[2Jb\nc".into(), namespace: "ns".into(), ..Default::default() }];
    assert_eq!(
        table::pods(&view::rows(&pods), Style::default()).lines().last(),
        Some("ns         a\u{fffd}[2Jb\u{fffd}c  (pod)      -     -       -        -")
    );
}

#[test]
fn help_names_every_settings_flag_and_clap_finds_nothing_wrong() {
    use clap::CommandFactory;

    let mut command = super::Cli::command();
    command.clone().debug_assert();
    let show = command.find_subcommand_mut("config").unwrap().find_subcommand_mut("show").unwrap();
    let help = show.render_long_help().to_string();
    for setting in setting::ALL {
        assert!(help.contains(&format!("--{}", setting.flag)) && help.contains(&setting.env()), "{}", setting.flag);
    }
}
