//! What a stand-in is to be like. All fields are public, and [`Config::default`] is a dense node of today.

use std::path::PathBuf;
use std::time::Duration;

use super::limiter::Rate;
use super::node::NodeSpec;
use super::profile::{Features, Profile};

/// Settings of the stand-in.
#[derive(Clone, Debug)]
pub struct Config {
    /// The socket; `None`: `<root_dir>/pod-resources/kubelet.sock`.
    pub socket: Option<PathBuf>,
    /// The kubelet's root directory, in which state files are kept as pods come and go; `None`: no state files.
    pub root_dir: Option<PathBuf>,
    /// Take the socket from a living process, as it is: by a rename.
    pub replace: bool,
    /// Active pods.
    pub pods: usize,
    /// Ended pods that the kubelet knows still: in `v1alpha1` List, in Get, and before 1.34 in `v1` List.
    pub terminated: usize,
    /// Devices of device plugins.
    pub devices: usize,
    /// Devices that claims are made on (profiles from 1.34).
    pub claims: usize,
    /// NUMA nodes, 1 to 64.
    pub numa_nodes: usize,
    /// The same seed makes the same node.
    pub seed: u64,
    /// The Kubernetes version to behave like.
    pub profile: Profile,
    /// Instead of what the profile offers.
    pub features: Option<Features>,
    /// One limit for everybody, where the profile has one; `None`: off.
    pub rate: Option<Rate>,
    /// Pods per second that are replaced by new ones.
    pub churn: f64,
    /// Time between restarts; `None`: never.
    pub restart_every: Option<Duration>,
    /// How long each part of a restart takes.
    pub restart: RestartTimes,
    /// How long a pod takes to come and to go.
    pub pod: PodTimes,
    /// Waited before each answer.
    pub latency: Duration,
    /// Accepts and never answers.
    pub hang: bool,
    /// A recorded List reply, as bytes or hex text, served byte for byte in place of the synthetic node.
    pub from: Option<PathBuf>,
}

/// The parts of a kubelet restart; the defaults are as seen with Kubernetes 1.37.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartTimes {
    /// Nobody listens; the dead socket file stays.
    pub down: Duration,
    /// Then List is empty and Allocatable has no devices.
    pub empty: Duration,
    /// Then List is whole, and Allocatable still has no devices.
    pub devices: Duration,
}

/// The steps of a pod's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodTimes {
    /// From being listed to holding CPUs, memory and devices.
    pub admission: Duration,
    /// From there to prepared claims.
    pub prepare: Duration,
    /// From leaving List to letting go of what it held.
    pub release: Duration,
}

/// Settings that cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// There is no place for the socket.
    #[error("no socket: give a socket path or the kubelet's root directory")]
    NoSocket,
    /// Too few or too many of something.
    #[error("{what} is {given}: it must be {range}")]
    OutOfRange {
        /// The setting.
        what: &'static str,
        /// Its value.
        given: String,
        /// What it may be.
        range: &'static str,
    },
}

// === impl Config ===

impl Config {
    /// The default node on this socket.
    pub fn at(socket: impl Into<PathBuf>) -> Self {
        Self { socket: Some(socket.into()), ..Self::default() }
    }

    /// Where the socket is.
    pub fn socket(&self) -> Result<PathBuf, ConfigError> {
        let in_root = || self.root_dir.as_ref().map(|root| root.join("pod-resources/kubelet.sock"));
        self.socket.clone().or_else(in_root).ok_or(ConfigError::NoSocket)
    }

    /// What is offered.
    pub fn features(&self) -> Features {
        self.features.unwrap_or_else(|| self.profile.features())
    }

    /// Whether all values make sense.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.socket()?;
        let within = |ok: bool, what, given: &dyn ToString, range| {
            if ok { Ok(()) } else { Err(ConfigError::OutOfRange { what, given: given.to_string(), range }) }
        };
        within((1..=64).contains(&self.numa_nodes), "the number of NUMA nodes", &self.numa_nodes, "1 to 64")?;
        within(self.pods <= 100_000, "the number of pods", &self.pods, "at most 100000")?;
        within(self.terminated <= 100_000, "the number of ended pods", &self.terminated, "at most 100000")?;
        within(self.devices <= 100_000, "the number of devices", &self.devices, "at most 100000")?;
        within(self.claims <= 100_000, "the number of claimable devices", &self.claims, "at most 100000")?;
        within((0.0..=1000.0).contains(&self.churn), "churn", &self.churn, "0 to 1000 pods per second")?;
        if let Some(rate) = self.rate {
            within(rate.per_second > 0.0 && rate.per_second.is_finite(), "the rate limit", &rate.per_second, "more than 0")?;
            within(rate.burst > 0, "the rate limit's burst", &rate.burst, "at least 1")?;
        }
        let every = self.restart_every.unwrap_or(Duration::MAX);
        within(every >= Duration::from_millis(100), "the time between restarts", &every.as_secs_f64(), "at least 0.1 s")
    }

    /// The node that this describes.
    pub(super) fn node(&self) -> NodeSpec {
        let features = self.features();
        NodeSpec {
            pods: self.pods,
            terminated: self.terminated,
            devices: self.devices,
            claims: if features.dynamic_resources { self.claims } else { 0 },
            numa_nodes: self.numa_nodes,
            pod_level: features.pod_level,
            seed: self.seed,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            socket: None,
            root_dir: None,
            replace: false,
            pods: 110,
            terminated: 3,
            devices: 128,
            claims: 4,
            numa_nodes: 2,
            seed: 1,
            profile: Profile::default(),
            features: None,
            rate: Some(Rate::KUBELET),
            churn: 0.0,
            restart_every: None,
            restart: RestartTimes::default(),
            pod: PodTimes::default(),
            latency: Duration::ZERO,
            hang: false,
            from: None,
        }
    }
}

// === impl RestartTimes ===

impl Default for RestartTimes {
    fn default() -> Self {
        Self { down: Duration::from_millis(300), empty: Duration::from_millis(100), devices: Duration::from_millis(50) }
    }
}

// === impl PodTimes ===

impl PodTimes {
    /// Every step at once.
    pub const AT_ONCE: Self = Self { admission: Duration::ZERO, prepare: Duration::ZERO, release: Duration::ZERO };
}

impl Default for PodTimes {
    fn default() -> Self {
        Self { admission: Duration::from_millis(2), prepare: Duration::from_millis(5), release: Duration::from_millis(100) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_out_of_range_is_named_with_what_it_may_be() {
        let error = Config { numa_nodes: 0, ..Config::at("k.sock") }.check().unwrap_err();
        assert_eq!(error.to_string(), "the number of NUMA nodes is 0: it must be 1 to 64");
        let error = Config { churn: f64::NAN, ..Config::at("k.sock") }.check().unwrap_err();
        assert_eq!(error.to_string(), "churn is NaN: it must be 0 to 1000 pods per second");
    }

    #[test]
    fn without_a_socket_it_is_the_kubelets_place_in_the_root_directory() {
        assert_eq!(Config::default().check(), Err(ConfigError::NoSocket));
        let config = Config { root_dir: Some("/k".into()), ..Config::default() };
        assert_eq!(config.socket(), Ok("/k/pod-resources/kubelet.sock".into()));
    }
}
