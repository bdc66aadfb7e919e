//! Answers that go wrong on purpose.

use tokio::time::timeout;

use super::*;
use crate::grpc::Status;
use crate::simulate::{Broken, Fault};

#[tokio::test]
async fn a_truncated_message_announces_more_than_comes() {
    let lab = Lab::start(|_| {}).await;
    lab.sim.set_list(Bytes::from(vec![7; 1000]));
    lab.sim.fail(Broken::Truncated);
    let Outcome::Ok(body) = lab.client().await.ask(Method::List).await else { panic!("the status is well") };
    assert_eq!((&body[..PREFIX_LEN], body.len()), (&crate::grpc::prefix(1000)[..], PREFIX_LEN + 500));
}

#[tokio::test]
async fn a_wrong_length_prefix_is_wrong_by_as_much_as_asked() {
    let lab = Lab::start(|_| {}).await;
    lab.sim.set_list(Bytes::from(vec![7; 1000]));
    for (by, announced) in [(24, 1024), (-1000, 0)] {
        lab.sim.fail(Broken::WrongLength(by));
        let Outcome::Ok(body) = lab.client().await.ask(Method::List).await else { panic!("the status is well") };
        assert_eq!((&body[..PREFIX_LEN], body.len()), (&crate::grpc::prefix(announced)[..], PREFIX_LEN + 1000));
    }
}

#[tokio::test]
async fn garbage_is_well_framed_and_no_protobuf() {
    let lab = Lab::start(|_| {}).await;
    lab.sim.fail(Broken::Garbage);
    let message = lab.client().await.ask(Method::List).await.message();
    assert!(v1::ListPodResourcesResponse::decode(message).is_err());
}

#[tokio::test]
async fn a_reply_of_64_mib_is_whole_and_well_formed() {
    let lab = Lab::start(|_| {}).await;
    lab.sim.fail(Broken::Large(64 << 20));
    let message = lab.client().await.ask(Method::List).await.message();
    assert!(message.len() >= 64 << 20);
    assert_eq!(v1::ListPodResourcesResponse::decode(message).unwrap().pod_resources.len(), 2048);
}

#[tokio::test]
async fn a_dropped_connection_ends_in_the_middle_of_the_message() {
    let lab = Lab::start(|_| {}).await;
    lab.sim.set_list(Bytes::from(vec![7; 1000]));
    lab.sim.fail(Broken::DropConnection);
    let mut client = lab.client().await;
    let Outcome::Broken(body) = client.ask(Method::List).await else { panic!("there is no status") };
    assert_eq!(body.len(), PREFIX_LEN + 500);
    assert_eq!(client.ask(Method::List).await, Outcome::Broken(Bytes::new()), "the connection is gone");
    lab.client().await.ask(Method::List).await.message();
}

#[tokio::test]
async fn a_reset_stream_leaves_its_connection_alone() {
    let lab = Lab::start(|_| {}).await;
    lab.sim.fail(Broken::Reset);
    let mut client = lab.client().await;
    let broken = client.ask(Method::List).await;
    assert!(matches!(&broken, Outcome::Broken(body) if !body.is_empty()), "{broken:?}");
    assert_eq!(client.list().await.pod_resources.len(), 110);
}

#[tokio::test]
async fn a_reply_without_trailers_has_the_message_and_no_status() {
    let lab = Lab::start(|_| {}).await;
    lab.sim.set_list(Bytes::from_static(b"whole"));
    lab.sim.fail(Broken::NoTrailers);
    let broken = lab.client().await.ask(Method::List).await;
    assert_eq!(broken, Outcome::Broken(Bytes::from_static(b"\0\0\0\0\x05whole")));
}

#[tokio::test]
async fn a_status_comes_as_often_as_asked_and_then_all_is_well() {
    let lab = Lab::start(|_| {}).await;
    let exhausted = Status::new(Code::ResourceExhausted, "rejected by rate limit");
    lab.sim.fail(Fault::new(Broken::Status(exhausted)).on(Method::List).times(3));
    let mut client = lab.client().await;
    client.ask(Method::Allocatable).await.message();
    for _ in 0..3 {
        let text = "rejected by rate limit".to_owned();
        assert_eq!(client.ask(Method::List).await, Outcome::Status(Code::ResourceExhausted, text));
    }
    client.ask(Method::List).await.message();
    assert_eq!(lab.sim.calls(Method::List), 4);
}

#[tokio::test]
async fn a_hanging_kubelet_takes_the_call_and_answers_when_it_wakes() {
    let lab = Lab::start(|config| config.hang = true).await;
    let mut client = lab.client().await;
    let mut call = Box::pin(client.ask(Method::List));
    until_called(&lab, &mut call).await;
    assert!(timeout(Duration::from_millis(50), &mut call).await.is_err());
    lab.sim.hang(false);
    call.await.message();
}

#[tokio::test]
async fn a_call_that_hangs_does_not_keep_the_kubelet_from_stopping() {
    let lab = Lab::start(|_| {}).await;
    lab.sim.fail(Broken::Hang);
    let mut client = lab.client().await;
    let mut call = Box::pin(client.ask(Method::List));
    until_called(&lab, &mut call).await;
    timeout(Duration::from_secs(10), lab.sim.stop()).await.expect("it stops");
    assert!(!matches!(call.await, Outcome::Ok(_)));
}

/// Drives a call that gets no answer until the kubelet has it.
async fn until_called(lab: &Lab, call: &mut (impl Future<Output = Outcome> + Unpin)) {
    while lab.sim.calls(Method::List) == 0 {
        assert!(timeout(Duration::from_millis(1), &mut *call).await.is_err(), "it is answered");
    }
}

#[tokio::test(start_paused = true)]
async fn latency_is_waited_before_each_answer() {
    let lab = Lab::start(|config| config.latency = Duration::from_secs(3)).await;
    let mut client = lab.client().await;
    let start = tokio::time::Instant::now();
    client.list().await;
    assert!(start.elapsed() >= Duration::from_secs(3));
    lab.sim.set_latency(Duration::ZERO);
    let start = tokio::time::Instant::now();
    client.list().await;
    assert!(start.elapsed() < Duration::from_secs(3));
}
