//! One case from its beginning to its end: a proxy, honest clients, abusers, and what became of all of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use podresources_proxy::simulate::Method;
use rustix::process::Signal;
use tokio::net::UnixListener;
use tokio::time::{Instant, sleep};

use crate::abuser::Abusers;
use crate::cases::{Case, Trouble};
use crate::cgroup::Cgroup;
use crate::harness::client::LIST;
use crate::harness::{self, Place, Proxy};
use crate::storm::{Seen, Storm};

/// Honest clients, and the calls a second that each makes.
pub(crate) const HONEST: u32 = 20;
pub(crate) const RATE: u32 = 10;
/// `--upstream-rate` and `--upstream-burst` as they are by default.
const UPSTREAM_RATE: f64 = 20.0;
const UPSTREAM_BURST: f64 = 4.0;
/// What the proxy may have of memory, in bytes.
pub(crate) const MEMORY: u64 = 64 << 20;
/// Pods that come and go a second, so that the honest sometimes have to wait for the kubelet.
const CHURN: f64 = 1.0;

/// How long, and against whom.
#[derive(Clone)]
pub(crate) struct Form {
    pub(crate) length: Duration,
    /// Further cgroups of abusers.
    pub(crate) quota: Option<PathBuf>,
    /// The abuse goes elsewhere: what the honest see is what they would see without.
    pub(crate) elsewhere: bool,
}

/// What was seen.
pub(crate) struct Outcome {
    pub(crate) calls: usize,
    pub(crate) errors: Vec<String>,
    pub(crate) median: Duration,
    pub(crate) p99: Duration,
    /// Most memory of the proxy, in bytes.
    pub(crate) memory: u64,
    /// Its memory when all had gone.
    pub(crate) memory_after: u64,
    /// CPU time of the proxy, per second.
    pub(crate) cpu: f64,
    pub(crate) upstream: u64,
    pub(crate) budget: u64,
    /// What the abusers did.
    pub(crate) done: u64,
    /// What was not let go, if anything.
    pub(crate) left: Option<String>,
}

// === impl Outcome ===

impl Outcome {
    /// What is not as it must be.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut wrong = |is: bool, text: String| {
            if is {
                faults.push(text);
            }
        };
        let expected = HONEST as usize;
        wrong(self.calls < expected, format!("only {} honest calls", self.calls));
        let first = self.errors.first().map_or("", String::as_str);
        wrong(!self.errors.is_empty(), format!("{} of {} honest calls failed, the first: {first}", self.errors.len(), self.calls));
        wrong(self.memory > MEMORY, format!("{} MiB of memory", self.memory >> 20));
        wrong(self.upstream > self.budget, format!("{} calls to the kubelet, {} allowed", self.upstream, self.budget));
        wrong(self.done == 0, "the abusers did nothing".into());
        if let Some(left) = &self.left {
            faults.push(format!("not let go: {left}"));
        }
        faults
    }
}

pub(crate) async fn run(case: &Case, form: &Form) -> Outcome {
    let place = Place::new();
    let simulator = place.simulator(|config| config.churn = CHURN).await;
    let proxy = start(&place, case.trouble).await;
    let before = descriptors(&proxy);
    let pods: Vec<Cgroup> = (0..case.clients).map(|_| Cgroup::new("")).collect();
    let quota = form.quota.iter();
    let cgroups: Vec<Vec<PathBuf>> = pods
        .iter()
        .flat_map(|pod| std::iter::repeat_n([pod.path()].into_iter().chain(quota.clone().cloned()).collect(), case.processes))
        .collect();
    let echo = place.path("echo.sock");
    let echoing = tokio::spawn(echo_on(UnixListener::bind(&echo).unwrap()));
    let target = if form.elsewhere { echo } else { place.listen() };

    let early = (!case.late).then(|| Storm::start(&place.listen(), HONEST, RATE));
    if early.is_some() {
        sleep(Duration::from_millis(300)).await;
    }
    if case.trouble == Trouble::Stopped {
        proxy.signal(Signal::STOP);
    }
    let (asked, since, cpu) = (upstream(&simulator), Instant::now(), cpu(&proxy));
    let abusers = Abusers::start(case.attack, &target, &cgroups);
    sleep(Duration::from_millis(500)).await;
    let honest = early.unwrap_or_else(|| Storm::start(&place.listen(), HONEST, RATE));
    if case.trouble == Trouble::Stopped {
        sleep(Duration::from_millis(500)).await;
        proxy.signal(Signal::CONT);
    }
    sleep(form.length).await;
    let took = since.elapsed().as_secs_f64();
    let (asked, cpu) = (upstream(&simulator) - asked, self::cpu(&proxy).saturating_sub(cpu).as_secs_f64() / took);
    let seen = tokio::task::spawn_blocking(|| honest.end()).await.unwrap();
    let done = tokio::task::spawn_blocking(|| abusers.end()).await.unwrap();
    let left = left(&place, &proxy, before).await;
    let memory = status(&proxy, "VmHWM:");
    let memory_after = status(&proxy, "VmRSS:");
    echoing.abort();
    proxy.stop().await;
    simulator.close().await;

    let mut waits: Vec<Duration> = seen.iter().map(|call| Duration::from_micros(call.end - call.start)).collect();
    waits.sort_unstable();
    let at = |part: usize| waits.get((waits.len() * part / 100).min(waits.len().saturating_sub(1))).copied().unwrap_or_default();
    let failed = |call: &Seen| (call.code != 0).then(|| format!("{} {}", call.code, call.text));
    Outcome {
        calls: seen.len(),
        errors: seen.iter().filter_map(failed).collect(),
        median: at(50),
        p99: at(99),
        memory,
        memory_after,
        cpu,
        upstream: asked,
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small number of calls")]
        budget: UPSTREAM_RATE.mul_add(took, UPSTREAM_BURST).ceil() as u64,
        done,
        left,
    }
}

async fn start(place: &Place, trouble: Trouble) -> Proxy {
    let run = place.run(&["--log-level", "warn"]);
    let command = match trouble {
        Trouble::Descriptors(most) => {
            let mut command = Command::new("prlimit");
            command.arg(format!("--nofile={most}")).arg(run.get_program()).args(run.get_args());
            for (name, value) in run.get_envs() {
                match value {
                    Some(value) => command.env(name, value),
                    None => command.env_remove(name),
                };
            }
            command
        }
        _ => run,
    };
    let proxy = place.spawn(command);
    harness::eventually("the socket is in place", async || place.listen().exists()).await;
    proxy.ready().await;
    proxy
}

/// Answers everything with itself.
async fn echo_on(listener: UnixListener) {
    while let Ok((socket, _)) = listener.accept().await {
        tokio::spawn(async move {
            let (mut read, mut write) = socket.into_split();
            // However it ends.
            drop(tokio::io::copy(&mut read, &mut write).await);
        });
    }
}

/// Waits until everybody is forgotten and every descriptor closed; what is left when that does not come.
async fn left(place: &Place, proxy: &Proxy, before: usize) -> Option<String> {
    const WITHIN: Duration = Duration::from_secs(15);
    let end = Instant::now() + WITHIN;
    loop {
        let metrics = proxy.admin("/metrics").await;
        let of = |name: &str| sum(&metrics, name);
        let (connections, clients) = (of("podresources_proxy_connections_open"), of("podresources_proxy_clients"));
        let (in_flight, open) = (of("podresources_proxy_requests_in_flight"), descriptors(proxy));
        // The admin socket's own connection may still be there.
        if connections == 0 && clients == 0 && in_flight == 0 && open <= before + 1 {
            break;
        }
        if Instant::now() > end {
            return Some(format!(
                "{connections} connections, {clients} clients, {in_flight} calls, {open} descriptors of {before}"
            ));
        }
        sleep(Duration::from_millis(20)).await;
    }
    let answered = place.call(LIST, |_| {}).await;
    let ok = answered.trailers.as_ref().is_some_and(|trailers| trailers["grpc-status"] == "0");
    (!ok).then(|| "a newcomer gets no answer".into())
}

fn upstream(simulator: &podresources_proxy::simulate::Simulator) -> u64 {
    Method::ALL.into_iter().map(|method| simulator.calls(method)).sum()
}

/// The sum of a metric's lines.
fn sum(metrics: &str, name: &str) -> u64 {
    let lines = metrics.lines().filter_map(|line| line.strip_prefix(name));
    lines.filter(|rest| rest.starts_with(['{', ' '])).filter_map(|rest| rest.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

fn of_process(proxy: &Proxy, file: &str) -> PathBuf {
    Path::new("/proc").join(proxy.child.id().to_string()).join(file)
}

fn descriptors(proxy: &Proxy) -> usize {
    fs::read_dir(of_process(proxy, "fd")).map_or(0, Iterator::count)
}

/// A line of `/proc/<pid>/status`, in bytes.
fn status(proxy: &Proxy, name: &str) -> u64 {
    let text = fs::read_to_string(of_process(proxy, "status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

/// CPU time so far.
fn cpu(proxy: &Proxy) -> Duration {
    let text = fs::read_to_string(of_process(proxy, "schedstat")).unwrap_or_default();
    let main: u64 = text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0);
    let tasks = fs::read_dir(of_process(proxy, "task")).into_iter().flatten().flatten();
    let all =
        tasks.filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok()?.split(' ').next()?.parse::<u64>().ok());
    Duration::from_nanos(all.sum::<u64>().max(main))
}
