//! The host as the source beside a real kubelet with the static CPU manager: what it tells of CPUs is what the kubelet tells.

use std::collections::BTreeMap;

use podresources_proxy::proto::v1;
use prost::Message as _;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use crate::call::{self, ALLOCATABLE, LIST};
use crate::node::{Kind, Node};
use crate::proxy::Proxy;

/// How many pods come and go.
const PODS: usize = 100;
/// How many there are at a time, beside the node's own.
const AT_A_TIME: usize = 5;
/// Every so many steps all is to be equal.
const SETTLE_EVERY: usize = 8;

type Containers = BTreeMap<(String, String, String), Vec<i64>>;

/// Where containerd keeps its bundles, as the node has it.
pub(crate) const BUNDLES: &str = "/run/containerd/state/io.containerd.runtime.v2.task/k8s.io";

/// Flags by which the host source sees this node's pods alone.
pub(crate) fn flags(node: &Node, source: &str) -> Vec<String> {
    let (cgroups, config) = (node.cgroup_root(), node.kubelet_config());
    let (cgroups, config) = (cgroups.to_str().unwrap(), config.to_str().unwrap());
    let flags = ["--source", source, "--cgroup-root", cgroups, "--bundle-dirs", BUNDLES, "--kubelet-config", config];
    flags.map(str::to_owned).to_vec()
}

/// The proxy with the host as its source.
async fn host(node: &Node) -> Proxy {
    let flags = flags(node, "host");
    Proxy::start_inside(node, &flags.iter().map(String::as_str).collect::<Vec<_>>()).await
}

/// Exclusive CPUs by container.
async fn containers(socket: &std::path::Path) -> Containers {
    let reply = call::once(socket, LIST, Vec::new()).await;
    assert_eq!(reply.code, 0, "{}", reply.text);
    let list = v1::ListPodResourcesResponse::decode(reply.message).unwrap();
    let of_pod = |pod: v1::PodResources| {
        pod.containers.into_iter().map(move |mut container| {
            container.cpu_ids.sort_unstable();
            ((pod.namespace.clone(), pod.name.clone(), container.name), container.cpu_ids)
        })
    };
    list.pod_resources.into_iter().flat_map(of_pod).collect()
}

async fn allocatable(socket: &std::path::Path) -> v1::AllocatableResourcesResponse {
    let reply = call::once(socket, ALLOCATABLE, Vec::new()).await;
    assert_eq!(reply.code, 0, "{}", reply.text);
    v1::AllocatableResourcesResponse::decode(reply.message).unwrap()
}

/// Waits until both tell the same containers with the same CPUs.
async fn equal(node: &Node, proxy: &Proxy) -> Containers {
    let (mut ours, mut theirs) = (Containers::new(), Containers::new());
    for _ in 0..600 {
        (ours, theirs) = (containers(&proxy.socket()).await, containers(&node.socket()).await);
        if ours == theirs {
            return ours;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the host tells {ours:?}\nthe kubelet {theirs:?}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real kubelet: `cargo xtask test --only kubelet`"]
async fn the_host_tells_the_cpus_that_the_kubelet_tells_over_pods_that_come_and_go() {
    let node = Node::start();
    let proxy = host(&node).await;
    let (ours, theirs) = (allocatable(&proxy.socket()).await, allocatable(&node.socket()).await);
    assert!(!theirs.cpu_ids.is_empty());
    assert_eq!((&ours.cpu_ids, &ours.memory), (&theirs.cpu_ids, &theirs.memory));
    let first = equal(&node, &proxy).await;
    assert_eq!(first.values().filter(|cpus| !cpus.is_empty()).count(), 1, "the pod with a CPU of its own: {first:?}");

    let mut random = SmallRng::seed_from_u64(7);
    let mut there: Vec<(String, Kind)> = Vec::new();
    // The node's own exclusive pod makes room for others.
    node.remove_pod("exclusive");
    let (mut added, mut step, mut compared, mut exclusive) = (0, 0, 0, 0);
    while added < PODS || !there.is_empty() {
        step += 1;
        let add = added < PODS && (there.len() < AT_A_TIME && random.random_bool(0.6) || there.is_empty());
        if add {
            let has_exclusive = there.iter().any(|(_, kind)| matches!(kind, Kind::Exclusive));
            let kind = match random.random_range(0..3) {
                0 if !has_exclusive => Kind::Exclusive,
                1 => Kind::Device,
                _ => Kind::Shared,
            };
            let name = format!("pod-{added}");
            node.add_pod(&name, kind);
            there.push((name, kind));
            added += 1;
        } else {
            let (name, _) = there.remove(random.random_range(0..there.len()));
            node.remove_pod(&name);
        }
        // While things move: nobody is said to have CPUs whom the kubelet, before and after, says to have others.
        let before = containers(&node.socket()).await;
        let ours = containers(&proxy.socket()).await;
        let after = containers(&node.socket()).await;
        for (container, cpus) in ours.iter().filter(|(_, cpus)| !cpus.is_empty()) {
            if let (Some(before), Some(after)) = (before.get(container), after.get(container)) {
                assert!(
                    before == cpus || after == cpus,
                    "{container:?}: the host tells {cpus:?}, the kubelet {before:?}, {after:?}"
                );
                exclusive += 1;
            }
        }
        if step % SETTLE_EVERY == 0 {
            compared += equal(&node, &proxy).await.len();
        }
    }
    let last = equal(&node, &proxy).await;
    assert_eq!(last.len(), 2, "the node's own shared pod: {last:?}");
    assert!(exclusive > 0, "no container with CPUs of its own was ever compared");
    println!(
        "kubelet {} | {PODS} pods | {step} steps | {compared} containers equal | {exclusive} looks at exclusive CPUs",
        Node::version()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real kubelet: `cargo xtask test --only kubelet`"]
async fn the_host_knows_the_pods_while_no_kubelet_runs() {
    let node = Node::start();
    let before = containers(&node.socket()).await;
    node.kill_kubelet().await;
    let proxy = host(&node).await;
    assert_eq!(containers(&proxy.socket()).await, before);
}
