//! Two of us at one socket, and how one of us ends.

use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use podresources_proxy::simulate::Method;
use rustix::process::Signal;

use crate::client::{Client, LIST, Reply, request};
use crate::harness::{PATIENCE, Place, call, eventually, with};

fn inode(place: &Place) -> u64 {
    std::fs::symlink_metadata(place.listen()).unwrap().ino()
}

#[tokio::test]
async fn a_second_one_without_replace_is_refused_and_the_first_goes_on() {
    let place = Place::new();
    let _kubelet = place.simulator(|_| {}).await;
    let first = place.start(&[]).await;
    first.ready().await;
    let socket = inode(&place);
    for (flags, said) in
        [(vec![], "the admin socket "), (vec!["--admin-socket", "off"], "kubelet.sock is served by a living process (process ")]
    {
        let mut second = place.spawn(place.run(&flags));
        assert_eq!(second.ended().await.code(), Some(1));
        let log = second.log();
        assert!(log.starts_with("error: ") && log.contains(said) && log.contains("--replace"), "{log}");
    }
    assert_eq!(inode(&place), socket);
    place.call(LIST, |_| {}).await.trailers.expect("an answer");
    first.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replacing_one_another_refuses_no_connection_and_fails_no_call() {
    const ROUNDS: usize = 4;
    let place = Arc::new(Place::new());
    let _kubelet = place.simulator(|_| {}).await;
    // All clients here are one to the proxy, and its rate is not what this is about.
    let mut old = place.start(&["--admission", "off"]).await;
    old.ready().await;
    let (over, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let (path, over, calls) = (place.listen(), Arc::clone(&over), Arc::clone(&calls));
            tokio::spawn(async move {
                while !over.load(SeqCst) {
                    let reply = call(&path, LIST, |_| {}).await.expect("a call");
                    reply.assert_ok(&reply.body);
                    assert!(reply.body.len() > 1000, "an empty list");
                    calls.fetch_add(1, SeqCst);
                }
            })
        })
        .collect();
    for _ in 0..ROUNDS {
        let (socket, before) = (inode(&place), calls.load(SeqCst));
        let new = place.spawn(place.run(&["--replace", "--admission", "off"]));
        let status = old.ended().await;
        assert_eq!(status.code(), Some(0), "{}", old.log());
        assert!(old.log().contains("another instance has taken the socket over"), "{}", old.log());
        assert_ne!(inode(&place), socket, "the socket's file is the new one's");
        new.ready().await;
        eventually("calls go on", async || calls.load(SeqCst) >= before + 50).await;
        old = new;
    }
    over.store(true, SeqCst);
    for client in clients {
        client.await.unwrap();
    }
    old.stop().await;
    assert!(!place.listen().exists());
}

#[tokio::test]
async fn a_replacement_that_cannot_get_a_first_answer_takes_nothing() {
    let place = Place::new();
    let kubelet = place.simulator(|_| {}).await;
    let old = place.start(&[]).await;
    old.ready().await;
    let socket = inode(&place);
    kubelet.stop().await;
    let new = place.spawn(place.run(&["--replace", "--admin-socket", place.path("admin/new.sock").to_str().unwrap()]));
    eventually("it says what it waits for", async || new.log().contains("the kubelet cannot be reached")).await;
    assert_eq!(inode(&place), socket);
    place.call(LIST, |_| {}).await.trailers.expect("an answer");
    new.stop().await;
    assert_eq!(inode(&place), socket);
    old.stop().await;
}

/// A call on its way, and what becomes of it.
async fn started(place: &Place) -> tokio::task::JoinHandle<Option<Reply>> {
    let Client { mut send, connection } = Client::connect(&place.listen()).await.unwrap();
    tokio::spawn(async move {
        let mut request = request(LIST);
        with("podresources-max-age", "0s")(&mut request);
        send.ready().await.unwrap();
        let reply = match send.send_request(request).await {
            Ok(response) => Reply::read(response).await.ok(),
            Err(_) => None,
        };
        connection.abort();
        reply
    })
}

#[tokio::test]
async fn a_call_that_the_kubelet_is_still_answering_is_finished_after_sigterm() {
    let place = Place::new();
    let kubelet = place.simulator(|_| {}).await;
    let mut proxy = place.start(&["--grace", "30s"]).await;
    proxy.ready().await;
    kubelet.hang(true);
    let before = kubelet.calls(Method::List);
    let reply = started(&place).await;
    eventually("the kubelet is asked", async || kubelet.calls(Method::List) > before).await;
    proxy.signal(Signal::TERM);
    eventually("no new client gets in", async || !place.listen().exists()).await;
    kubelet.hang(false);
    let reply = reply.await.unwrap().expect("an answer");
    reply.assert_ok(&reply.body);
    assert_eq!(proxy.ended().await.code(), Some(0), "{}", proxy.log());
}

#[tokio::test]
async fn a_call_that_waits_in_vain_gets_its_end_within_the_grace_after_sigterm() {
    let place = Place::new();
    let mut proxy = place.start(&["--grace", "500ms"]).await;
    let reply = started(&place).await;
    eventually("the call waits", async || proxy.admin("/metrics").await.contains("podresources_proxy_waiting 1\n")).await;
    proxy.signal(Signal::TERM);
    // The deadline of the call itself is 10 s, that of this wait far more.
    let ended = tokio::time::timeout(PATIENCE, reply).await.expect("an end").unwrap();
    if let Some(reply) = ended {
        assert_eq!(reply.error().0, podresources_proxy::grpc::Code::Unavailable);
    }
    assert_eq!(proxy.ended().await.code(), Some(0), "{}", proxy.log());
    assert!(!place.listen().exists());
}

#[tokio::test]
async fn the_dead_sockets_of_a_killed_one_are_replaced_by_the_next() {
    let place = Place::new();
    let _kubelet = place.simulator(|_| {}).await;
    let mut proxy = place.start(&[]).await;
    proxy.ready().await;
    proxy.signal(Signal::KILL);
    assert_eq!(proxy.ended().await.code(), None);
    assert!(place.listen().exists() && place.path("admin/admin.sock").exists());
    assert!(call(&place.listen(), LIST, |_| {}).await.is_err());
    let next = place.start(&[]).await;
    next.ready().await;
    let reply = Client::connect(&place.listen()).await.unwrap().ask(LIST, |_| {}).await;
    reply.assert_ok(&reply.body);
    next.stop().await;
    assert!(!place.listen().exists());
}
