//! Who is at the other end of a connection: a pod, a systemd unit or a user, as the kernel tells it; never what the client says.
//!
//! An [`Inquiry`] is made where the connection is taken, and never blocks. The [`Resolver`] answers it by reading `/proc`, which blocks;
//! a [`Desk`] has that done off the serving threads.

mod client;
mod desk;
mod inquiry;
mod names;
mod process;
mod resolver;
#[cfg(test)]
mod tests;
mod vantages;

pub use client::{Client, ContainerId, Peer, Unit};
pub use desk::Desk;
pub use inquiry::Inquiry;
pub use resolver::{Resolver, Sight};
