//! The serving stack over real sockets, with answers made up: what good clients get, what bad ones get, and how it begins and ends.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should say where")]

mod admission;
mod calls;
mod client;
mod fake;
mod frames;
mod lifecycle;
mod place;
mod raw;
