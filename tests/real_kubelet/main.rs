//! The proxy in front of a real kubelet, asked by real clients.
//!
//! `cargo xtask test --only kubelet` builds what this needs and runs it, as root: `LAB_BIN` names the folder with the kubelet
//! (tests/lab/build), `CLIENTS_BIN` the one with the clients (tests/clients/build). Each test has a node of its own, so they run one
//! after the other.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should say where")]

mod call;
mod canonical;
mod cgroup;
mod clients;
mod cluster;
mod cni_add;
mod drift;
mod failover;
mod fidelity;
mod host;
mod identity;
mod new_pods;
mod node;
mod outages;
mod proxy;
mod restarts;
mod storm;
