//! The kubelet away for good, back, and hanging.

use std::fs;
use std::time::Duration;

use bytes::Bytes;
use rustix::process::Signal;
use tokio::time::sleep;
use tonic::Request;

use crate::call::{Client, LIST, Reply, get_request};
use crate::canonical;
use crate::node::{Kind, Node};
use crate::proxy::Proxy;

const OK: i32 = 0;
/// How a deadline ends: by the client's own clock as CANCELLED, by ours as UNAVAILABLE with a text; whichever is first.
const DEADLINE: [i32; 2] = [1, UNAVAILABLE];
const UNAVAILABLE: i32 = 14;

fn is_marked_stale(reply: &Reply) -> bool {
    reply.metadata.get("podresources-stale").is_some_and(|value| value == "true")
}

/// A List that the client waits for no longer than this.
fn list_within(deadline: Duration) -> Request<Bytes> {
    let mut request = Request::new(Bytes::new());
    request.set_timeout(deadline);
    request
}

/// Calls until the reply is as wanted; the test ends badly if it never is.
async fn list_until(client: &mut Client, what: &str, wanted: impl Fn(&Reply) -> bool) -> Reply {
    for _ in 0..600 {
        let reply = client.call(LIST, Bytes::new()).await;
        if wanted(&reply) {
            return reply;
        }
        sleep(Duration::from_millis(50)).await;
    }
    panic!("never: {what}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real kubelet: `cargo xtask test --only kubelet`"]
async fn without_a_kubelet_answers_go_on_marked_until_max_stale_and_are_fresh_when_it_is_back() {
    let node = Node::start();
    let proxy = Proxy::start(&node, &["--source", "kubelet", "--max-stale", "4s"]).await;
    let mut client = Client::connect(&proxy.socket()).await;
    let before = client.call(LIST, Bytes::new()).await;
    assert_eq!(before.code, OK, "{before:?}");
    assert!(!is_marked_stale(&before), "{before:?}");

    node.kill_kubelet().await;
    let after = client.call(LIST, Bytes::new()).await;
    assert_eq!((after.code, &after.message), (OK, &before.message), "{after:?}");
    let marked = list_until(&mut client, "an answer marked as stale", is_marked_stale).await;
    assert_eq!(marked.message, before.message);

    let refused = list_until(&mut client, "UNAVAILABLE after --max-stale", |reply| reply.code != OK).await;
    assert_eq!(refused.code, UNAVAILABLE, "{refused:?}");
    println!("after --max-stale: {}", refused.text);
    assert!(refused.text.contains("kubelet") && refused.text.contains("since"), "why, and since when: {}", refused.text);

    node.restart_kubelet();
    let back = list_until(&mut client, "fresh answers again", |reply| reply.code == OK && !is_marked_stale(reply)).await;
    assert_eq!(canonical::text(LIST, &back.message), canonical::text(LIST, &before.message), "nothing was lost on the way");
    node.add_pod("later", Kind::Device);
    node.running("later", Kind::Device).await;
    let get = client.call(crate::call::GET, get_request("default", "later-node1")).await;
    assert_eq!(get.code, OK, "a pod of the new kubelet's: {get:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real kubelet: `cargo xtask test --only kubelet`"]
async fn while_the_kubelet_hangs_requests_after_a_change_wait_and_never_get_an_old_answer() {
    let node = Node::start();
    let proxy = Proxy::start(&node, &["--source", "kubelet"]).await;
    let mut client = Client::connect(&proxy.socket()).await;
    let before = client.call(LIST, Bytes::new()).await;
    assert_eq!(before.code, OK, "{before:?}");

    node.signal_kubelet(Signal::STOP);
    // What an allocation looks like from outside: a state file renamed into place, here the same one.
    let state = node.kubelet_dir().join("cpu_manager_state");
    let copy = state.with_extension("new");
    fs::copy(&state, &copy).unwrap();
    fs::rename(&copy, &state).unwrap();

    let mut other = Client::connect(&proxy.socket()).await;
    let waiting = client.send(LIST, list_within(Duration::from_secs(1)));
    let content = async {
        let mut request = list_within(Duration::from_secs(1));
        request.metadata_mut().insert("podresources-max-age", "1h".parse().unwrap());
        other.send(LIST, request).await
    };
    let (waited, content) = tokio::join!(waiting, content);
    assert!(DEADLINE.contains(&waited.code), "an answer from before the change, or an error too early: {waited:?}");
    assert_eq!((content.code, &content.message), (OK, &before.message), "who is content with an old answer has it: {content:?}");

    let patient = tokio::spawn(async move { client.call(LIST, Bytes::new()).await });
    sleep(Duration::from_millis(200)).await;
    assert!(!patient.is_finished(), "it waits");
    node.signal_kubelet(Signal::CONT);
    let patient = patient.await.unwrap();
    assert_eq!(patient.code, OK, "{patient:?}");
    assert!(!is_marked_stale(&patient), "{patient:?}");
    assert_eq!(canonical::text(LIST, &patient.message), canonical::text(LIST, &before.message));
}
