//! The kubelet is restarted again and again while many clients ask and pods come and go: nobody sees an error, a short list, or a ghost.
//!
//! `RESTARTS=50` for the long form; figures are printed.

use std::time::Duration;

use crate::node::{Kind, Node, wait};
use crate::proxy::Proxy;
use crate::storm::{Micros, Seen, Storm, now};

const CLIENTS: u32 = 20;
const CALLS_PER_SECOND: u32 = 20;
const RESTARTS: usize = 3;

/// How long a pod may be listed after its cgroup has gone: by then the kubelet itself has let go of it for a second.
const GHOST_BOUND: Micros = 1_000_000;

/// A pod of the test's, and when it was what.
#[derive(Debug)]
struct Life {
    pod: String,
    devices: u32,
    added: Micros,
    running: Micros,
    /// Its removal began; until then every list must have it.
    removed: Micros,
    /// Its cgroup was gone.
    gone: Micros,
}

// === impl Life ===

impl Life {
    fn new(name: &str, namespace: &str, devices: u32, added: Micros) -> Self {
        let pod = format!("{namespace}/{name}-node1");
        Self { pod, devices, added, running: Micros::MAX, removed: Micros::MAX, gone: Micros::MAX }
    }

    /// Whether this list lacks the pod or its devices, although it ran all the while.
    fn misses(&self, seen: &Seen) -> bool {
        seen.start >= self.running && seen.end <= self.removed && seen.pods.get(&self.pod) != Some(&self.devices)
    }

    /// Whether this list has the pod long after it was gone.
    fn haunts(&self, seen: &Seen) -> bool {
        self.gone != Micros::MAX && seen.start > self.gone + GHOST_BOUND && seen.pods.contains_key(&self.pod)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real kubelet and real clients: `cargo xtask test --only kubelet`"]
async fn restarts_of_the_kubelet_are_seen_by_nobody() {
    let restarts = std::env::var("RESTARTS").map_or(RESTARTS, |count| count.parse().expect("RESTARTS is a number"));
    let node = Node::start();
    let proxy = Proxy::start(&node, &[]).await;
    let storm = Storm::start(&proxy.socket(), CLIENTS, CALLS_PER_SECOND);
    let began = now();
    let mut lives = Vec::new();
    for (name, namespace, devices) in [("exclusive", "default", 1), ("shared", "kube-system", 0)] {
        lives.push(Life { running: began, ..Life::new(name, namespace, devices, began) });
    }

    for round in 0..restarts {
        let name = format!("pod-{round}");
        // One asks for a device, the next for nothing.
        let (kind, namespace, devices) =
            if round % 2 == 0 { (Kind::Device, "default", 1) } else { (Kind::Shared, "kube-system", 0) };
        let mut life = Life::new(&name, namespace, devices, now());
        node.add_pod(&name, kind);
        let cgroup = node.running(&name, kind).await;
        life.running = now();
        node.restart_kubelet();
        // The pod outlives one restart, and goes some time after it.
        tokio::time::sleep(Duration::from_millis(500)).await;
        life.removed = now();
        node.remove_pod(&name);
        wait("the pod's cgroup goes", || (!cgroup.exists()).then_some(())).await;
        life.gone = now();
        lives.push(life);
    }
    tokio::time::sleep(Duration::from_micros(GHOST_BOUND + 500_000)).await;
    let all = storm.end();
    report(&all, &lives, restarts);

    let failed: Vec<_> = all.iter().filter(|seen| seen.code != 0).take(5).collect();
    assert!(failed.is_empty(), "failed calls: {failed:#?}");
    let fewest = usize::try_from(CLIENTS * CALLS_PER_SECOND).unwrap() * restarts / 4;
    assert!(all.len() > fewest, "the clients hardly called: {}", all.len());
    for life in &lives {
        let short: Vec<_> = all.iter().filter(|seen| life.misses(seen)).take(3).collect();
        assert!(short.is_empty(), "{life:?} is missing from {short:#?}");
        let ghosts: Vec<_> = all.iter().filter(|seen| life.haunts(seen)).take(3).collect();
        assert!(ghosts.is_empty(), "{life:?} is still in {ghosts:#?}");
    }
}

/// The figures of a run, for people.
fn report(all: &[Seen], lives: &[Life], restarts: usize) {
    let count = |wanted: &dyn Fn(&&Seen) -> bool| all.iter().filter(wanted).count();
    let failed = count(&|seen| seen.code != 0);
    let short = count(&|seen| seen.code == 0 && lives.iter().any(|life| life.misses(seen)));
    let ghosts = count(&|seen| lives.iter().any(|life| life.haunts(seen)));
    println!("{restarts} restarts, {CLIENTS} clients at {CALLS_PER_SECOND}/s: {} calls, {failed} failed, {short} short", all.len());
    println!("{ghosts} with a pod later than {GHOST_BOUND} µs after its cgroup; {} marked stale", count(&|seen| seen.stale));
    if let Some(first) = all.iter().find(|seen| seen.code != 0) {
        println!("first failure: code {} {}", first.code, first.text);
    }
    let mut took: Vec<_> = all.iter().map(|seen| seen.end - seen.start).collect();
    percentiles("a call took", &mut took);
    let guests = || lives.iter().filter(|life| life.gone != Micros::MAX);
    let first = |life: &Life| all.iter().filter(|seen| seen.pods.contains_key(&life.pod)).map(|seen| seen.end).min();
    let mut there: Vec<_> = guests().filter_map(|life| Some(first(life)?.saturating_sub(life.added))).collect();
    percentiles("a new pod was first listed, after its manifest, in", &mut there);
    let last = |life: &Life| all.iter().filter(|seen| seen.pods.contains_key(&life.pod)).map(|seen| seen.start).max();
    let mut kept: Vec<_> = guests().filter_map(|life| Some(last(life)?.saturating_sub(life.gone))).collect();
    percentiles("a pod was last listed, after its cgroup had gone, by", &mut kept);
}

fn percentiles(what: &str, micros: &mut [Micros]) {
    micros.sort_unstable();
    let Some(last) = micros.len().checked_sub(1) else { return };
    let (half, most) = (micros[last / 2], micros[last * 99 / 100]);
    println!("{what} {half} µs (half), {most} µs (99 %), {} µs (most)", micros[last]);
}
