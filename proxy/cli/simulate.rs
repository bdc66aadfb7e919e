//! `simulate`: a kubelet stand-in on a socket, for people without a cluster.

use std::path::PathBuf;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use super::fault::Fault;
use crate::client::SocketPath;
use crate::simulate::{Config, Simulator, UnknownProfile};

/// Serve a synthetic dense node on a podresources socket, with the kubelet's own manners
///
/// Random order, one rate limit for everybody, the kubelet's error texts, and its behaviour around a restart. Ends on Ctrl-C.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub struct Args {
    /// The socket to serve, a path or unix:///path
    #[arg(long, value_name = "PATH", required_unless_present = "root_dir")]
    pub socket: Option<SocketPath>,
    /// Keep a kubelet's root directory too: its state files change as pods come and go, and the socket is pod-resources/kubelet.sock in it
    #[arg(long, value_name = "DIR")]
    pub root_dir: Option<PathBuf>,
    /// Pods on the node
    #[arg(long, value_name = "COUNT", default_value_t = 110, value_parser = clap::value_parser!(u32).range(..=100_000))]
    pub pods: u32,
    /// Devices on the node
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u32).range(..=100_000))]
    pub devices: u32,
    /// NUMA nodes
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub numa_nodes: u32,
    /// The same seed gives the same node
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Pods that come and go in a second, such as 2/s or 0.5
    #[arg(long, value_name = "RATE", value_parser = churn)]
    pub churn: Option<f64>,
    /// Restart like a kubelet every so often: a dead socket, an empty list, then whole again, devices last
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub restart_every: Option<Duration>,
    /// The Kubernetes version to behave like
    #[arg(long, value_name = "VERSION", default_value = "1.37", value_parser = ["1.20", "1.27", "1.34", "1.37"])]
    pub profile: String,
    /// Answer each call so much later
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub latency: Option<Duration>,
    /// Take calls and never answer
    #[arg(long)]
    pub hang: bool,
    /// Serve this recorded List reply instead of a synthetic node: raw bytes, or hex in a file that ends in .hex
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pods", "devices", "numa_nodes", "churn"])]
    pub from: Option<PathBuf>,
    /// No rate limit
    #[arg(long)]
    pub no_rate_limit: bool,
}

fn churn(text: &str) -> Result<f64, String> {
    match text.strip_suffix("/s").unwrap_or(text).parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate >= 0.0 => Ok(rate),
        _ => Err("give pods a second, such as 2/s or 0.5".into()),
    }
}

pub(super) fn run(args: &Args) -> Result<(), Fault> {
    let config = config(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| Fault::Failed(error.into()))?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).map_err(|error| Fault::Failed(error.into()))?;
        let simulator = Simulator::start(config).await.map_err(|error| Fault::Failed(error.into()))?;
        eprintln!("serving a simulated kubelet on {}; Ctrl-C ends it", simulator.socket().display());
        tokio::select! {
            _ = terminate.recv() => {}
            interrupted = tokio::signal::ctrl_c() => interrupted.map_err(|error| Fault::Failed(error.into()))?,
        }
        simulator.close().await;
        Ok(())
    })
}

fn config(args: &Args) -> Result<Config, Fault> {
    let rate = Config::default().rate;
    Ok(Config {
        socket: args.socket.as_ref().map(|socket| socket.as_path().to_owned()),
        root_dir: args.root_dir.clone(),
        pods: args.pods as usize,
        devices: args.devices as usize,
        numa_nodes: args.numa_nodes as usize,
        seed: args.seed,
        profile: args.profile.parse().map_err(|error: UnknownProfile| Fault::Failed(error.into()))?,
        rate: if args.no_rate_limit { None } else { rate },
        churn: args.churn.unwrap_or_default(),
        restart_every: args.restart_every,
        latency: args.latency.unwrap_or_default(),
        hang: args.hang,
        from: args.from.clone(),
        ..Config::default()
    })
}
