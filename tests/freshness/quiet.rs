//! A quiet node: however many clients ask, the kubelet is asked no more than by nobody.
//!
//! `QUIET_SECONDS` for another length; figures are printed.

use std::time::Duration;

use podresources_proxy::simulate::Method;
use tokio::time::{Instant, sleep, timeout};

use crate::harness::client::{Client, LIST};
use crate::harness::{PATIENCE, Place};

/// The most that a quiet node may cost the kubelet, in calls a second.
const MOST: f64 = 0.25;
/// Lists a second, of all clients together.
const LISTS: u32 = 2_000;
/// Until the captures that settle the start are over, the last of them 3 s after it.
const SETTLED: Duration = Duration::from_secs(5);

fn length() -> Duration {
    Duration::from_secs(std::env::var("QUIET_SECONDS").map_or(10, |seconds| seconds.parse().expect("QUIET_SECONDS is a number")))
}

/// Asks in turn over so many connections, at a steady rate; how many replies came.
async fn ask(place: &Place, clients: u32) -> u32 {
    let mut connections = Vec::new();
    for _ in 0..clients {
        connections.push(Client::connect(&place.listen()).await.unwrap());
    }
    let (began, mut asked) = (Instant::now(), 0);
    while clients > 0 && began.elapsed() < length() {
        let client = &mut connections[(asked % clients) as usize];
        let reply = timeout(PATIENCE, client.ask(LIST, |_| {})).await.expect("a reply");
        reply.assert_ok(&reply.body);
        asked += 1;
        sleep((Duration::from_secs(1) / LISTS * asked).saturating_sub(began.elapsed())).await;
    }
    sleep(length().saturating_sub(began.elapsed())).await;
    asked
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes most of a minute"]
async fn a_quiet_node_costs_the_kubelet_the_same_few_calls_whoever_asks() {
    let place = Place::new();
    let kubelet = place.simulator(|config| config.pods = 110).await;
    let proxy = place.start(&["--admission", "off"]).await;
    proxy.ready().await;
    sleep(SETTLED).await;
    for clients in [0, 1, 1_000] {
        let calls = || {
            [Method::List, Method::Allocatable, Method::Get, Method::AlphaList]
                .into_iter()
                .map(|method| kubelet.calls(method))
                .sum::<u64>()
        };
        let before = calls();
        let asked = ask(&place, clients).await;
        let calls = calls() - before;
        let rate = f64::from(u32::try_from(calls).unwrap()) / length().as_secs_f64();
        println!("{clients} clients, {asked} Lists in {:?}: {calls} calls to the kubelet, {rate:.2}/s", length());
        // One more may fall into the span, as the timer has its own beat.
        assert!(rate <= MOST + 1.0 / length().as_secs_f64(), "{clients} clients cost the kubelet {rate} calls a second");
        assert!(clients == 0 || asked > 0);
    }
    proxy.stop().await;
}
