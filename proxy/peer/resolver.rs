//! From a socket to its peer.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::socket::{getsockopt, sockopt};

use super::client::Peer;

/// Tells who is at the other end of a connected Unix socket.
#[derive(Debug, Default)]
pub struct Resolver {}

// === impl Resolver ===

impl Resolver {
    /// Who connected this socket, as the kernel noted it then. Never fails: who cannot be told apart any better is a user, who is gone
    /// is [`Client::Departed`](super::Client::Departed). Blocks: reads `/proc`.
    pub fn resolve(&self, socket: BorrowedFd<'_>) -> Peer {
        let Ok(credentials) = getsockopt(&socket.as_fd(), sockopt::PeerCredentials) else {
            return Peer::departed(u32::MAX);
        };
        Peer::of_uid(credentials.uid())
    }
}
