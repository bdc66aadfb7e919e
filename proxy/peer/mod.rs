//! Who is at the other end of a connection: a pod, a systemd unit or a user, as the kernel tells it; never what the client says.
//!
//! An [`Inquiry`] asks the socket, and never blocks. The [`Resolver`] answers it by reading `/proc`, which may: call it off the accepting
//! and the serving threads.

mod client;
mod inquiry;
mod names;
mod process;
mod resolver;
#[cfg(test)]
mod tests;
mod vantages;

pub use client::{Client, ContainerId, Peer, Unit};
pub use inquiry::Inquiry;
pub use resolver::{Resolver, Sight};
