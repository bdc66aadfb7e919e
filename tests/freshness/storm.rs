//! Storms of kernel events: the kubelet is asked within its budget, memory stays flat, honest clients are answered, nothing old is said.
//!
//! `STORM_SECONDS` for another length; latencies and costs are printed, not judged.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::harness::client::{Client, LIST};
use crate::harness::{self, Place, Proxy};
use crate::state::{Change, State};
use crate::upstream::Upstream;

/// `--upstream-rate` and `--upstream-burst` as they are by default.
const RATE: f64 = 20.0;
const BURST: f64 = 4.0;
/// Cgroups made and removed again, a second.
const MADE: u32 = 1_000;
/// Memory that a storm may leave behind: allocators keep some.
const FLAT: u64 = 16 << 20;

fn length() -> Duration {
    Duration::from_secs(std::env::var("STORM_SECONDS").map_or(5, |seconds| seconds.parse().expect("STORM_SECONDS is a number")))
}

/// A proxy with all sources before an upstream that tells the kernel's state.
struct Weather {
    place: Place,
    state: State,
    upstream: Upstream,
    proxy: Proxy,
}

/// What was seen of a span of time.
struct Span {
    took: Duration,
    latencies: Vec<Duration>,
    calls: usize,
    cpu: Duration,
}

impl Weather {
    async fn begin(name: &str, flags: &[&str]) -> Self {
        let place = Place::new();
        let state = State::new(name, &place.path("kubelet"));
        let upstream = Upstream::start(&place.kubelet(), state.seen());
        let mut command = place.run(flags);
        command.env("PODRESOURCES_PROXY_CGROUP_ROOT", "/sys/fs/cgroup");
        let proxy = place.spawn(command);
        harness::eventually("the socket is in place", async || place.listen().exists()).await;
        proxy.ready().await;
        // The captures that settle the start.
        tokio::time::sleep(Duration::from_secs(5)).await;
        Self { place, state, upstream, proxy }
    }

    /// An honest client at 10 a second while `storm` rages on a thread of its own.
    async fn span(&self, storm: impl FnOnce(&AtomicBool) + Send + 'static) -> Span {
        let over = Arc::new(AtomicBool::new(false));
        let (calls, cpu) = (self.upstream.calls(), cpu_time(&self.proxy));
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
        let span = Span {
            took: began.elapsed(),
            latencies,
            calls: self.upstream.calls() - calls,
            cpu: cpu_time(&self.proxy).saturating_sub(cpu),
        };
        over.store(true, Ordering::Relaxed);
        raging.join().unwrap();
        span
    }
}

impl Span {
    fn report(&mut self, what: &str) {
        self.latencies.sort_unstable();
        let at = |part: usize| self.latencies[(self.latencies.len() - 1) * part / 100];
        let share = self.cpu.as_secs_f64() / self.took.as_secs_f64() * 100.0;
        println!(
            "{what}: List p50 {:?}, p99 {:?}; {} calls to the kubelet in {:.1} s; the proxy took {share:.1} % of a core",
            at(50),
            at(99),
            self.calls,
            self.took.as_secs_f64()
        );
    }

    fn assert_within_budget(&self) {
        let most = RATE * self.took.as_secs_f64() + BURST + 1.0;
        assert!(f64::from(u32::try_from(self.calls).unwrap()) <= most, "{} calls in {:?}", self.calls, self.took);
    }
}

/// CPU time of all threads so far (`/proc/<pid>/task/<tid>/schedstat`, first field).
fn cpu_time(proxy: &Proxy) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{}/task", proxy.child.id())).unwrap();
    let spent = tasks.filter_map(|task| {
        // A thread may end meanwhile.
        let stat = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        stat.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(spent.sum())
}

/// Resident memory, in bytes.
fn memory(proxy: &Proxy) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", proxy.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Makes and removes a cgroup again and again, at a steady rate.
fn make_and_remove(cgroup: PathBuf) -> impl FnOnce(&AtomicBool) + Send + 'static {
    move |over| {
        let (began, mut made) = (Instant::now(), 0);
        while !over.load(Ordering::Relaxed) {
            fs::create_dir(&cgroup).unwrap();
            fs::remove_dir(&cgroup).unwrap();
            made += 1;
            std::thread::sleep((Duration::from_secs(1) / MADE * made).saturating_sub(began.elapsed()));
        }
        println!("{made} cgroups made and removed in {:?}", began.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes cgroups, as root"]
async fn a_storm_below_kubepods_costs_the_kubelet_no_more_than_the_budget() {
    let mut weather = Weather::begin("storm-inside", &[]).await;
    weather.span(|_| {}).await.report("quiet");
    let before = memory(&weather.proxy);
    let storm = make_and_remove(weather.state.kubepods().join("podstorm"));
    let mut span = weather.span(storm).await;
    span.report("cgroups below kubepods");
    span.assert_within_budget();
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
    weather.span(|_| {}).await.report("quiet");
    let before = memory(&weather.proxy);
    let mut span = weather.span(make_and_remove(weather.state.beside().join("podstorm"))).await;
    span.report("cgroups beside kubepods");
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
    let mut span = weather
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
    let mut span = weather
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
        })
        .await;
    span.report("110 cpusets, twice a second");
    span.assert_within_budget();
    let expected = weather.state.make(Change::Cpuset, 0);
    let reply = weather.place.call(LIST, |_| {}).await;
    expected.assert_in(&reply.body);
    weather.proxy.stop().await;
}
