//! Connections that have been accepted, and wait to be looked at: no process that dials and dials makes the others wait for long there, or
//! fills it.
//!
//! Who a client is, is not known here yet, and costs a look into `/proc`. But each process is of one client, so one process's connections
//! can be bounded before anybody looks. A map behind a lock, taken twice for a connection and never for a call.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::socket::{getsockopt, sockopt};

/// Connections of one process that wait at the same time: as many as one client may have. Each is looked at within a fraction of a millisecond.
const OF_PROCESS: usize = 128;
/// The same for a user whose processes we cannot see: other pid namespaces, without hostPID.
const OF_USER: usize = 256;
/// As soon as so many wait, nobody gets a second one: an eighth of all connections that may be open, within these.
const CROWDED: RangeInclusive<usize> = 16..=512;

/// Those that wait.
#[derive(Debug)]
pub(super) struct Lobby {
    crowd: Mutex<Crowd>,
    crowded: usize,
}

#[derive(Debug, Default)]
struct Crowd {
    waiting: HashMap<Caller, usize>,
    all: usize,
}

/// Who connected, as the kernel noted it: a system call that does not block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Caller {
    /// This process.
    Process { pid: i32, uid: u32 },
    /// Some process of this user.
    User { uid: u32 },
    /// Not a Unix socket.
    Unknown,
}

/// A connection's place, until dropped.
#[derive(Debug)]
pub(super) struct Waiting {
    lobby: Arc<Lobby>,
    caller: Caller,
}

// === impl Caller ===

impl Caller {
    pub(super) fn of(socket: &impl AsFd) -> Self {
        match getsockopt(socket, sockopt::PeerCredentials) {
            Ok(peer) if peer.pid() > 0 => Self::Process { pid: peer.pid(), uid: peer.uid() },
            Ok(peer) => Self::User { uid: peer.uid() },
            Err(_) => Self::Unknown,
        }
    }

    pub(super) const fn is_root(self) -> bool {
        matches!(self, Self::Process { uid: 0, .. } | Self::User { uid: 0 })
    }

    const fn most(self) -> usize {
        match self {
            Self::Process { .. } => OF_PROCESS,
            Self::User { .. } => OF_USER,
            Self::Unknown => usize::MAX,
        }
    }
}

// === impl Lobby ===

impl Lobby {
    /// `connections`: how many may be open at a time.
    pub(super) fn new(connections: usize) -> Arc<Self> {
        Arc::new(Self { crowd: Mutex::default(), crowded: crowded(connections) })
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.crowd().all
    }

    /// A place for one more connection; `None`: it has to be closed.
    pub(super) fn enter(self: &Arc<Self>, caller: Caller) -> Option<Waiting> {
        let mut crowd = self.crowd();
        let before = crowd.waiting.get(&caller).copied().unwrap_or(0);
        let most = if crowd.all < self.crowded || caller == Caller::Unknown { caller.most() } else { 1 };
        if before >= most {
            return None;
        }
        crowd.all += 1;
        *crowd.waiting.entry(caller).or_default() += 1;
        Some(Waiting { lobby: Arc::clone(self), caller })
    }

    /// What is behind the lock is whole between any two lines.
    fn crowd(&self) -> MutexGuard<'_, Crowd> {
        self.crowd.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many that wait are a crowd.
pub(super) fn crowded(connections: usize) -> usize {
    (connections / 8).clamp(*CROWDED.start(), *CROWDED.end())
}

// === impl Waiting ===

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut crowd = self.lobby.crowd();
        crowd.all -= 1;
        if let Some(count) = crowd.waiting.get_mut(&self.caller) {
            *count -= 1;
            if *count == 0 {
                crowd.waiting.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn process(pid: i32) -> Caller {
        Caller::Process { pid, uid: 0 }
    }

    #[test]
    fn a_process_that_dials_without_end_is_bounded_and_another_comes_in() {
        let lobby = Lobby::new(4096);
        let held: Vec<_> = std::iter::from_fn(|| lobby.enter(process(1))).take(1_000).collect();
        assert_eq!(held.len(), OF_PROCESS);
        assert!(lobby.enter(process(2)).is_some());
        drop(held);
        assert!(lobby.enter(process(1)).is_some(), "there is room again");
    }

    #[test]
    fn in_a_crowd_everybody_gets_in_once() {
        let (lobby, crowded) = (Lobby::new(4096), crowded(4096));
        let mut held: Vec<_> =
            (0..64).flat_map(|pid| std::iter::repeat_n(pid, OF_PROCESS)).filter_map(|pid| lobby.enter(process(pid))).collect();
        assert_eq!(held.len(), crowded + 64 - crowded / OF_PROCESS, "those who came first, then one of each other");
        held.extend(lobby.enter(process(1_000)));
        assert_eq!(held.len(), crowded + 64 - crowded / OF_PROCESS + 1);
        assert!(lobby.enter(process(1_000)).is_none());
    }

    #[test]
    fn nothing_is_kept_of_those_who_have_gone() {
        let lobby = Lobby::new(4096);
        drop((0..100).map(|pid| lobby.enter(process(pid))).collect::<Vec<_>>());
        let crowd = lobby.crowd();
        assert_eq!((crowd.all, crowd.waiting.len()), (0, 0));
    }

    #[test]
    fn the_peer_of_a_socket_is_its_process_and_user() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let (pid, uid) = (i32::try_from(std::process::id()).unwrap(), rustix::process::getuid().as_raw());
        assert_eq!(Caller::of(&ours), Caller::Process { pid, uid });
        let (reader, _writer) = std::io::pipe().unwrap();
        assert_eq!(Caller::of(&reader), Caller::Unknown);
    }
}
