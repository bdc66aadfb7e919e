//! `cargo xtask lab`: a node with a real kubelet, to work with by hand.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::{means, shell};

/// The Kubernetes version that is built where none is named; pinned by tests/lab/go.mod.
pub(crate) const VERSION: &str = "1.37.2";

/// How long the node may take to be ready or gone.
const PATIENCE: Duration = Duration::from_mins(3);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A node with a real kubelet, to work with by hand (as root)
#[derive(clap::Subcommand)]
pub(crate) enum Verb {
    /// Build the kubelet if need be, and start a node in the background
    Up {
        /// Kubernetes version
        #[arg(long, default_value = VERSION)]
        version: String,
        /// A whole one-node cluster, with etcd, API server, controllers and scheduler
        #[arg(long)]
        cluster: bool,
    },
    /// Restart the kubelet alone, as an upgrade of it would
    Restart,
    /// Take the node down
    Down,
}

pub(crate) fn run(verb: &Verb) -> Result<ExitCode> {
    match verb {
        Verb::Up { version, cluster } => up(version, *cluster)?,
        Verb::Restart => signal(Signal::USR2)?,
        Verb::Down => down()?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds the node's programs (`also` beside the kubelet and its device plugin) and returns the folder where they are.
pub(crate) fn build(version: &str, also: &[&str]) -> Result<PathBuf> {
    let lab = shell::target().join("lab");
    let mut command = Command::new("tests/lab/build");
    shell::run(command.arg(version).args(["kubelet", "deviceplugin"]).args(also).env("LAB_TARGET", &lab))?;
    Ok(bin_of(version))
}

fn up(version: &str, cluster: bool) -> Result<()> {
    let needs = means::NODE.iter().chain(cluster.then_some(&means::OPENSSL));
    let missing: Vec<_> = needs.filter(|means| !means.is_here()).map(|means| means.install).collect();
    if !missing.is_empty() {
        bail!("a node cannot run here: install {}", missing.join("; "));
    }
    if node().is_ok() {
        bail!("a node is up already: `cargo xtask lab down` ends it");
    }
    let bin = build(version, if cluster { &["kube", "dradriver"] } else { &[] })?;
    let log = folder().with_extension("log");
    let mut command = Command::new(shell::root().join("tests/lab/node"));
    command
        .arg(bin)
        .arg(folder())
        .stdin(Stdio::null())
        .stdout(File::create(&log)?)
        .stderr(File::options().append(true).open(&log)?);
    if cluster {
        command.env("LAB_CLUSTER", "1");
    }
    // A group of its own: Ctrl-C on the terminal is not meant for it.
    let mut child = command.process_group(0).spawn().context("cannot run tests/lab/node")?;
    std::fs::write(pid_file(), child.id().to_string())?;
    let ready = wait_until(|| {
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        if child.try_wait()?.is_some() {
            bail!("the node did not start:\n{said}");
        }
        Ok(said.lines().find_map(|line| line.strip_prefix("ready ")).map(str::to_owned))
    });
    let socket = ready?;
    let folder = folder();
    let folder = folder.display();
    println!("the kubelet answers on {socket}");
    if cluster {
        let kubectl = "kube kubectl --kubeconfig";
        println!(
            "kubectl:    nsenter -t $(cat {folder}/inside.pid) -a {}/{kubectl} {folder}/admin.kubeconfig",
            bin_of(version).display()
        );
    } else {
        println!("a pod more: tests/lab/pod add {folder} NAME device");
    }
    println!("a proxy:    cargo run --release -- run --kubelet-socket {socket} --pod-logs-dir {folder}/logs/pods");
    println!("the end:    cargo xtask lab down");
    Ok(())
}

fn down() -> Result<()> {
    let pid = node()?;
    kill_process(pid, Signal::TERM)?;
    wait_until(|| Ok(test_kill_process(pid).is_err().then_some(())))?;
    std::fs::remove_file(pid_file())?;
    Ok(())
}

fn signal(signal: Signal) -> Result<()> {
    kill_process(node()?, signal).context("cannot signal the node")
}

/// The running node's process. A pid that another program has by now is not taken for it.
fn node() -> Result<Pid> {
    let none = || anyhow!("no node is up: `cargo xtask lab up` starts one");
    let pid: i32 = std::fs::read_to_string(pid_file()).map_err(|_| none())?.trim().parse()?;
    let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).map_err(|_| none())?;
    if !command.contains("tests/lab/node") {
        return Err(none());
    }
    Pid::from_raw(pid).ok_or_else(none)
}

fn wait_until<T>(mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let mut waited = Duration::ZERO;
    while waited < PATIENCE {
        if let Some(found) = look()? {
            return Ok(found);
        }
        sleep(LOOK_EVERY);
        waited += LOOK_EVERY;
    }
    bail!("nothing happened for {}; the logs are in {}/out", humantime::format_duration(PATIENCE), folder().display())
}

fn folder() -> PathBuf {
    shell::target().join("lab").join("node")
}

fn pid_file() -> PathBuf {
    folder().with_extension("pid")
}

fn bin_of(version: &str) -> PathBuf {
    shell::target().join("lab").join(version).join("bin")
}
