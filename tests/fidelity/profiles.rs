//! Kubelets of every age: their texts and codes word for word, and what they lack.

use podresources_proxy::grpc::Code;
use podresources_proxy::proto::{v1, v1alpha1};
use podresources_proxy::simulate::{Profile, Simulator, Support};
use prost::Message;

use crate::client::{ALLOCATABLE, ALPHA_LIST, GET, LIST, Reply};
use crate::harness::{Place, call, of_pod, with};

fn decoded<M: Message + Default>(reply: &Reply) -> M {
    reply.assert_ok(&reply.body);
    M::decode(reply.body.slice(5..)).unwrap()
}

fn not_found(pod: &str, namespace: &str) -> (Code, String) {
    (Code::Unknown, format!("pod {pod} in namespace {namespace} not found"))
}

/// What GetAllocatableResources brings, an error or the number of CPUs and devices.
fn allocatable(reply: &Reply) -> Result<(usize, usize), (Code, String)> {
    if reply.body.is_empty() {
        return Err(reply.error());
    }
    let message: v1::AllocatableResourcesResponse = decoded(reply);
    Ok((message.cpu_ids.len(), message.devices.len()))
}

/// Names, containers and devices of a v1alpha1 reply, whatever their order.
fn sorted(reply: &Reply) -> Vec<String> {
    let message: v1alpha1::ListPodResourcesResponse = decoded(reply);
    let mut pods = message.pod_resources;
    for pod in &mut pods {
        for container in &mut pod.containers {
            container.devices.sort_by_key(|device| device.device_ids.clone());
        }
    }
    let mut pods: Vec<String> = pods.iter().map(|pod| format!("{pod:?}")).collect();
    pods.sort_unstable();
    pods
}

/// Compares what comes through the proxy with what this kubelet says itself.
async fn compare(place: &Place, kubelet: &Simulator, get: Support) {
    let list: v1::ListPodResourcesResponse = decoded(&place.call(LIST, |_| {}).await);
    let direct: v1::ListPodResourcesResponse = decoded(&call(kubelet.socket(), LIST, |_| {}).await.unwrap());
    assert_eq!(list.pod_resources.len(), direct.pod_resources.len());
    for pod in &list.pod_resources {
        let got: v1::GetPodResourcesResponse = decoded(&place.call(GET, of_pod(&pod.namespace, &pod.name)).await);
        assert_eq!(got.pod_resources.as_ref(), Some(pod));
    }
    assert_eq!(place.call(GET, of_pod("nowhere", "nobody")).await.error(), not_found("nobody", "nowhere"));
    let direct = call(kubelet.socket(), GET, of_pod("nowhere", "nobody")).await.unwrap().error();
    let own = match get {
        Support::Missing => (Code::Unimplemented, "unknown method Get for service v1.PodResourcesLister".to_owned()),
        Support::Off => (Code::Unknown, "PodResources API Get method disabled".to_owned()),
        Support::On => not_found("nobody", "nowhere"),
    };
    assert_eq!(direct, own, "the stand-in");
    let allocatable_direct = allocatable(&call(kubelet.socket(), ALLOCATABLE, |_| {}).await.unwrap());
    assert_eq!(allocatable(&place.call(ALLOCATABLE, |_| {}).await), allocatable_direct);
    let alpha_direct = sorted(&call(kubelet.socket(), ALPHA_LIST, |_| {}).await.unwrap());
    assert_eq!(sorted(&place.call(ALPHA_LIST, |_| {}).await), alpha_direct);
}

#[tokio::test]
async fn a_kubelet_of_every_age_is_answered_for_and_get_works_where_it_has_none() {
    for (profile, get) in [
        (Profile::V1_20, Support::Missing),
        (Profile::V1_27, Support::Off),
        (Profile::V1_34, Support::On),
        (Profile::V1_37, Support::On),
    ] {
        let place = Place::new();
        // This test asks the stand-in itself too, more often than its limit would let it.
        let kubelet = place.simulator(|config| (config.profile, config.pods, config.rate) = (profile, 30, None)).await;
        let proxy = place.start(&[]).await;
        compare(&place, &kubelet, get).await;
        if profile == Profile::V1_20 {
            let text = "unknown method GetAllocatableResources for service v1.PodResourcesLister".to_owned();
            assert_eq!(place.call(ALLOCATABLE, |_| {}).await.error(), (Code::Unimplemented, text));
        }
        proxy.stop().await;
    }
}

#[tokio::test]
async fn a_switched_off_method_keeps_its_kubelets_own_words() {
    for words in ["Pod Resources API GetAllocatableResources disabled", "PodResources API GetAllocatableResources disabled"] {
        let place = Place::new();
        let _kubelet = place
            .simulator(|config| {
                let mut features = config.profile.features();
                (features.allocatable, features.allocatable_off) = (Support::Off, words);
                config.features = Some(features);
            })
            .await;
        let proxy = place.start(&[]).await;
        for _ in 0..3 {
            assert_eq!(place.call(ALLOCATABLE, |_| {}).await.error(), (Code::Unknown, words.to_owned()));
        }
        assert!(!proxy.log().contains("WARN"), "no failure, but an answer:\n{}", proxy.log());
        proxy.stop().await;
    }
}

#[tokio::test]
async fn an_ended_pod_that_list_does_not_show_is_asked_of_the_kubelet() {
    let place = Place::new();
    let kubelet = place.simulator(|config| config.pods = 10).await;
    let proxy = place.start(&[]).await;
    let key = kubelet.node().pods().next().unwrap().key.clone();
    kubelet.terminate_pod(&key).unwrap();
    let list: v1::ListPodResourcesResponse = decoded(&place.call(LIST, with("podresources-max-age", "0s")).await);
    assert!(!list.pod_resources.iter().any(|pod| pod.name == key.name && pod.namespace == key.namespace));
    let got: v1::GetPodResourcesResponse = decoded(&place.call(GET, of_pod(&key.namespace, &key.name)).await);
    assert_eq!(got.pod_resources.unwrap().name, key.name);
    proxy.stop().await;
}

#[tokio::test]
async fn a_method_or_service_that_there_is_not_is_unimplemented_in_grpc_gos_words() {
    let place = Place::new();
    let _kubelet = place.simulator(|_| {}).await;
    let proxy = place.start(&[]).await;
    for (path, text) in [
        ("/v1.PodResourcesLister/Watch", "unknown method Watch for service v1.PodResourcesLister"),
        ("/v2.PodResourcesLister/List", "unknown service v2.PodResourcesLister"),
    ] {
        assert_eq!(place.call(path, |_| {}).await.error(), (Code::Unimplemented, text.to_owned()));
    }
    proxy.stop().await;
}
