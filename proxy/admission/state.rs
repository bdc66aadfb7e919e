//! One client's state: what is left of its limits, and what it has done.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use arc_swap::ArcSwap;

use crate::answer::Who;
use crate::peer::Peer;

use super::atomic::AtomicU64;
use super::flood::Flood;
use super::rules::METHODS;
use super::tally::Sums;
use super::{Bucket, Pace, Reason, Rules};

/// How long a client that floods is not read from, in nanoseconds.
const PAUSE: u64 = 1_000_000_000;
/// Between two log lines on one client, in nanoseconds.
const LOG_EVERY: u64 = 60_000_000_000;
/// Bytes a second that are read from one client, and at once. A call takes about 200, and at most 20 KiB.
const READING: (f64, u32) = (512.0 * 1024.0, 2 << 20);

/// All that is known of one client. Aligned so that no cache line has two clients on it: two lines, since they are fetched in pairs.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct State {
    // Written by every call.
    pub(super) bucket: Bucket,
    // Written once a turn of a connection.
    pub(super) sums: Sums,
    // Read by every call.
    pub(super) paused_until: AtomicU64,
    pub(super) rules: ArcSwap<Rules>,
    // Written by calls of methods that go by rules of their own.
    pub(super) by_method: [Bucket; METHODS],
    // Written now and then.
    reading: Bucket,
    pub(super) connections: AtomicU64,
    flood: Flood,
    refused: [AtomicU64; Reason::ALL.len()],
    pauses: AtomicU64,
    next_line: AtomicU64,
    /// Whether the table will look whether it can be let go.
    pub(super) leaving: AtomicBool,
    pub(super) peer: ArcSwap<Peer>,
    pub(super) who: Who,
}

/// What became of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Noted {
    /// The client has been refused too often, and is not read from for a while.
    pub(super) paused: bool,
    /// It is time for a line in the log.
    pub(super) line: bool,
}

// === impl State ===

impl State {
    pub(super) fn new(id: u64, peer: Peer, rules: Arc<Rules>) -> Self {
        Self {
            bucket: Bucket::full(),
            sums: Sums::default(),
            paused_until: AtomicU64::new(0),
            who: Who { id, weight: rules.limits.weight },
            rules: ArcSwap::new(rules),
            by_method: [(); METHODS].map(|()| Bucket::full()),
            reading: Bucket::full(),
            connections: AtomicU64::new(0),
            flood: Flood::new(),
            refused: Default::default(),
            pauses: AtomicU64::new(0),
            next_line: AtomicU64::new(0),
            leaving: AtomicBool::new(false),
            peer: ArcSwap::from_pointee(peer),
        }
    }

    pub(super) fn refused(&self, reason: Reason) -> u64 {
        self.refused[reason as usize].load(Relaxed)
    }

    pub(super) fn pauses(&self) -> u64 {
        self.pauses.load(Relaxed)
    }

    /// So many bytes have come from it. How long it is not to be read from, in nanoseconds.
    pub(super) fn read(&self, bytes: u64, now: u64) -> u64 {
        self.reading.take(bytes, Pace::new(READING.0, READING.1), now).err().unwrap_or(0)
    }

    /// Counts a refusal. `pausing`: one too many within a second has it left unread.
    #[cold]
    pub(super) fn note(&self, reason: Reason, pausing: bool, now: u64) -> Noted {
        self.refused[reason as usize].fetch_add(1, Relaxed);
        let bearable = 2 * u64::from(self.rules.load().limits.burst);
        let paused = self.flood.refused(bearable, now) && pausing;
        if paused {
            self.paused_until.fetch_max(now.saturating_add(PAUSE), Relaxed);
            self.pauses.fetch_add(1, Relaxed);
        }
        let due = self.next_line.load(Relaxed);
        let next = now.saturating_add(LOG_EVERY);
        let line = now >= due && self.next_line.compare_exchange(due, next, Relaxed, Relaxed).is_ok();
        Noted { paused, line }
    }

    /// Whether nothing is lost by forgetting it: coming back as somebody new it would have no more than it has.
    pub(super) fn may_go(&self, now: u64) -> bool {
        self.connections.load(Relaxed) == 0
            && self.bucket.is_full(now)
            && self.by_method.iter().all(|bucket| bucket.is_full(now))
            && self.reading.is_full(now)
            && self.paused_until.load(Relaxed) <= now
            && self.flood.is_over(now)
    }
}
