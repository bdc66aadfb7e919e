//! Health, readiness, metrics and status, on a thread and runtime of their own, so that probes answer while the data path is jammed.
//!
//! Two doors: a TCP address for probes and scrapes, where nothing can be changed, and a Unix socket for root alone.
//! Under the `cli` feature alone, only the client's half is here: [`request()`] and the schema of `/status`.

mod request;
pub mod status;

#[cfg(feature = "server")]
mod bind;
#[cfg(feature = "server")]
mod error;
#[cfg(feature = "server")]
mod heartbeat;
#[cfg(feature = "server")]
mod log_level;
#[cfg(feature = "server")]
pub mod metrics;
#[cfg(feature = "server")]
mod readiness;
#[cfg(feature = "server")]
mod routes;
#[cfg(feature = "server")]
mod serve;
#[cfg(feature = "server")]
#[cfg(test)]
mod tests;

pub use request::{Reply, RequestError, request};
#[cfg(feature = "server")]
pub use {
    bind::{Bound, Config},
    error::Error,
    heartbeat::{Heartbeat, Heartbeats, Late},
    log_level::LogLevel,
    metrics::Metrics,
    readiness::{Latch, Readiness},
    serve::{Parts, Running},
};
