//! Who is at the other end of a connection: a pod, a systemd unit or a user, as the kernel tells it; never what the client says.
//!
//! Everything that [`Resolver`] does blocks (it reads `/proc`): call it off the accepting and the serving threads.

mod client;
mod resolver;

pub use client::{Client, ContainerId, Peer, Unit};
pub use resolver::Resolver;
