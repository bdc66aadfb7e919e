//! Counters of the refresher, for metrics and `status`. Written by its thread and by waiting requests, never on the hot path.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::source::Failure;

/// The calls we make upstream, as indexes into [`Stats::calls`].
pub const CALLS: [&str; 4] = ["List", "GetAllocatableResources", "Get", "v1alpha1/List"];

/// How they end, as indexes into each of [`Stats::calls`].
pub const RESULTS: [&str; 8] = ["ok", "unreachable", "lost", "late", "rate_limited", "too_large", "error", "broken"];

/// Monotonic counters.
#[derive(Debug, Default)]
pub struct Stats {
    /// Upstream calls by method and result.
    pub calls: [[Counter; RESULTS.len()]; CALLS.len()],
    /// Connections made to the kubelet.
    pub connections: Counter,
    /// Replies that did not parse, and so were not published.
    pub malformed: Counter,
    /// Captures whose content differed from the last one.
    pub changed: Counter,
    /// Captures whose content was the same.
    pub unchanged: Counter,
    /// Requests that had to wait for a capture.
    pub waits: Counter,
    /// Requests that waited in vain.
    pub expired: Counter,
    /// Gets forwarded to the kubelet.
    pub forwarded: Counter,
    /// Restarts of the kubelet that were merged.
    pub restarts: Counter,
    /// Times that another source was taken.
    pub switches: Counter,
}

/// A counter that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

// === impl Stats ===

impl Stats {
    /// Counts a call's end. `call` is an index into [`CALLS`].
    pub fn called<T>(&self, call: usize, result: &Result<T, Failure>) {
        let result = match result {
            Ok(_) => 0,
            Err(Failure::Unreachable(_)) => 1,
            Err(Failure::Lost(_)) => 2,
            Err(Failure::Late(_)) => 3,
            Err(Failure::RateLimited) => 4,
            Err(Failure::TooLarge(_)) => 5,
            Err(Failure::Answered(_)) => 6,
            Err(Failure::Broken(_)) => 7,
        };
        self.calls[call][result].add();
    }
}

// === impl Counter ===

impl Counter {
    /// Adds one.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How many so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
