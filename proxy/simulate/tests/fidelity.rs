//! Codes, texts and contents, as the kubelet's.

use std::collections::HashSet;

use super::*;
use crate::simulate::{ContainerRequest, Features, Phase, PodRequest, Profile, Rate, Support};

#[tokio::test]
async fn a_get_of_an_unknown_pod_ends_in_the_kubelets_own_words() {
    let lab = Lab::start(|_| {}).await;
    let text = "pod nobody in namespace nowhere not found".to_owned();
    assert_eq!(lab.client().await.get("nowhere", "nobody").await, Outcome::Status(Code::Unknown, text));
}

#[tokio::test]
async fn methods_that_are_switched_off_say_so_in_the_kubelets_own_words() {
    let off = |features: Features| Features { get: Support::Off, allocatable: Support::Off, ..features };
    let lab = Lab::start(|config| config.features = Some(off(Profile::V1_27.features()))).await;
    let mut client = lab.client().await;
    let get = client.get("default", "any").await;
    assert_eq!(get, Outcome::Status(Code::Unknown, "PodResources API Get method disabled".to_owned()));
    let allocatable = client.ask(Method::Allocatable).await;
    assert_eq!(allocatable, Outcome::Status(Code::Unknown, "PodResources API GetAllocatableResources disabled".to_owned()));

    let old = Lab::start(|config| config.features = Some(off(Profile::V1_20.features()))).await;
    let allocatable = old.client().await.ask(Method::Allocatable).await;
    assert_eq!(allocatable, Outcome::Status(Code::Unknown, "Pod Resources API GetAllocatableResources disabled".to_owned()));
}

#[tokio::test]
async fn what_does_not_exist_is_unimplemented_and_named() {
    let lab = Lab::start(|_| {}).await;
    let mut client = lab.client().await;
    for (path, text) in [
        ("/v1.PodResourcesLister/Watch", "unknown method Watch for service v1.PodResourcesLister"),
        ("/v1alpha1.PodResourcesLister/Get", "unknown method Get for service v1alpha1.PodResourcesLister"),
        ("/grpc.health.v1.Health/Check", "unknown service grpc.health.v1.Health"),
    ] {
        let outcome = client.call(path, &v1::ListPodResourcesRequest {}).await;
        assert_eq!(outcome, Outcome::Status(Code::Unimplemented, text.to_owned()), "{path}");
    }
}

#[tokio::test]
async fn one_rate_limit_holds_for_both_versions_all_methods_and_all_clients() {
    // Tokens so slow to come back that the test's own pace does not matter.
    let lab = Lab::start(|config| config.rate = Some(Rate { per_second: 0.001, burst: 10 })).await;
    let (mut one, mut other) = (lab.client().await, lab.client().await);
    for _ in 0..2 {
        one.ask(Method::List).await.message();
        other.ask(Method::Allocatable).await.message();
        one.ask(Method::AlphaList).await.message();
        other.ask(Method::List).await.message();
        assert!(matches!(one.get("nowhere", "nobody").await, Outcome::Status(Code::Unknown, _)));
    }
    let rejected = Outcome::Status(Code::ResourceExhausted, "rejected by rate limit".to_owned());
    for method in Method::ALL {
        assert_eq!(one.ask(method).await, rejected, "{method:?}");
        assert_eq!(other.ask(method).await, rejected, "{method:?}");
    }
    assert_eq!((lab.sim.refused(), lab.sim.calls(Method::List)), (8, 6));
}

#[tokio::test]
async fn every_call_has_the_same_content_in_another_order() {
    let lab = Lab::start(|_| {}).await;
    let mut client = lab.client().await;
    let (one, other) = (client.list().await.pod_resources, client.list().await.pod_resources);
    let order = |pods: &[v1::PodResources]| pods.iter().map(|pod| pod.name.clone()).collect::<Vec<_>>();
    assert_ne!(order(&one), order(&other));
    let set = |pods: &[v1::PodResources]| order(pods).into_iter().collect::<HashSet<_>>();
    assert_eq!(set(&one), set(&other));
    assert_eq!(one.len(), 110);
}

#[tokio::test]
async fn a_get_is_one_pod_of_the_list() {
    let lab = Lab::start(|_| {}).await;
    let mut client = lab.client().await;
    for pod in client.list().await.pod_resources {
        let got: v1::GetPodResourcesResponse = client.get(&pod.namespace, &pod.name).await.decode();
        assert_eq!(canonical(got.pod_resources.unwrap()), canonical(pod));
    }
}

#[tokio::test]
async fn what_pods_hold_is_allocatable_and_held_once() {
    let lab = Lab::start(|config| (config.pods, config.devices, config.numa_nodes) = (500, 64, 4)).await;
    let mut client = lab.client().await;
    let allocatable = client.allocatable().await;
    let cpus: HashSet<_> = allocatable.cpu_ids.iter().copied().collect();
    let devices: HashSet<_> = allocatable.devices.iter().map(|device| device.device_ids[0].clone()).collect();
    assert_eq!(devices.len(), 64);
    let (mut held_cpus, mut held_devices) = (HashSet::new(), HashSet::new());
    for pod in client.list().await.pod_resources {
        let in_containers = pod.containers.iter().flat_map(|container| &container.cpu_ids);
        for cpu in in_containers.chain(&pod.cpu_ids) {
            assert!(cpus.contains(cpu), "CPU {cpu} is held and not allocatable");
            assert!(held_cpus.insert(*cpu), "CPU {cpu} is held twice");
        }
        for (at, container) in pod.containers.iter().enumerate() {
            for device in &container.devices {
                let owner = (pod.namespace.clone(), pod.name.clone(), at);
                assert!(devices.contains(&device.device_ids[0]));
                held_devices.insert((device.device_ids[0].clone(), owner));
            }
        }
    }
    let ids: HashSet<_> = held_devices.iter().map(|(id, _)| id).collect();
    assert_eq!(ids.len(), held_devices.len(), "a device has two owners");
    assert!(held_cpus.len() > 100 && ids.len() > 30, "{} CPUs and {} devices are held", held_cpus.len(), ids.len());
}

#[tokio::test]
async fn devices_have_an_entry_for_each_numa_node_and_node_0_is_an_empty_message() {
    let lab = Lab::start(|config| config.devices = 16).await;
    let reply = lab.client().await.ask(Method::Allocatable).await;
    let devices = reply.decode::<v1::AllocatableResourcesResponse>().devices;
    let entries = |resource: &str| devices.iter().filter(|device| device.resource_name == resource).collect::<Vec<_>>();
    assert!(devices.iter().all(|device| device.device_ids.len() == 1));
    assert!(entries("github.com/fuse").iter().all(|device| device.topology.is_none()));
    let mut nodes: Vec<_> =
        entries("rdma/hca_shared_devices").iter().flat_map(|d| &d.topology.as_ref().unwrap().nodes).map(|node| node.id).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, [0, 1]);
    // Field 3, a topology of two bytes: field 1, an empty NUMANode.
    assert!(reply.message().windows(4).any(|bytes| bytes == [0x1a, 2, 0x0a, 0]));
}

#[tokio::test]
async fn a_dense_nodes_reply_is_as_long_as_a_real_one() {
    for (pods, devices) in [(110, 128), (500, 512), (2000, 2048)] {
        let lab = Lab::start(|config| (config.pods, config.devices) = (pods, devices)).await;
        let len = lab.client().await.ask(Method::List).await.message().len();
        assert!((160..250).contains(&(len / pods)), "{} bytes for each of {pods} pods", len / pods);
    }
}

#[tokio::test]
async fn a_sick_device_leaves_allocatable_and_stays_with_its_pod() {
    let lab = Lab::start(|_| {}).await;
    let mut client = lab.client().await;
    let held =
        client.list().await.pod_resources.into_iter().flat_map(|pod| pod.containers).find_map(|c| c.devices.into_iter().next());
    let id = held.expect("some pod holds a device").device_ids[0].clone();
    let offers = |reply: &v1::AllocatableResourcesResponse| reply.devices.iter().any(|device| device.device_ids[0] == id);
    assert!(offers(&client.allocatable().await));
    assert!(lab.sim.set_device_health(&id, false).unwrap());
    assert!(!offers(&client.allocatable().await));
    let pods = client.list().await.pod_resources;
    assert!(pods.iter().flat_map(|pod| &pod.containers).flat_map(|c| &c.devices).any(|device| device.device_ids[0] == id));
    lab.sim.set_device_health(&id, true).unwrap();
    assert!(offers(&client.allocatable().await));
}

#[tokio::test]
async fn a_pod_that_wants_too_much_is_turned_away_with_the_reason() {
    let lab = Lab::start(|_| {}).await;
    let pod = PodRequest::new("default", "greedy").container(ContainerRequest::named("main").devices("nvidia.com/gpu", 99));
    let key = pod.key.clone();
    let error = lab.sim.add_pod(pod).await.unwrap_err().to_string();
    assert!(error.starts_with("99 devices of \"nvidia.com/gpu\" asked for, "), "{error}");
    assert!(lab.sim.node().pod(&key).is_none());
}

#[tokio::test]
async fn a_pod_that_was_added_holds_what_it_asked_for_and_leaves_at_once() {
    let lab = Lab::start(|_| {}).await;
    let pod = PodRequest::new("default", "mine").container(ContainerRequest::named("main").cpus(3).devices("nvidia.com/gpu", 2));
    let key = pod.key.clone();
    lab.sim.add_pod(pod).await.unwrap();
    let mut client = lab.client().await;
    let got = client.get("default", "mine").await.decode::<v1::GetPodResourcesResponse>().pod_resources.unwrap();
    assert_eq!((got.containers[0].cpu_ids.len(), got.containers[0].devices.len()), (3, 2));
    assert_eq!(lab.sim.node().pod(&key).unwrap().phase, Phase::Prepared);
    lab.sim.remove_pod(&key).await.unwrap();
    assert!(matches!(client.get("default", "mine").await, Outcome::Status(Code::Unknown, _)));
}

#[tokio::test]
async fn the_same_seed_makes_the_same_node_and_another_one_another() {
    let node = async |seed| {
        let lab = Lab::start(|config| config.seed = seed).await;
        let mut client = lab.client().await;
        let mut pods: Vec<_> = client.list().await.pod_resources.into_iter().map(canonical).collect();
        pods.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        let mut allocatable = client.allocatable().await;
        allocatable.devices.sort_by_key(Message::encode_to_vec);
        allocatable.cpu_ids.sort_unstable();
        (pods, allocatable.devices, allocatable.cpu_ids)
    };
    let seven = node(7).await;
    assert_eq!(seven, node(7).await);
    assert_ne!(seven, node(8).await);
}

#[tokio::test]
async fn a_socket_that_somebody_serves_is_not_taken_and_neither_is_a_file() {
    let lab = Lab::start(|_| {}).await;
    let error = Simulator::start(Config::at(lab.sim.socket())).await.err().unwrap().to_string();
    assert!(error.contains("is served by a living process"), "{error}");
    let file = lab.dir.path().join("notes");
    std::fs::write(&file, "mine").unwrap();
    let error = Simulator::start(Config::at(&file)).await.err().unwrap().to_string();
    assert!(error.contains("is not a socket"), "{error}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    let error = Simulator::start(Config::at(lab.dir.path().join("missing/kubelet.sock"))).await.err().unwrap().to_string();
    assert!(error.contains("its directory must exist"), "{error}");
}

#[tokio::test]
async fn closing_ends_everything_and_removes_the_socket() {
    let lab = Lab::start(|config| config.churn = 500.0).await;
    let mut client = lab.client().await;
    client.list().await;
    assert_eq!(lab.sim.connections(), 1);
    let socket = lab.sim.socket().to_owned();
    lab.sim.close().await;
    assert!(!socket.exists());
    assert_eq!(client.ask(Method::List).await, Outcome::Broken(Bytes::new()));
}

/// A pod in one order of its own.
fn canonical(mut pod: v1::PodResources) -> v1::PodResources {
    pod.cpu_ids.sort_unstable();
    for container in &mut pod.containers {
        container.cpu_ids.sort_unstable();
        container.devices.sort_by_key(Message::encode_to_vec);
    }
    pod
}
