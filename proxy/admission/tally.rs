//! What one connection has in flight and waiting, and what its client's other connections know of it.
//!
//! An atomic operation on a line that others write too is most of what counting costs. A call that begins and is answered within one turn
//! of its connection (one poll of its task) is nobody else's business: it is counted in plain cells, and what is left when the turn ends is
//! told to all, as one difference. A turn begins no more than 16 calls, and there are no more turns at a time than threads that serve; so a
//! client's limits are kept to within that many calls and their replies, and by each connection on its own exactly.

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;

use super::atomic::AtomicU64;

/// A connection's own numbers.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) in_flight: Number,
    /// Calls that have ended, ever.
    pub(super) calls: Number,
    /// Bytes of replies handed over and not yet taken by the socket.
    pub(super) waiting: Number,
    in_turn: Cell<bool>,
}

/// One number that all connections of a client have a part in.
#[derive(Debug, Default)]
pub(super) struct Number {
    part: Cell<u64>,
    /// Of the sum of all parts, this much is ours.
    told: Cell<u64>,
}

/// What the parts of all connections add up to, as far as they have been told.
#[derive(Debug, Default)]
pub(super) struct Sums {
    pub(super) in_flight: AtomicU64,
    pub(super) calls: AtomicU64,
    pub(super) waiting: AtomicU64,
}

// === impl Tally ===

impl Tally {
    /// From now on nothing is told, until [`Self::turn_ends`].
    #[inline]
    pub(super) fn turn_begins(&self) {
        self.in_turn.set(true);
    }

    /// All is told; what changes outside of a turn is told at once.
    #[inline]
    pub(super) fn turn_ends(&self, sums: &Sums) {
        self.in_turn.set(false);
        self.tell(sums);
    }

    /// A number has changed.
    #[inline]
    pub(super) fn changed(&self, sums: &Sums) {
        if !self.in_turn.get() {
            self.tell(sums);
        }
    }

    /// The connection goes: it has no part in what is in flight or waiting any more.
    pub(super) fn leaves(&self, sums: &Sums) {
        self.in_flight.part.set(0);
        self.waiting.part.set(0);
        self.tell(sums);
    }

    fn tell(&self, sums: &Sums) {
        self.in_flight.tell(&sums.in_flight);
        self.calls.tell(&sums.calls);
        self.waiting.tell(&sums.waiting);
    }
}

// === impl Number ===

impl Number {
    #[inline]
    pub(super) fn add(&self, by: u64) {
        self.part.set(self.part.get().wrapping_add(by));
    }

    #[inline]
    pub(super) fn sub(&self, by: u64) {
        self.part.set(self.part.get().wrapping_sub(by));
    }

    /// What all connections have, with our own part as it is now.
    #[inline]
    pub(super) fn of_all(&self, sum: &AtomicU64) -> u64 {
        sum.load(Relaxed).wrapping_sub(self.told.get()).wrapping_add(self.part.get())
    }

    fn tell(&self, sum: &AtomicU64) {
        let part = self.part.get();
        let told = self.told.replace(part);
        if part != told {
            // A number that falls is one that grows by the rest of the circle.
            sum.fetch_add(part.wrapping_sub(told), Relaxed);
        }
    }
}
