//! What the proxy is told to do: [`Config`], a struct of sub-configs, one for each part.
//!
//! What a user types is another matter: [`setting`] is the one table of settings, [`args`], [`environment`] and [`mod@file`] read them, and
//! [`resolve()`] turns them into a [`Config`]. Nothing here touches the system save [`load()`] (files) and the look-up of users and groups.

#[cfg(feature = "cli")]
pub mod args;
#[cfg(feature = "cli")]
mod check;
mod class;
#[cfg(feature = "cli")]
mod classes;
#[cfg(feature = "cli")]
pub mod environment;
#[cfg(feature = "cli")]
mod error;
#[cfg(feature = "cli")]
pub mod file;
#[cfg(feature = "cli")]
mod load;
#[cfg(feature = "cli")]
mod resolve;
#[cfg(feature = "cli")]
pub mod setting;
#[cfg(feature = "cli")]
mod show;
#[cfg(all(test, feature = "cli"))]
mod tests;
#[cfg(feature = "cli")]
mod value;

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

pub use class::{Class, Each, METHODS, OnStale, Whole};

#[cfg(feature = "cli")]
pub use {
    error::{ConfigError, ConfigErrors, Origin},
    load::{DEFAULT_FILE, file_of, load},
    resolve::{Place, Resolved, resolve},
};

#[cfg(feature = "cli")]
pub(crate) use value::log_level;

use crate::client::SocketPath;
use crate::cpuset::CpuSet;

/// Everything that `run` goes by.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where answers come from.
    pub upstream: Upstream,
    /// The socket that clients call.
    pub listen: Listen,
    /// What each client may have.
    pub clients: Clients,
    /// Classes of clients, in the order in which they are tried.
    pub classes: Vec<Class>,
    /// Health, metrics, status.
    pub admin: Admin,
    /// What is logged, and how.
    pub log: Log,
    /// Stand a built-in dense node behind the proxy in place of a kubelet.
    pub demo: bool,
}

/// Where answers come from, and what may be asked of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Upstream {
    /// The kubelet's podresources socket.
    pub socket: SocketPath,
    /// The kubelet's root directory: its state files are below it.
    pub kubelet_dir: PathBuf,
    /// The largest reply taken from the kubelet, in bytes.
    pub max_reply: usize,
    /// Calls a second in the long run.
    pub rate: f64,
    /// Calls at once after a quiet time.
    pub burst: NonZeroU32,
    /// How old an answer may be while the kubelet cannot be reached.
    pub max_stale: Duration,
    /// How long a restarted kubelet may take to name again a pod that it had, where the pod's cgroup cannot be seen.
    pub restart_settle: Duration,
    /// What is to tell of changes.
    pub change_sources: Vec<ChangeSource>,
    /// The slow timer, for changes that no event shows.
    pub refresh_interval: Duration,
    /// Where the last good snapshot is kept over a restart; `None`: nowhere.
    pub state_dir: Option<PathBuf>,
    /// The kubelet's log directory: its names say which cgroup is which pod.
    pub pod_logs_dir: PathBuf,
    /// Where the cgroup file systems are mounted.
    pub cgroup_root: PathBuf,
    /// Which source is asked.
    pub source: Source,
    /// The host stands in for a kubelet that does not answer.
    pub failover: bool,
    /// Also where no kubelet has told of devices.
    pub partial_host_answers: bool,
    /// How often the kubelet's view is compared with the host's; `None`: never.
    pub drift_check: Option<Duration>,
    /// CPUs that are kept from pods; `None`: the kubelet's configuration says so.
    pub reserved_cpus: Option<CpuSet>,
    /// The kubelet's configuration file.
    pub kubelet_config: PathBuf,
    /// The runtimes' directories of bundles.
    pub bundle_dirs: Vec<PathBuf>,
}

/// Which source is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The kubelet, where there is one; else the host.
    Auto,
    /// The kubelet, whether there is one yet or not.
    Kubelet,
    /// The host.
    Host,
}

/// A way of learning that something changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeSource {
    /// The kernel's own count of changes.
    Ebpf,
    /// A mark on each cgroup file system.
    Fanotify,
    /// inotify on the kubepods cgroups.
    Kubepods,
    /// inotify on the kubelet's directories.
    KubeletDirs,
    /// The kubelet's Pods API.
    PodsApi,
    /// The slow timer.
    Timer,
}

/// The socket that clients call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// Its path.
    pub socket: SocketPath,
    /// Its permission bits.
    pub mode: u32,
    /// Its owner's uid; `None`: the process's own.
    pub owner: Option<u32>,
    /// Its group's gid; `None`: the process's own.
    pub group: Option<u32>,
    /// Take the socket over from a living process.
    pub replace: bool,
    /// How long requests in flight may take to finish after SIGTERM.
    pub grace: Duration,
    /// At most so many serving threads; `None`: one for each CPU that the process may use.
    pub threads: Option<NonZeroUsize>,
    /// Connections open at a time, of all clients together.
    pub max_connections: NonZeroUsize,
}

/// What each client may have.
#[derive(Clone, Debug, PartialEq)]
pub struct Clients {
    /// Whether that holds.
    pub admission: Admission,
    /// Calls a second in the long run.
    pub rate: f64,
    /// Calls at once after a quiet time.
    pub burst: NonZeroU32,
    /// Connections open at a time.
    pub connections: NonZeroU32,
    /// Calls in flight at a time.
    pub calls: NonZeroU32,
    /// Bytes of replies that wait to be written.
    pub waiting_bytes: usize,
}

/// Whether limits hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// What is over them is refused.
    Enforce,
    /// It is counted.
    Observe,
    /// Nobody looks who a client is.
    Off,
}

/// Health, metrics, status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Address of `/healthz`, `/readyz`, `/metrics`; `None`: off.
    pub address: Option<SocketAddr>,
    /// The Unix socket for root alone; `None`: off.
    pub socket: Option<SocketPath>,
}

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// How a line looks.
    pub format: LogFormat,
    /// Which lines: a level, or `tracing` directives such as `info,podresources_proxy::refresh=debug`.
    pub level: String,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

// === impl ChangeSource ===

impl ChangeSource {
    /// All, best first.
    pub const ALL: [Self; 6] = [Self::Ebpf, Self::Fanotify, Self::Kubepods, Self::KubeletDirs, Self::PodsApi, Self::Timer];

    /// As the setting has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ebpf => "ebpf",
            Self::Fanotify => "fanotify",
            Self::Kubepods => "kubepods",
            Self::KubeletDirs => "kubelet-dirs",
            Self::PodsApi => "pods-api",
            Self::Timer => "timer",
        }
    }
}
