//! Connections that have been accepted, and wait to be looked at: no process that dials and dials makes the others wait for long there, or
//! fills it.
//!
//! Who a client is, is not known here yet, and costs a look into `/proc`. But each process is of one client, so one process's connections
//! can be bounded before anybody looks: how many wait, how many come within a second, and those of a process whose client has just been
//! found to have too many. A map behind a lock, taken a few times for a connection and never for a call.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt};
use tokio::time::Instant;

use crate::admission::{Bucket, Pace};

/// Connections of one process that wait at the same time: as many as one client may have. Each is looked at within a fraction of a millisecond.
const OF_PROCESS: usize = 128;
/// The same for a user whose processes we cannot see: other pid namespaces, without hostPID.
const OF_USER: usize = 256;
/// Connections of one process a second, and at once; of a user four times as many. A dialler's queue in the kernel has to be emptied
/// quicker than it is filled, and looking at every connection would be too slow for that.
const DIALS: (f64, u32) = (1_000.0, 256);
const DIALS_OF_USER: (f64, u32) = (4.0 * DIALS.0, 4 * DIALS.1);
/// How long a process is kept out unseen once its client was found to have too many connections, unless one of its own ends.
const SHUT_OUT: Duration = Duration::from_millis(100);
/// How often those are forgotten of whom nothing needs to be known any more; and sooner where so many have come, or twice as many as were
/// left the last time, so that a sweep costs each newcomer the same, however many processes come.
const SWEEP: Duration = Duration::from_secs(1);
const SWEEP_AT: usize = 1024;
/// As soon as so many wait, nobody gets a second one: an eighth of all connections that may be open, within these.
const CROWDED: RangeInclusive<usize> = 16..=512;

/// Those that wait.
#[derive(Debug)]
pub(super) struct Lobby {
    crowd: Mutex<Crowd>,
    crowded: usize,
    opened: Instant,
}

#[derive(Debug, Default)]
struct Crowd {
    callers: HashMap<Caller, Seen>,
    /// How many wait, of all callers.
    all: usize,
    next_sweep: Option<Instant>,
    /// How many callers are known before the next sweep.
    sweep_at: usize,
}

/// What is known of a caller.
#[derive(Debug)]
struct Seen {
    waiting: usize,
    dials: Bucket,
    shut_out_until: Option<Instant>,
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

    fn pace(self) -> Option<Pace> {
        match self {
            Self::Process { .. } => Some(Pace::new(DIALS.0, DIALS.1)),
            Self::User { .. } => Some(Pace::new(DIALS_OF_USER.0, DIALS_OF_USER.1)),
            Self::Unknown => None,
        }
    }
}

// === impl Lobby ===

impl Lobby {
    /// `connections`: how many may be open at a time.
    pub(super) fn new(connections: usize) -> Arc<Self> {
        Arc::new(Self { crowd: Mutex::default(), crowded: crowded(connections), opened: Instant::now() })
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.crowd().all
    }

    /// A place for one more connection; `None`: it has to be closed.
    pub(super) fn enter(self: &Arc<Self>, caller: Caller, now: Instant) -> Option<Waiting> {
        let clock = self.clock(now);
        let mut crowd = self.crowd();
        if crowd.next_sweep.is_none_or(|next| next <= now) || crowd.callers.len() >= crowd.sweep_at {
            crowd.sweep(clock, now);
        }
        let most = if crowd.all < self.crowded || caller == Caller::Unknown { caller.most() } else { 1 };
        let seen = crowd.callers.entry(caller).or_insert_with(Seen::new);
        let dials_on = || caller.pace().is_none_or(|pace| seen.dials.take(1, pace, clock).is_ok());
        if seen.shut_out_until.is_some_and(|until| now < until) || seen.waiting >= most || !dials_on() {
            return None;
        }
        seen.waiting += 1;
        crowd.all += 1;
        Some(Waiting { lobby: Arc::clone(self), caller })
    }

    /// This caller's client has been found to have more connections than it may: its next ones need no look for a while.
    pub(super) fn shut_out(&self, caller: Caller, now: Instant) {
        if caller != Caller::Unknown {
            self.crowd().callers.entry(caller).or_insert_with(Seen::new).shut_out_until = Some(now + SHUT_OUT);
        }
    }

    /// One of this caller's connections has ended: there may be room for another.
    pub(super) fn left(&self, caller: Caller) {
        if let Some(seen) = self.crowd().callers.get_mut(&caller) {
            seen.shut_out_until = None;
        }
    }

    fn clock(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.opened).as_nanos()).unwrap_or(u64::MAX)
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

// === impl Crowd ===

impl Crowd {
    fn sweep(&mut self, clock: u64, now: Instant) {
        self.callers.retain(|_, seen| seen.matters(clock, now));
        self.sweep_at = SWEEP_AT.max(2 * self.callers.len());
        self.callers.shrink_to(self.sweep_at);
        self.next_sweep = Some(now + SWEEP);
    }
}

// === impl Seen ===

impl Seen {
    fn new() -> Self {
        Self { waiting: 0, dials: Bucket::full(), shut_out_until: None }
    }

    /// Whether forgetting it would make a difference.
    fn matters(&self, clock: u64, now: Instant) -> bool {
        self.waiting > 0 || !self.dials.is_full(clock) || self.shut_out_until.is_some_and(|until| now < until)
    }
}

// === impl Waiting ===

impl Waiting {
    pub(super) const fn caller(&self) -> Caller {
        self.caller
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut crowd = self.lobby.crowd();
        crowd.all -= 1;
        if let Some(seen) = crowd.callers.get_mut(&self.caller) {
            seen.waiting -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn process(pid: i32) -> Caller {
        Caller::Process { pid, uid: 0 }
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_dials_without_end_is_bounded_and_another_comes_in() {
        let (lobby, now) = (Lobby::new(4096), Instant::now());
        let held: Vec<_> = std::iter::from_fn(|| lobby.enter(process(1), now)).take(1_000).collect();
        assert_eq!(held.len(), OF_PROCESS);
        assert!(lobby.enter(process(2), now).is_some());
        drop(held);
        assert!(lobby.enter(process(1), now).is_some(), "there is room again");
    }

    #[tokio::test(start_paused = true)]
    async fn in_a_crowd_everybody_gets_in_once() {
        let (lobby, crowded, now) = (Lobby::new(4096), crowded(4096), Instant::now());
        let mut held: Vec<_> =
            (0..64).flat_map(|pid| std::iter::repeat_n(pid, OF_PROCESS)).filter_map(|pid| lobby.enter(process(pid), now)).collect();
        assert_eq!(held.len(), crowded + 64 - crowded / OF_PROCESS, "those who came first, then one of each other");
        held.extend(lobby.enter(process(1_000), now));
        assert_eq!(held.len(), crowded + 64 - crowded / OF_PROCESS + 1);
        assert!(lobby.enter(process(1_000), now).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_comes_and_goes_without_end_is_kept_to_a_pace_and_another_is_not() {
        let lobby = Lobby::new(4096);
        let dials = |pid, now| (0..5_000).filter(|_| lobby.enter(process(pid), now).is_some()).count();
        let now = Instant::now();
        assert_eq!((dials(1, now), dials(1, now)), (256, 0));
        assert_eq!(dials(1, now + Duration::from_millis(100)), 100);
        assert_eq!(dials(2, now), 256);
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_of_a_client_with_too_many_is_kept_out_for_a_moment_or_until_one_of_its_own_ends() {
        let (lobby, now) = (Lobby::new(4096), Instant::now());
        lobby.shut_out(process(1), now);
        assert!(lobby.enter(process(1), now).is_none());
        assert!(lobby.enter(process(2), now).is_some());
        assert!(lobby.enter(process(1), now + SHUT_OUT).is_some());
        lobby.shut_out(process(1), now);
        lobby.left(process(1));
        assert!(lobby.enter(process(1), now).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_kept_of_those_who_have_gone() {
        let (lobby, now) = (Lobby::new(4096), Instant::now());
        drop((0..100).map(|pid| lobby.enter(process(pid), now)).collect::<Vec<_>>());
        lobby.shut_out(process(1), now);
        drop(lobby.enter(process(1_000), now + SWEEP));
        let crowd = lobby.crowd();
        assert_eq!((crowd.all, crowd.callers.len()), (0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn little_is_kept_however_many_processes_come_and_go() {
        let (lobby, start) = (Lobby::new(4096), Instant::now());
        for pid in 0..100_000 {
            drop(lobby.enter(process(pid), start + Duration::from_micros(10) * pid.unsigned_abs()).unwrap());
            assert!(lobby.crowd().callers.len() <= SWEEP_AT);
        }
        let kept = lobby.crowd().callers.capacity();
        assert!(kept <= 4 * SWEEP_AT, "room for {kept}");
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_dial_for_every_call_are_never_kept_out() {
        let (lobby, start) = (Lobby::new(4096), Instant::now());
        for call in 0..10_000 {
            let now = start + Duration::from_millis(10) * call;
            assert!(lobby.enter(process(1), now).is_some(), "100 a second, call {call}");
            // A hundred processes that we cannot tell apart make 1,000 a second, as another of the same user dials ten at once now and then.
            let burst = if call % 100 == 0 { 20 } else { 10 };
            let held: Vec<_> = (0..burst).map(|_| lobby.enter(Caller::User { uid: 0 }, now)).collect();
            assert!(held.iter().all(Option::is_some), "call {call}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_dials_without_end_leaves_room_for_others_of_a_user_whose_processes_cannot_be_seen() {
        // 10,000 dials a second, and each hundredth is another's: within the user's pace they are let in as they come.
        let (lobby, start) = (Lobby::new(4096), Instant::now());
        let (mut others, mut let_in) = (0, 0);
        for dial in 0..50_000_u32 {
            let now =
                start + Duration::from_micros(100) * dial + Duration::from_nanos(u64::from(dial.wrapping_mul(2_654_435_761) >> 16));
            let entered = lobby.enter(Caller::User { uid: 0 }, now).is_some();
            if dial.wrapping_mul(2_654_435_761) % 100 == 0 {
                others += 1;
                let_in += u32::from(entered);
            }
        }
        assert!(let_in * 10 >= others * 3, "{let_in} of {others}: two in five are within the pace");
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
