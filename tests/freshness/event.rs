//! From the kernel's event to the answer: what a List takes that begins the moment after a change.
//!
//! `EVENTS` for another number of changes; figures are printed beside what is wanted, not judged.

use std::time::Duration;

use tokio::time::Instant;

use crate::harness::client::{Client, LIST};
use crate::storm::{OURS, Weather};

/// Half as often as the budget allows calls: the others are for the captures that settle a burst.
const PACE: Duration = Duration::from_millis(100);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes cgroups, as root"]
async fn a_list_right_after_a_change_shows_it_and_is_there_within_two_of_the_kubelets() {
    let events = std::env::var("EVENTS").map_or(50, |events| events.parse().expect("EVENTS is a number"));
    let mut weather = Weather::begin("event", &[]).await;
    let mut client = Client::connect(&weather.place.listen()).await.unwrap();
    let upstream = weather.upstream_list().await;
    let changes = weather.state.changes();
    let mut took = Vec::new();
    for round in 0..events {
        let expected = weather.state.make(changes[round % changes.len()], round);
        let made = Instant::now();
        let reply = client.ask(LIST, |_| {}).await;
        took.push(made.elapsed());
        expected.assert_in(&reply.body);
        tokio::time::sleep(PACE).await;
    }
    took.sort_unstable();
    let at = |part: usize| took[(took.len() - 1) * part / 100];
    println!("event to answer: p50 {:?}, p99 {:?} of {events}", at(50), at(99));
    println!("wanted: p99 of at most {:?}, with {upstream:?} for a List of the kubelet's", 2 * upstream + OURS);
    drop(client);
    weather.proxy.stop().await;
}
