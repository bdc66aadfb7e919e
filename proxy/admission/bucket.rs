//! A token bucket in one word: the generic cell rate algorithm (ITU-T I.371, annex A), in nanoseconds.
//!
//! The word is the time at which the bucket will be full again. No lock and no clock: the time is an argument, counted from any
//! beginning that all callers share. `tests/loom` compiles this file with loom's atomics.

use std::sync::atomic::Ordering::Relaxed;

use super::atomic::AtomicU64;

/// What is left of one client's rate.
#[derive(Debug)]
pub struct Bucket {
    /// When it is full again, in nanoseconds; in the past: it is full.
    full_at: AtomicU64,
}

/// How a bucket fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Nanoseconds for one token.
    interval: u64,
    /// Nanoseconds from empty to full.
    depth: u64,
}

// === impl Pace ===

impl Pace {
    /// So many tokens a second in the long run, and `burst` at once. A rate is rounded to whole nanoseconds per token; one so small that
    /// a token takes longer than a year is taken for one a year.
    #[must_use]
    pub fn new(per_second: f64, burst: u32) -> Self {
        const YEAR: u64 = 365 * 86_400 * 1_000_000_000;
        #[expect(clippy::cast_precision_loss, reason = "a year need not be exact")]
        let interval = (1e9 / per_second).clamp(1.0, YEAR as f64).round();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what a year has in nanoseconds")]
        let interval = interval as u64;
        // A century is as good as for ever, and leaves room to count in.
        let depth = interval.saturating_mul(u64::from(burst.max(1))).min(100 * YEAR);
        Self { interval, depth }
    }

    /// One of `sharers` equal parts of half the burst and all of the rate; never less than one token.
    #[must_use]
    pub fn share(self, sharers: u64) -> Self {
        let interval = self.interval.saturating_mul(sharers.max(1));
        Self { interval, depth: (self.depth / 2 / sharers.max(1)).max(interval) }
    }

    /// The same rate, and half the burst.
    #[must_use]
    pub const fn half(self) -> Self {
        let half = self.depth / 2;
        Self { interval: self.interval, depth: if half > self.interval { half } else { self.interval } }
    }
}

// === impl Bucket ===

impl Bucket {
    /// A full one.
    pub fn full() -> Self {
        Self { full_at: AtomicU64::new(0) }
    }

    /// Takes so many tokens at this time. Where there are not enough, nothing is taken, and the error says in how many nanoseconds there
    /// will be, if nobody else takes any.
    #[inline]
    pub fn take(&self, tokens: u64, pace: Pace, now: u64) -> Result<(), u64> {
        let cost = pace.interval.saturating_mul(tokens);
        let most = now.saturating_add(pace.depth);
        let mut full_at = self.full_at.load(Relaxed);
        loop {
            let then = full_at.max(now).saturating_add(cost);
            if then > most {
                return Err(then - most);
            }
            // Nothing else is published by this word: relaxed is enough, the exchange keeps tokens from being given out twice.
            match self.full_at.compare_exchange_weak(full_at, then, Relaxed, Relaxed) {
                Ok(_) => return Ok(()),
                Err(other) => full_at = other,
            }
        }
    }

    /// Whole tokens left.
    pub fn left(&self, pace: Pace, now: u64) -> u64 {
        let missing = self.full_at.load(Relaxed).saturating_sub(now);
        pace.depth.saturating_sub(missing) / pace.interval
    }

    /// Whether nothing is missing.
    pub fn is_full(&self, now: u64) -> bool {
        self.full_at() <= now
    }

    /// When nothing will be missing, if nobody takes any more.
    pub fn full_at(&self) -> u64 {
        self.full_at.load(Relaxed)
    }
}
