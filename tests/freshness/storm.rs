//! Storms of kernel events: the kubelet is asked within its budget, memory stays flat, honest clients are answered, nothing old is said.
//!
//! `STORM_SECONDS` for another length; latencies and costs are printed beside what is wanted, not judged.

mod cost;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use self::cost::Costs;
use crate::harness::client::{Client, LIST};
use crate::harness::{self, Place, Proxy};
use crate::state::{Change, State};
use crate::upstream::Upstream;

/// `--upstream-rate` and `--upstream-burst` as they are by default.
const RATE: f64 = 20.0;
const BURST: f64 = 4.0;
/// Cgroups made and removed again, a second.
const MADE: u32 = 2_000;
/// What an honest List may take longer in a storm than the budget's interval and two Lists of the kubelet's.
pub(crate) const OURS: Duration = Duration::from_millis(2);
/// Of a core, with the programs in the kernel: what other people's cgroups may cost.
const SHARE: f64 = 0.01;
/// Memory that a storm may leave behind: allocators keep some.
const FLAT: u64 = 16 << 20;

fn length() -> Duration {
    Duration::from_secs(std::env::var("STORM_SECONDS").map_or(5, |seconds| seconds.parse().expect("STORM_SECONDS is a number")))
}

/// A proxy with all sources before an upstream that tells the kernel's state.
pub(crate) struct Weather {
    pub(crate) proxy: Proxy,
    upstream: Upstream,
    pub(crate) state: State,
    pub(crate) place: Place,
}

/// What was seen of a span of time.
struct Span {
    took: Duration,
    latencies: Vec<Duration>,
    calls: usize,
    costs: Costs,
    /// What the storm says of itself: how often it did what it does.
    done: u32,
}

impl Weather {
    pub(crate) async fn begin(name: &str, flags: &[&str]) -> Self {
        let place = Place::new();
        let state = State::new(name, &place.path("kubelet"));
        let upstream = Upstream::start(&place.kubelet(), state.seen());
        // Other kubelets may be at work on this machine; their changes are none of ours.
        state.mount(&place.path("cgroup"));
        let proxy = place.spawn(place.run(flags));
        harness::eventually("the socket is in place", async || place.listen().exists()).await;
        proxy.ready().await;
        // The captures that settle the start.
        tokio::time::sleep(Duration::from_secs(5)).await;
        Self { proxy, upstream, state, place }
    }

    /// An honest client at 10 a second while `storm` rages on a thread of its own.
    async fn span(&self, storm: impl FnOnce(&AtomicBool) -> u32 + Send + 'static) -> Span {
        let over = Arc::new(AtomicBool::new(false));
        let (calls, costs) = (self.upstream.calls(), Costs::of(&self.proxy));
        let raging = {
            let over = Arc::clone(&over);
            std::thread::spawn(move || storm(&over))
        };
        let mut client = Client::connect(&self.place.listen()).await.unwrap();
        let (began, mut latencies) = (Instant::now(), Vec::new());
        while began.elapsed() < length() {
            let asked = Instant::now();
            let reply = client.ask(LIST, |_| {}).await;
            latencies.push(asked.elapsed());
            reply.assert_ok(&reply.body);
            assert_eq!(reply.headers.get("podresources-stale"), None);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let (took, calls, costs) = (began.elapsed(), self.upstream.calls() - calls, Costs::of(&self.proxy).since(costs));
        over.store(true, Ordering::Relaxed);
        latencies.sort_unstable();
        Span { took, latencies, calls, costs, done: raging.join().unwrap() }
    }

    /// Each cgroup that was made and removed since has been counted once when it was made, once when it was removed and once when it was
    /// let go of.
    async fn assert_counted(&self, before: Option<[u64; 3]>, made: u32) {
        let Some(before) = before else { return println!("no program counts here: no kernel for it, or no rights") };
        // The last one is let go of a moment after it was removed.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let after = self.counted().await.expect("counts, as before");
        let counted = [0, 1, 2].map(|event| after[event] - before[event]);
        println!("{made} made; counted as made, removed, let go of: {counted:?}");
        assert_eq!(counted, [u64::from(made); 3]);
    }

    /// What one List of the kubelet's own takes, in the middle of several.
    pub(crate) async fn upstream_list(&self) -> Duration {
        let mut client = Client::connect(&self.place.kubelet()).await.unwrap();
        let mut took = Vec::new();
        for _ in 0..21 {
            let asked = Instant::now();
            client.ask(LIST, |_| {}).await;
            took.push(asked.elapsed());
        }
        took.sort_unstable();
        took[took.len() / 2]
    }

    /// How many changes each of the programs in the kernel has counted, which add to the word that requests compare; `None` where they
    /// cannot be had.
    async fn counted(&self) -> Option<[u64; 3]> {
        let metrics = self.proxy.admin("/metrics").await;
        let counted = ["mkdir", "rmdir", "release"].map(|event| {
            let start = format!(r#"podresources_proxy_change_events_total{{source="ebpf",part="tp_btf/cgroup_{event}"}} "#);
            metrics.lines().find_map(|line| line.strip_prefix(&start))?.parse::<u64>().ok()
        });
        counted.into_iter().collect::<Option<Vec<_>>>()?.try_into().ok()
    }
}

impl Span {
    fn at(&self, part: usize) -> Duration {
        self.latencies[(self.latencies.len() - 1) * part / 100]
    }

    fn report(&self, what: &str) {
        let seconds = self.took.as_secs_f64();
        println!(
            "{what}: List p50 {:?}, p99 {:?} of {}; {} calls to the kubelet in {seconds:.1} s; {}",
            self.at(50),
            self.at(99),
            self.latencies.len(),
            self.calls,
            self.costs.told(self.took),
        );
    }

    fn assert_within_budget(&self) {
        let most = RATE * self.took.as_secs_f64() + BURST + 1.0;
        assert!(f64::from(u32::try_from(self.calls).unwrap()) <= most, "{} calls in {:?}", self.calls, self.took);
    }
}

/// Resident memory, in bytes.
fn memory(proxy: &Proxy) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", proxy.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Makes and removes a cgroup again and again, at a steady rate.
fn make_and_remove(cgroup: PathBuf) -> impl FnOnce(&AtomicBool) -> u32 + Send + 'static {
    move |over| {
        let (began, mut made) = (Instant::now(), 0);
        while !over.load(Ordering::Relaxed) {
            fs::create_dir(&cgroup).unwrap();
            fs::remove_dir(&cgroup).unwrap();
            made += 1;
            std::thread::sleep((Duration::from_secs(1) / MADE * made).saturating_sub(began.elapsed()));
        }
        println!("{made} cgroups made and removed in {:?}", began.elapsed());
        made
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes cgroups, as root"]
async fn a_storm_below_kubepods_costs_the_kubelet_no_more_than_the_budget() {
    let mut weather = Weather::begin("storm-inside", &[]).await;
    weather.span(|_| 0).await.report("quiet");
    let (before, counted, upstream) = (memory(&weather.proxy), weather.counted().await, weather.upstream_list().await);
    let storm = make_and_remove(weather.state.kubepods().join("podstorm"));
    let span = weather.span(storm).await;
    span.report("cgroups below kubepods");
    let wanted = Duration::from_secs_f64(1.0 / RATE) + 2 * upstream + OURS;
    println!("wanted: p99 of at most {wanted:?}, with {upstream:?} for a List of the kubelet's");
    span.assert_within_budget();
    weather.assert_counted(counted, span.done).await;
    assert!(span.calls > 0, "the storm was not seen");
    let after = memory(&weather.proxy);
    assert!(after < before + FLAT, "memory grew from {before} to {after} bytes");
    // And the last word is the kernel's.
    let change = weather.state.changes()[0];
    let expected = weather.state.make(change, 0);
    let reply = weather.place.call(LIST, |_| {}).await;
    expected.assert_in(&reply.body);
    weather.proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes cgroups, as root"]
async fn a_storm_of_other_cgroups_causes_no_call_to_the_kubelet() {
    let weather = Weather::begin("storm-outside", &["--refresh-interval", "1h"]).await;
    let _statistics = cost::Statistics::begin();
    let quiet = weather.span(|_| 0).await;
    quiet.report("quiet");
    let (before, counted) = (memory(&weather.proxy), weather.counted().await);
    let span = weather.span(make_and_remove(weather.state.beside().join("podstorm"))).await;
    span.report("cgroups beside kubepods");
    println!("wanted: p99 of at most {:?}, {:.0} % of a core in all", 2 * quiet.at(99), SHARE * 100.0);
    weather.assert_counted(counted, 0).await;
    assert_eq!(span.calls, 0, "other people's cgroups are no change");
    let after = memory(&weather.proxy);
    assert!(after < before + FLAT, "memory grew from {before} to {after} bytes");
    weather.proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes cgroups, as root"]
async fn exec_probes_cause_no_call_to_the_kubelet() {
    struct Probe(Child);
    impl Drop for Probe {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }
    let weather = Weather::begin("probes", &["--refresh-interval", "1h"]).await;
    let pods = weather.state.pods();
    assert!(!pods.is_empty());
    let span = weather
        .span(move |over| {
            let mut probes = 0;
            while !over.load(Ordering::Relaxed) {
                let probe = Probe(Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap());
                for pod in &pods {
                    fs::write(pod.join("cgroup.procs"), probe.0.id().to_string()).unwrap();
                }
                drop(probe);
                probes += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            println!("{probes} processes put into {} cgroups each", pods.len());
            probes
        })
        .await;
    span.report("exec probes");
    assert_eq!(span.calls, 0, "a process in a cgroup is no change");
    weather.proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes cgroups, as root"]
async fn a_shared_pool_written_anew_to_all_containers_stays_within_the_budget_and_is_answered_from_at_the_end() {
    let mut weather = Weather::begin("shared-pool", &[]).await;
    let Some(containers) = weather.state.shared_containers(110) else {
        // On a hybrid host with cpusets in neither hierarchy there is nothing to write.
        panic!("no cpuset hierarchy on this machine");
    };
    let span = weather
        .span(move |over| {
            let masks = ["0", "0-1"];
            let mut rounds = 0;
            // The reconcile loop's own pace is 10 s; this is far harder.
            while !over.load(Ordering::Relaxed) {
                for container in &containers {
                    fs::write(container.join("cpuset.cpus"), masks[rounds % 2]).unwrap();
                }
                rounds += 1;
                std::thread::sleep(Duration::from_millis(500));
            }
            println!("{rounds} times {} cpusets written", containers.len());
            u32::try_from(rounds).unwrap()
        })
        .await;
    span.report("110 cpusets, twice a second");
    span.assert_within_budget();
    let expected = weather.state.make(Change::Cpuset, 0);
    let reply = weather.place.call(LIST, |_| {}).await;
    expected.assert_in(&reply.body);
    weather.proxy.stop().await;
}
