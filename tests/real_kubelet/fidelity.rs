//! What goes through us equals what the kubelet says, up to its own shuffling.

use podresources_proxy::proto::v1;
use prost::Message as _;

use crate::call::{self, ALLOCATABLE, ALPHA_LIST, GET, LIST, Reply};
use crate::canonical;
use crate::node::{Kind, Node};
use crate::proxy::Proxy;

/// Calls both, holds one against the other, and returns what the kubelet said.
async fn same(node: &Node, proxy: &Proxy, path: &'static str, request: &[u8]) -> Reply {
    let kubelet = call::once(&node.socket(), path, request.to_vec()).await;
    let ours = call::once(&proxy.socket(), path, request.to_vec()).await;
    assert_eq!((ours.code, &ours.text), (kubelet.code, &kubelet.text), "{path}");
    if kubelet.code == 0 {
        assert_eq!(canonical::text(path, &ours.message), canonical::text(path, &kubelet.message), "{path}");
    }
    println!("kubelet {} | {path} | code {} | {} bytes | same", Node::version(), kubelet.code, kubelet.message.len());
    kubelet
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real kubelet: `cargo xtask test --only kubelet`"]
async fn every_reply_through_us_equals_the_kubelets() {
    let node = Node::start();
    for (name, kind) in [("one", Kind::Device), ("two", Kind::Device), ("three", Kind::Shared)] {
        node.add_pod(name, kind);
        node.running(name, kind).await;
    }
    let proxy = Proxy::start(&node, &[]).await;

    let list = same(&node, &proxy, LIST, &[]).await;
    let pods = v1::ListPodResourcesResponse::decode(list.message).unwrap().pod_resources;
    assert_eq!(pods.len(), 5, "the two pods of the node and three of ours: {pods:?}");
    let devices = pods.iter().flat_map(|pod| &pod.containers).flat_map(|container| &container.devices).count();
    assert_eq!(devices, 3, "one for the exclusive pod and each of ours: {pods:?}");
    for pod in &pods {
        let get = same(&node, &proxy, GET, &call::get_request(&pod.namespace, &pod.name)).await;
        assert_eq!(get.code, 0, "{}: {}", pod.name, get.text);
    }
    let unknown = same(&node, &proxy, GET, &call::get_request("default", "no-such-pod")).await;
    assert_eq!((unknown.code, unknown.text.as_str()), (2, "pod no-such-pod in namespace default not found"));
    let allocatable = same(&node, &proxy, ALLOCATABLE, &[]).await;
    assert!(!allocatable.message.is_empty(), "four devices and the CPUs that are not reserved");
    let alpha = same(&node, &proxy, ALPHA_LIST, &[]).await;
    assert!(!alpha.message.is_empty());
    let missing = same(&node, &proxy, "/v1.PodResourcesLister/NoSuchMethod", &[]).await;
    assert_eq!(missing.code, 12);
}
