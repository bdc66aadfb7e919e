//! The host as a source: real cgroups of every shape, and the program with no kubelet.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should say where")]
#![expect(dead_code, reason = "the harness and the node of cgroups have more than this target needs")]

mod cgroups;
mod failover;
mod followed;
#[path = "../harness/mod.rs"]
mod harness;
mod program;
mod shapes;
