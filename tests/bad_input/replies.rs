//! A kubelet whose replies are broken: none is published, the last good answer stays what it was, and the log says it once.

use std::fs;

use podresources_proxy::grpc::{Code, Status};
use podresources_proxy::proto::v1::ListPodResourcesResponse;
use podresources_proxy::simulate::{Broken, Fault, Method, Phase};
use prost::Message as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixListener;

use crate::client::{ALLOCATABLE, GET, LIST, Reply};
use crate::harness::{Place, Proxy, eventually, of_pod, with};

fn pods(reply: &Reply) -> usize {
    reply.assert_ok(&reply.body);
    ListPodResourcesResponse::decode(reply.body.slice(5..)).unwrap().pod_resources.len()
}

/// How often the log warns with this text.
fn warnings(proxy: &Proxy, text: &str) -> usize {
    proxy.log().lines().filter(|line| line.contains(" WARN ") && line.contains(text)).count()
}

/// A List that must wait for a capture: what is said when none succeeds in time.
async fn waited_in_vain(place: &Place) -> String {
    let (code, text) = place
        .call(LIST, |request| {
            with("podresources-max-age", "0s")(request);
            with("grpc-timeout", "400m")(request);
        })
        .await
        .error();
    assert_eq!(code, Code::Unavailable, "{text}");
    text
}

/// Breaks every List from some moment on, and mends it again.
async fn survives(broken: Broken, flags: &[&str], said: &str) {
    let place = Place::new();
    let kubelet = place.simulator(|config| config.pods = 20).await;
    let proxy = place.start(flags).await;
    proxy.ready().await;
    let good = place.call(LIST, |_| {}).await;
    kubelet.fail(Fault::new(broken).on(Method::List).always());
    // A change: from now on the old list will not do.
    kubelet.add_some_pod().await.unwrap();
    let before = kubelet.calls(Method::List);
    let mut text = String::new();
    eventually("the request says what is wrong", async || {
        text = waited_in_vain(&place).await;
        text.contains(said)
    })
    .await;
    assert!(text.starts_with("podresources-proxy: no answer newer than the last change within "), "{text}");
    eventually("the kubelet is asked again", async || kubelet.calls(Method::List) >= before + 3).await;
    // Who takes an older one gets the last good one, whole.
    place.call(LIST, with("podresources-max-age", "1h")).await.assert_ok(&good.body);
    assert_eq!(warnings(&proxy, said), 1, "the log says it once:\n{}", proxy.log());
    kubelet.clear_faults();
    assert_eq!(pods(&place.call(LIST, |_| {}).await), 21);
    proxy.stop().await;
}

#[tokio::test]
async fn a_reply_that_stops_half_way() {
    survives(Broken::Truncated, &[], "the reply ended before its message was whole").await;
}

#[tokio::test]
async fn a_reply_that_is_shorter_than_its_prefix_says() {
    survives(Broken::WrongLength(7), &[], "the reply ended before its message was whole").await;
}

#[tokio::test]
async fn a_reply_that_is_longer_than_its_prefix_says() {
    survives(Broken::WrongLength(-3), &[], "the kubelet answered List with a reply that does not parse (").await;
}

#[tokio::test]
async fn a_reply_that_is_no_protobuf() {
    survives(Broken::Garbage, &[], "the kubelet answered List with a reply that does not parse (").await;
}

#[tokio::test]
async fn a_reply_larger_than_max_reply_names_the_flag() {
    survives(Broken::Large(2 << 20), &["--max-reply", "1MiB"], "the reply is larger than 1048576 bytes; raise --max-reply").await;
}

#[tokio::test]
async fn a_reply_of_64_mib_is_more_than_is_taken_by_default() {
    survives(Broken::Large(64 << 20), &[], "the reply is larger than 67108864 bytes; raise --max-reply").await;
}

#[tokio::test]
async fn a_connection_that_breaks_in_the_middle_of_a_reply() {
    survives(Broken::DropConnection, &[], "the connection failed").await;
}

#[tokio::test]
async fn a_stream_that_is_reset_in_the_middle_of_a_reply() {
    survives(Broken::Reset, &[], "the connection failed").await;
}

#[tokio::test]
async fn a_stream_that_ends_without_a_status() {
    survives(Broken::NoTrailers, &[], "the reply ended without a status").await;
}

#[tokio::test]
async fn an_error_of_the_kubelets_own_is_told_with_its_code_and_text() {
    let panicked = Status::new(Code::Internal, "runtime error: invalid memory address".to_owned());
    survives(Broken::Status(panicked), &[], "runtime error: invalid memory address").await;
}

#[tokio::test]
async fn a_reply_that_is_large_and_allowed_is_passed_on() {
    let place = Place::new();
    let kubelet = place.simulator(|config| config.pods = 1).await;
    kubelet.fail(Fault::new(Broken::Large(9 << 20)).on(Method::List).always());
    let proxy = place.start(&[]).await;
    assert!(place.call(LIST, |_| {}).await.body.len() > 9 << 20);
    proxy.stop().await;
}

#[tokio::test]
async fn the_kubelets_rate_limit_is_waited_out_and_never_passed_on() {
    let place = Place::new();
    let kubelet = place.simulator(|config| config.rate = None).await;
    let proxy = place.start(&[]).await;
    proxy.ready().await;
    let limited = || Broken::Status(Status::new(Code::ResourceExhausted, "rejected by rate limit"));
    kubelet.fail(Fault::new(limited()).times(5));
    kubelet.add_some_pod().await.unwrap();
    assert_eq!(pods(&place.call(LIST, |_| {}).await), 111);

    kubelet.fail(Fault::new(limited()).always());
    kubelet.add_some_pod().await.unwrap();
    for method in [LIST, ALLOCATABLE] {
        let (code, text) = place
            .call(method, |request| {
                with("podresources-max-age", "0s")(request);
                with("grpc-timeout", "400m")(request);
            })
            .await
            .error();
        assert_eq!(code, Code::Unavailable, "{method}");
        assert!(text.contains("the kubelet's rate limit is used up"), "{text}");
    }
    kubelet.clear_faults();
    assert_eq!(pods(&place.call(LIST, |_| {}).await), 112);
    // At most once for each of the two calls, and so the second time.
    assert!((1..=4).contains(&warnings(&proxy, "the kubelet's rate limit is used up")), "{}", proxy.log());
    proxy.stop().await;
}

#[tokio::test]
async fn one_method_that_always_fails_is_told_once_and_harms_no_other() {
    let place = Place::new();
    let kubelet = place.simulator(|_| {}).await;
    let proxy = place.start(&["--refresh-interval", "100ms"]).await;
    proxy.ready().await;
    // Ready is said with the first List: the other reply may come a moment later.
    place.call(ALLOCATABLE, |_| {}).await.trailers.expect("an answer");
    let panicked = Status::new(Code::Unknown, "runtime error: index out of range".to_owned());
    kubelet.fail(Fault::new(Broken::Status(panicked)).on(Method::Allocatable).always());
    let before = kubelet.calls(Method::Allocatable);
    eventually("it has failed often", async || {
        assert!(pods(&place.call(LIST, with("podresources-max-age", "0s")).await) > 0);
        kubelet.calls(Method::Allocatable) >= before + 5
    })
    .await;
    assert_eq!(warnings(&proxy, "index out of range"), 1, "{}", proxy.log());
    // The last good one stays as long as nothing has changed.
    place.call(ALLOCATABLE, with("podresources-max-age", "1h")).await.trailers.expect("an answer");
    proxy.stop().await;
}

#[tokio::test]
async fn a_broken_reply_to_a_forwarded_get_is_not_passed_on() {
    let place = Place::new();
    let kubelet = place.simulator(|_| {}).await;
    let proxy = place.start(&[]).await;
    proxy.ready().await;
    for (broken, why) in [
        (Broken::Garbage, "it does not parse"),
        (Broken::Truncated, "the reply ended before its message was whole"),
        (Broken::NoTrailers, "the reply ended without a status"),
    ] {
        // Of a pod that is there, but not in List, so that there is a message to break.
        kubelet.fail(Fault::new(broken).on(Method::Get));
        let key = kubelet.node().pods().find(|pod| pod.phase == Phase::Terminated).unwrap().key.clone();
        let (code, text) = place.call(GET, of_pod(&key.namespace, &key.name)).await.error();
        assert_eq!(code, Code::Unavailable);
        assert_eq!(text, format!("podresources-proxy: the kubelet's reply to Get cannot be used: {why}"));
        let got = place.call(GET, of_pod(&key.namespace, &key.name)).await;
        got.assert_ok(&got.body);
    }
    proxy.stop().await;
}

#[tokio::test]
async fn somebody_else_at_the_kubelets_socket_is_called_what_he_is() {
    let place = Place::new();
    let kubelet = place.simulator(|config| config.pods = 20).await;
    let proxy = place.start(&[]).await;
    proxy.ready().await;
    let good = place.call(LIST, |_| {}).await;
    kubelet.stop().await;
    fs::remove_file(place.kubelet()).unwrap();
    let stranger = UnixListener::bind(place.kubelet()).unwrap();
    let answering = tokio::spawn(async move {
        loop {
            let (mut socket, _) = stranger.accept().await.unwrap();
            // The proxy may have hung up.
            drop(socket.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await);
        }
    });
    let said = "kubelet.sock does not speak HTTP/2; is it a podresources socket?";
    eventually("the request says what is wrong", async || waited_in_vain(&place).await.contains(said)).await;
    place.call(LIST, with("podresources-max-age", "1h")).await.assert_ok(&good.body);
    assert_eq!(warnings(&proxy, said), 1, "{}", proxy.log());
    answering.abort();
    assert!(answering.await.unwrap_err().is_cancelled());
    kubelet.start_again().await.unwrap();
    assert_eq!(pods(&place.call(LIST, |_| {}).await), 20);
    proxy.stop().await;
}
