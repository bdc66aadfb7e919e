//! Fidelity through the whole program: what a client gets from `podresources-proxy run` is what the kubelet behind it says.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should say where")]

#[path = "../serve/frames.rs"]
mod frames;
mod freshness;
#[path = "../harness/mod.rs"]
mod harness;
mod profiles;
mod recorded;
mod restart;
mod saved;

use harness::client;
