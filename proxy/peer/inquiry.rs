//! What the socket itself says of its peer.

use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::sys::socket::{getsockopt, sockopt};

use super::process::Process;

/// What the kernel noted of the peer when it connected. Made by a few system calls that never wait.
#[derive(Debug)]
pub struct Inquiry {
    pub(super) uid: u32,
    pub(super) process: Caller,
}

/// The process that connected.
#[derive(Debug)]
pub(super) enum Caller {
    /// Held, so that no other can be taken for it.
    Held(Process),
    /// It has ended, and its pid may be another's by now.
    Gone,
    /// It is in no pid namespace that we see.
    OutOfSight,
    /// There are no means to hold it: no descriptors left, or not a Unix socket.
    Unknown,
}

// === impl Inquiry ===

impl Inquiry {
    /// Asks of a connected Unix socket. Later is worse only before Linux 6.5, where a peer that has ended can be told from another
    /// process of the same pid only if it was asked while it lived.
    pub fn of(socket: BorrowedFd<'_>) -> Self {
        Self::with(socket, true)
    }

    /// `by_pidfd`: with `SO_PEERPIDFD` (Linux 6.5), where there is one.
    pub(super) fn with(socket: BorrowedFd<'_>, by_pidfd: bool) -> Self {
        let Ok(credentials) = getsockopt(&socket, sockopt::PeerCredentials) else {
            return Self { uid: u32::MAX, process: Caller::Unknown };
        };
        let uid = credentials.uid();
        let pidfd = if by_pidfd { getsockopt(&socket, sockopt::PeerPidfd) } else { Err(Errno::ENOPROTOOPT) };
        let process = match pidfd {
            Ok(pidfd) => Caller::Held(Process::of_pidfd(pidfd)),
            Err(Errno::ESRCH | Errno::EINVAL) => Caller::Gone,
            Err(Errno::ENOPROTOOPT) => match u32::try_from(credentials.pid()) {
                Ok(0) if uid != u32::MAX => Caller::OutOfSight,
                Ok(0) | Err(_) => Caller::Unknown,
                Ok(pid) => Process::of_pid(pid).map_or_else(
                    |error| if error == rustix::io::Errno::SRCH { Caller::Gone } else { Caller::Unknown },
                    Caller::Held,
                ),
            },
            Err(_) => Caller::Unknown,
        };
        Self { uid, process }
    }
}
