//! The programs in the running kernel, against real cgroups: what is attached must see all of it, what is not must be told.
//!
//! Needs root, or `CAP_BPF` and `CAP_PERFMON` and a cgroup that may be written. Each test asks for the parts that it is about, so the same
//! binary is right on every kernel.
#![cfg(feature = "ebpf")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod cpuset;
mod events;
mod kprobes;
mod node;
mod refused;
mod renames;
mod roots;
mod words;
