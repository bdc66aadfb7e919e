//! The race between a change and the next List: an answer that begins after the kernel's state has changed shows the change.
//!
//! An upstream that answers from the kernel's state itself stands behind the proxy; each round changes that state and asks at once. One
//! old answer, or one marked stale, fails. `RACE_ROUNDS` says how often (1,000).

use podresources_proxy::proto::v1::ListPodResourcesResponse;
use prost::Message as _;

use crate::harness::client::{Client, LIST};
use crate::harness::{self, Place};
use crate::state::{Change, State};
use crate::upstream::Upstream;

/// How many changes are made by each test.
fn rounds() -> usize {
    std::env::var("RACE_ROUNDS").map_or(1_000, |rounds| rounds.parse().expect("RACE_ROUNDS is a number"))
}

/// Changes the kernel's state so many times, in every way that `wanted` lets through, and looks at the List that follows.
async fn race(name: &str, sources: &str, wanted: impl Fn(Change) -> bool) {
    let place = Place::new();
    let mut state = State::new(name, &place.path("kubelet"));
    let upstream = Upstream::start(&place.kubelet(), state.seen());
    // Nothing here comes of the timer, and the budget leaves every request its own flight.
    let flags = [
        "--change-sources",
        sources,
        "--refresh-interval",
        "1h",
        "--upstream-rate",
        "100000/s",
        "--upstream-burst",
        "1000",
        "--admission",
        "off",
    ];
    let mut command = place.run(&flags);
    command.env("PODRESOURCES_PROXY_CGROUP_ROOT", "/sys/fs/cgroup");
    let proxy = place.spawn(command);
    harness::eventually("the socket is in place", async || place.listen().exists()).await;
    proxy.ready().await;
    let mut client = Client::connect(&place.listen()).await.unwrap();
    let changes: Vec<Change> = state.changes().into_iter().filter(|change| wanted(*change)).collect();
    assert!(!changes.is_empty(), "{name}: no kind of change can be made on this machine");
    let mut made = std::collections::BTreeMap::<_, usize>::new();
    for round in 0..rounds() {
        let change = changes[round % changes.len()];
        let expected = state.make(change, round);
        let reply = client.ask(LIST, |_| {}).await;
        assert_eq!(reply.headers.get("podresources-stale"), None, "{name}, round {round}, {change:?}: marked stale");
        let list = ListPodResourcesResponse::decode(reply.body.get(5..).expect("a message")).unwrap();
        if let Err(found) = expected.holds(&list) {
            panic!("{name}, round {round}: {change:?} was made, and the next List was older: {found}\n{}", proxy.log());
        }
        *made.entry(format!("{change:?}")).or_default() += 1;
    }
    let calls = upstream.calls();
    println!("{name}: {made:?}, 0 old answers; {calls} calls to the upstream");
    drop(client);
    proxy.stop().await;
}

/// Everything that can be made here, whatever sees it.
fn all(_: Change) -> bool {
    true
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes cgroups, as root"]
async fn with_inotify_alone_no_answer_is_older_than_the_change_before_it() {
    race("inotify", "kubepods,kubelet-dirs", all).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes cgroups, as root"]
async fn with_fanotify_for_cgroups_no_answer_is_older_than_the_change_before_it() {
    race("fanotify", "fanotify,kubelet-dirs", all).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes cgroups, as root"]
async fn with_everything_that_works_here_no_answer_is_older_than_the_change_before_it() {
    race("default", "ebpf,fanotify,kubepods,kubelet-dirs", all).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes cgroups, as root"]
async fn with_ebpf_alone_no_answer_is_older_than_the_cgroup_made_or_removed_before_it() {
    race("ebpf", "ebpf", Change::is_of_cgroups).await;
}

/// Where fexit or kprobes can be had, eBPF needs nothing beside it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes cgroups, as root, on a kernel that grants fexit or kprobes"]
async fn with_ebpf_alone_no_answer_is_older_than_any_change_before_it() {
    race("ebpf-all", "ebpf", all).await;
}
