//! podresources-proxy: stands in front of the kubelet's podresources API on a node.
//!
//! Data flows one way: [`change`] says *that* something changed, [`refresh`] captures from a [`source`] and publishes a
//! [`snapshot`], [`serve`] answers clients from it. The client side ([`client`], [`proto`]) needs none of that.

#[cfg(feature = "server")]
mod backoff;
#[cfg(any(feature = "server", feature = "cli"))]
mod causes;
pub mod client;
#[cfg(any(feature = "server", feature = "cli"))]
pub mod cpuset;
pub mod grpc;
pub mod proto;

#[cfg(any(feature = "server", feature = "cli"))]
pub mod admin;
#[cfg(feature = "server")]
pub mod admission;
#[cfg(feature = "server")]
pub mod answer;
#[cfg(feature = "server")]
pub mod app;
#[cfg(feature = "server")]
pub mod change;
#[cfg(feature = "server")]
pub mod drift;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(feature = "server")]
pub mod keep;
#[cfg(feature = "server")]
pub mod kubepods;
#[cfg(feature = "server")]
pub mod peer;
#[cfg(feature = "server")]
pub mod refresh;
#[cfg(feature = "server")]
pub mod serve;
#[cfg(feature = "server")]
pub mod simulate;
#[cfg(feature = "server")]
pub mod snapshot;
#[cfg(feature = "server")]
pub mod source;
#[cfg(feature = "server")]
mod sys;

#[cfg(feature = "server")]
pub use sys::rights;

#[cfg(feature = "cli")]
pub mod cli;
#[cfg(any(feature = "server", feature = "cli"))]
pub mod config;
