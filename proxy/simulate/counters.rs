//! What was asked of the stand-in, counted.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::service::Method;

/// Counts since the start; restarts of the simulated kubelet do not reset them.
#[derive(Debug, Default)]
pub(super) struct Counters {
    calls: [AtomicU64; Method::ALL.len()],
    refused: AtomicU64,
    accepted: AtomicU64,
    open: AtomicUsize,
}

/// A connection, counted as long as this lives.
pub(super) struct Open<'a>(&'a Counters);

// === impl Counters ===

impl Counters {
    pub(super) fn call(&self, method: Method) {
        self.calls[method as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn calls(&self, method: Method) -> u64 {
        self.calls[method as usize].load(Ordering::Relaxed)
    }

    pub(super) fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    pub(super) fn connections(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub(super) fn open(&self) -> Open<'_> {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        Open(self)
    }
}

// === impl Open ===

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
