//! `simulate`: a kubelet stand-in on a socket, for people without a cluster.

use std::path::PathBuf;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use super::fault::Fault;
use super::output::{program, remark};
use crate::client::SocketPath;
use crate::config::Place;
use crate::simulate::{Config, Profile, Rate, SYSFS, Simulator, StartError};

/// Serve a synthetic dense node on a podresources socket, with the kubelet's own manners
///
/// Random order, one rate limit for everybody, the kubelet's error texts, and its behaviour around a restart. Ends on Ctrl-C.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub(super) struct Args {
    /// The socket to serve, a path or `unix:///path` [default: pod-resources/kubelet.sock below --root-dir]
    #[arg(long, value_name = "PATH")]
    socket: Option<SocketPath>,
    /// Keep state files there as a kubelet does [default, without --socket: a directory of the user's runtime directory]
    #[arg(long, value_name = "DIR")]
    root_dir: Option<PathBuf>,
    /// Pods on the node
    #[arg(long, value_name = "COUNT", default_value_t = 110, value_parser = clap::value_parser!(u32).range(..=100_000))]
    pods: u32,
    /// Devices on the node
    #[arg(long, value_name = "COUNT", default_value_t = 128, value_parser = clap::value_parser!(u32).range(..=100_000))]
    devices: u32,
    /// NUMA nodes
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    numa_nodes: u32,
    /// The same seed gives the same node
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Pods that come and go in a second, such as 2/s or 0.5
    #[arg(long, value_name = "RATE", value_parser = churn)]
    churn: Option<f64>,
    /// Restart like a kubelet every so often: a dead socket, an empty list, then whole again, devices last
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    restart_every: Option<Duration>,
    /// The Kubernetes version to behave like
    #[arg(long, value_name = "VERSION", default_value = "1.37", value_parser = clap::value_parser!(Profile))]
    profile: Profile,
    /// Answer each call so much later
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    latency: Option<Duration>,
    /// Take calls and never answer
    #[arg(long)]
    hang: bool,
    /// Serve this recorded List reply instead of a synthetic node: raw bytes, or hex in a file that ends in .hex
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pods", "devices", "numa_nodes", "churn"])]
    from: Option<PathBuf>,
    /// No rate limit
    #[arg(long)]
    no_rate_limit: bool,
}

fn churn(text: &str) -> Result<f64, String> {
    match text.strip_suffix("/s").unwrap_or(text).parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate >= 0.0 => Ok(rate),
        _ => Err("give pods a second, such as 2/s or 0.5".into()),
    }
}

pub(super) fn run(args: &Args) -> Result<(), Fault> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Fault::Start)?;
    runtime.block_on(async {
        let (mut interrupt, mut terminate) = (stop(SignalKind::interrupt())?, stop(SignalKind::terminate())?);
        let place = Place::of_process();
        if args.socket.is_none() && args.root_dir.is_none() {
            place.prepare().map_err(|error| Fault::Failed(error.into()))?;
        }
        let config = args.config(&place);
        let sysfs = config.root_dir.as_ref().filter(|_| config.from.is_none()).map(|root| root.join(SYSFS));
        config.check().map_err(|error| Fault::Usage(error.to_string()))?;
        let simulator = Simulator::start(config).await.map_err(|error: StartError| Fault::Failed(error.into()))?;
        let socket = simulator.socket().display();
        let program = program();
        remark(&format!("a simulated kubelet serves {socket}; Ctrl-C ends it\nnext: {program} list --socket {socket}"));
        if let Some(sysfs) = sysfs {
            remark(&format!("or:   {program} allocatable --socket {socket} --sysfs {}", sysfs.display()));
        }
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        simulator.close().await;
        Ok(())
    })
}

fn stop(kind: SignalKind) -> Result<tokio::signal::unix::Signal, Fault> {
    signal(kind).map_err(Fault::Start)
}

// === impl Args ===

impl Args {
    fn config(&self, place: &Place) -> Config {
        let own = || place.runtime_dir.join("podresources-proxy/simulate");
        let root_dir = self.root_dir.clone().or_else(|| self.socket.is_none().then(own));
        let count = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        Config {
            socket: self.socket.as_ref().map(|socket| socket.as_path().to_owned()),
            root_dir,
            pods: count(self.pods),
            devices: count(self.devices),
            numa_nodes: count(self.numa_nodes),
            seed: self.seed,
            profile: self.profile,
            rate: (!self.no_rate_limit).then_some(Rate::KUBELET),
            churn: self.churn.unwrap_or(0.0),
            restart_every: self.restart_every,
            latency: self.latency.unwrap_or_default(),
            hang: self.hang,
            from: self.from.clone(),
            ..Config::default()
        }
    }
}
