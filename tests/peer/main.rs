//! Who a client is, told of real processes in real cgroups: the command itself dials, we take its connection and look.
//!
//! Most of it takes root, for cgroups and users: without it those tests say so and pass, save in CI.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod caller;
mod cgroups;
mod forms;
mod gone;
mod namespace;
mod users;
