//! Metadata both ways: what a client may ask of an answer's age, and what every answer tells of it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Request;
use podresources_proxy::grpc::Code;
use podresources_proxy::simulate::{Method, Phase, PodKey, Simulator, Stage};

use crate::client::{ALLOCATABLE, ALPHA_LIST, Body, GET, LIST, Reply};
use crate::harness::{Place, Proxy, eventually, of_pod, with};

fn label<'a>(reply: &'a Reply, name: &str) -> Option<&'a str> {
    reply.headers.get(name).map(|value| value.to_str().unwrap())
}

fn age(reply: &Reply) -> Duration {
    Duration::from_secs_f64(label(reply, "podresources-age").expect("an age").parse().unwrap())
}

/// Stops the kubelet, and waits until the proxy has seen it: no event of the kernel comes before the end of the connection.
async fn stop(kubelet: &Simulator, proxy: &Proxy) {
    kubelet.stop().await;
    eventually("the end is seen", async || proxy.admin("/metrics").await.contains("source_up 0\n")).await;
}

#[tokio::test]
async fn every_answer_tells_its_age_epoch_and_source() {
    let place = Place::new();
    let kubelet = place.simulator(|_| {}).await;
    let proxy = place.start(&[]).await;
    for method in [LIST, ALLOCATABLE, ALPHA_LIST] {
        let reply = place.call(method, |_| {}).await;
        reply.assert_ok(&reply.body);
        assert_eq!(label(&reply, "podresources-source"), Some("kubelet"), "{method}");
        assert_eq!(label(&reply, "podresources-stale"), None, "{method}");
        assert!(age(&reply) < Duration::from_hours(1), "{method}");
    }
    let before = label(&place.call(LIST, |_| {}).await, "podresources-epoch").unwrap().to_owned();
    kubelet.add_some_pod().await.unwrap();
    let after = label(&place.call(LIST, |_| {}).await, "podresources-epoch").unwrap().to_owned();
    let (instance, epoch) = before.split_once('-').unwrap();
    let (same, later) = after.split_once('-').unwrap();
    assert_eq!(instance, same);
    assert!(later.parse::<u64>().unwrap() > epoch.parse::<u64>().unwrap(), "{before}, {after}");
    proxy.stop().await;
}

#[tokio::test]
async fn a_max_age_of_zero_forces_a_capture_and_a_generous_one_does_not() {
    let place = Place::new();
    let kubelet = place.simulator(|_| {}).await;
    // Nothing but requests causes a capture once the start has settled.
    let proxy = place.start(&["--refresh-interval", "1h"]).await;
    proxy.ready().await;
    for (path, method) in [(LIST, Method::List), (ALLOCATABLE, Method::Allocatable), (ALPHA_LIST, Method::AlphaList)] {
        place.call(path, |_| {}).await;
        for _ in 0..5 {
            let before = kubelet.calls(method);
            let reply = place.call(path, with("podresources-max-age", "0s")).await;
            reply.assert_ok(&reply.body);
            assert!(kubelet.calls(method) > before, "{path} was not captured anew");
        }
    }
    let before = kubelet.calls(Method::List);
    for _ in 0..50 {
        let reply = place.call(LIST, with("podresources-max-age", "1h")).await;
        assert!(age(&reply) < Duration::from_hours(1));
    }
    // The captures that settle the start, at most.
    assert!(kubelet.calls(Method::List) <= before + 3, "{} captures", kubelet.calls(Method::List) - before);
    let (code, text) = place.call(LIST, with("podresources-max-age", "soon")).await.error();
    assert_eq!(code, Code::InvalidArgument);
    assert!(text.contains("\"soon\"") && text.contains("500ms, 5s, 1m"), "{text}");
    proxy.stop().await;
}

#[tokio::test]
async fn without_the_kubelet_answers_are_marked_then_refused_and_fresh_again_when_it_is_back() {
    let place = Place::new();
    let kubelet = place.simulator(|_| {}).await;
    let proxy = place.start(&["--max-stale", "1s"]).await;
    proxy.ready().await;
    let good = place.call(LIST, |_| {}).await;
    let pod = kubelet.node().pods().next().unwrap().key.clone();

    stop(&kubelet, &proxy).await;
    let stale = place.call(LIST, |_| {}).await;
    stale.assert_ok(&good.body);
    assert_eq!(label(&stale, "podresources-stale"), Some("true"));
    let mut refused = None;
    eventually("--max-stale is over", async || {
        let reply = place.call(LIST, |_| {}).await;
        let expired = reply.body.is_empty();
        if expired {
            refused = Some(reply.error());
        } else {
            assert_eq!(label(&reply, "podresources-stale"), Some("true"));
        }
        expired
    })
    .await;
    let (code, text) = refused.unwrap();
    assert_eq!(code, Code::Unavailable);
    assert!(text.starts_with("podresources-proxy: the kubelet cannot be reached since 2"), "{text}");
    assert!(text.contains(", longer than --max-stale 1s: nobody listens on "), "{text}");
    assert_eq!(place.call(GET, of_pod(&pod.namespace, &pod.name)).await.error().0, Code::Unavailable);

    kubelet.start_again().await.unwrap();
    kubelet.reach(Stage::Whole).await;
    let fresh = place.call(LIST, |_| {}).await;
    fresh.assert_ok(&fresh.body);
    assert_eq!(label(&fresh, "podresources-stale"), None);
    assert_eq!(fresh.body.len(), good.body.len());
    proxy.stop().await;
}

#[tokio::test]
async fn not_found_is_not_said_while_the_kubelet_is_away() {
    let place = Place::new();
    let kubelet = place.simulator(|_| {}).await;
    let proxy = place.start(&[]).await;
    proxy.ready().await;
    stop(&kubelet, &proxy).await;
    let (code, text) = place.call(GET, of_pod("nowhere", "nobody")).await.error();
    assert_eq!(code, Code::Unavailable);
    assert!(text.contains("and the last good snapshot does not have this pod: nobody listens on "), "{text}");
    proxy.stop().await;
}

#[tokio::test]
async fn a_hanging_kubelet_is_waited_for_until_the_clients_own_deadline() {
    let place = Place::new();
    let kubelet = place.simulator(|_| {}).await;
    let proxy = place.start(&[]).await;
    proxy.ready().await;
    kubelet.hang(true);
    // A change that the proxy sees; the pod is there when this returns.
    kubelet.add_some_pod().await.unwrap();
    let (code, text) = place.call(LIST, with("grpc-timeout", "700m")).await.error();
    assert_eq!(code, Code::Unavailable);
    assert!(text.starts_with("podresources-proxy: no answer newer than the last change within "), "{text}");
    assert!(text.contains(" is under way at the kubelet"), "{text}");
    kubelet.hang(false);
    let fresh = place.call(LIST, |_| {}).await;
    fresh.assert_ok(&fresh.body);
    proxy.stop().await;
}

/// One call of any method, with metadata; a Get asks for the pod.
async fn call_for(place: &Place, method: &str, pod: &PodKey, name: &'static str, value: &'static str) -> Reply {
    let change = |request: &mut Request<Body>| {
        with(name, value)(request);
        if method == GET {
            of_pod(&pod.namespace, &pod.name)(request);
        }
    };
    place.call(method, change).await
}

#[tokio::test]
async fn while_the_kubelet_hangs_each_client_has_its_own_fate_and_no_other_clients() {
    let place = Arc::new(Place::new());
    let kubelet = place.simulator(|_| {}).await;
    let proxy = place.start(&[]).await;
    proxy.ready().await;
    let pod = kubelet.node().pods().find(|pod| pod.phase == Phase::Prepared).unwrap().key.clone();
    place.call(ALPHA_LIST, |_| {}).await;
    kubelet.hang(true);
    // A change that the proxy sees.
    kubelet.add_some_pod().await.unwrap();

    // Those who want the newest wait, each for as long as it likes.
    let ended = Arc::new(Mutex::new(Vec::new()));
    let wait = |deadline: &'static str, method: &'static str| {
        let (place, ended, pod) = (Arc::clone(&place), Arc::clone(&ended), pod.clone());
        tokio::spawn(async move {
            let reply = call_for(&place, method, &pod, "grpc-timeout", deadline).await;
            ended.lock().unwrap().push(deadline);
            reply
        })
    };
    let methods = [LIST, GET, ALLOCATABLE, ALPHA_LIST];
    let waiting: Vec<_> = ["900m", "1800m"].iter().flat_map(|deadline| methods.map(|method| wait(deadline, method))).collect();
    let patient: Vec<_> = methods.iter().map(|method| wait("60S", method)).collect();

    // Those who are content with an older answer have it at once, as often as they ask, whoever waits meanwhile.
    for _ in 0..20 {
        for method in methods {
            let reply = call_for(&place, method, &pod, "podresources-max-age", "1h").await;
            assert!(reply.body.len() > 5, "{method}: {reply:?}");
            assert_eq!(label(&reply, "podresources-stale"), None, "{method}");
        }
    }
    for waiting in waiting {
        let (code, text) = waiting.await.unwrap().error();
        assert_eq!(code, Code::Unavailable);
        assert!(text.starts_with("podresources-proxy: no answer newer than the last change within "), "{text}");
    }
    assert_eq!(*ended.lock().unwrap(), [["900m"; 4], ["1800m"; 4]].concat(), "each at its own deadline");
    assert!(patient.iter().all(|patient| !patient.is_finished()), "they wait still");
    kubelet.hang(false);
    for patient in patient {
        let reply = patient.await.unwrap();
        reply.assert_ok(&reply.body);
    }
    proxy.stop().await;
}
