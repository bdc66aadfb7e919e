//! Whatever is wrong around it, `podresources-proxy run` says so, says what to do, and ends with the right code or goes on.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should say where")]

mod granted;
#[path = "../harness/mod.rs"]
mod harness;
mod instances;
mod refused;
mod replies;
mod rights;
mod somebody;
mod unreachable;

use harness::client;
