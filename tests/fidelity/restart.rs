//! The kubelet restarts while clients call: nobody fails, and nobody is told less than there is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use podresources_proxy::proto::v1::{AllocatableResourcesResponse, GetPodResourcesResponse, ListPodResourcesResponse};
use prost::Message as _;

use crate::client::{ALLOCATABLE, Client, GET, LIST};
use crate::harness::{Place, call, eventually, of_pod};

const PODS: usize = 110;
const RESTARTS: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn through_restarts_of_the_kubelet_no_call_fails_and_no_list_is_short() {
    let place = Arc::new(Place::new());
    let kubelet = place.simulator(|config| config.pods = PODS).await;
    // All clients here are one to the proxy, and its rate is not what this is about.
    let proxy = place.start(&["--admission", "off"]).await;
    proxy.ready().await;
    let allocatable = place.call(ALLOCATABLE, |_| {}).await;
    let devices = AllocatableResourcesResponse::decode(allocatable.body.slice(5..)).unwrap().devices.len();
    assert!(devices > 0);
    let key = kubelet.node().pods().find(|pod| !pod.containers[0].cpus.is_empty()).unwrap().key.clone();

    let (over, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..4)
        .map(|at| {
            let (place, over, calls, key) = (Arc::clone(&place), Arc::clone(&over), Arc::clone(&calls), key.clone());
            tokio::spawn(async move {
                let mut lasting = Client::connect(&place.listen()).await.unwrap();
                while !over.load(SeqCst) {
                    // Half of them over one connection, half over a new one for each call.
                    let list = if at % 2 == 0 {
                        lasting.ask(LIST, |_| {}).await
                    } else {
                        call(&place.listen(), LIST, |_| {}).await.unwrap()
                    };
                    list.assert_ok(&list.body);
                    let pods = ListPodResourcesResponse::decode(list.body.slice(5..)).unwrap().pod_resources.len();
                    assert_eq!(pods, PODS, "a short list");
                    let allocatable = lasting.ask(ALLOCATABLE, |_| {}).await;
                    allocatable.assert_ok(&allocatable.body);
                    let now = AllocatableResourcesResponse::decode(allocatable.body.slice(5..)).unwrap().devices.len();
                    assert_eq!(now, devices, "devices are missing");
                    let pod = lasting.ask(GET, of_pod(&key.namespace, &key.name)).await;
                    pod.assert_ok(&pod.body);
                    let pod = GetPodResourcesResponse::decode(pod.body.slice(5..)).unwrap().pod_resources.unwrap();
                    assert!(pod.containers.iter().any(|container| !container.cpu_ids.is_empty()), "its CPUs are missing");
                    calls.fetch_add(3, SeqCst);
                }
            })
        })
        .collect();
    for restart in 1..=RESTARTS {
        let before = calls.load(SeqCst);
        kubelet.restart().await.unwrap();
        eventually("calls go on", async || calls.load(SeqCst) >= before + 30).await;
        let seen = format!("kubelet_restarts_total {restart}\n");
        eventually("the restart was seen", async || proxy.admin("/metrics").await.contains(&seen)).await;
    }
    over.store(true, SeqCst);
    for client in clients {
        client.await.unwrap();
    }
    assert!(calls.load(SeqCst) > 100);
    proxy.stop().await;
}

#[tokio::test]
async fn a_pod_that_comes_right_after_a_restart_is_there_at_once() {
    let place = Place::new();
    let kubelet = place.simulator(|config| config.pods = 20).await;
    let proxy = place.start(&[]).await;
    proxy.ready().await;
    kubelet.restart().await.unwrap();
    let key = kubelet.add_some_pod().await.unwrap();
    let pod = place.call(GET, of_pod(&key.namespace, &key.name)).await;
    pod.assert_ok(&pod.body);
    let list = place.call(LIST, |_| {}).await;
    assert_eq!(ListPodResourcesResponse::decode(list.body.slice(5..)).unwrap().pod_resources.len(), 21);
    proxy.stop().await;
}
