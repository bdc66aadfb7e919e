//! A kubelet stand-in: a synthetic dense node behind a podresources socket, with the kubelet's own manners. People use it without a
//! cluster; tests and benches drive it through [`Simulator`].
//!
//! Like a kubelet it rebuilds its answer for each call, in a fresh random order, and has one rate limiter for everybody. Only bytes
//! given by hand ([`Config::from`], [`Simulator::set_list`]) go out as they are. It starts no containers and touches no cgroups.

mod config;
mod counters;
mod fault;
mod free;
mod inventory;
mod lifecycle;
mod limiter;
mod node;
mod pod;
mod profile;
mod recorded;
mod reply;
mod service;
mod simulator;
mod state;
mod state_files;
mod sysfs;
mod workload;

#[cfg(test)]
mod tests;

pub use config::{Config, ConfigError, PodTimes, RestartTimes};
pub use fault::{Broken, Fault};
pub use limiter::Rate;
pub use node::{AllocateError, Node, NodeSpec};
pub use pod::{Claim, Container, ContainerRequest, MemoryBlock, Phase, Pod, PodKey, PodRequest};
pub use profile::{Features, Profile, Support, UnknownProfile};
pub use recorded::RecordedError;
pub use service::Method;
pub use simulator::{PodError, Simulator, StartError};
pub use state::Stage;
pub use state_files::StateFileError;
pub use sysfs::SYSFS;
