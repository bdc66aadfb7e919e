//! What the promise "never stale by a known change" rests on, with real cgroups and real files: `cargo xtask test --only freshness` runs it
//! as root.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should say where")]

mod event;
#[path = "../harness/mod.rs"]
#[expect(dead_code, reason = "this test needs a part of it")]
mod harness;
mod quiet;
mod race;
mod state;
mod storm;
mod upstream;
