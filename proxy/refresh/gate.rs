//! When what has failed may be tried again.

use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::Backoff;

/// Shut for a while after a failure.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) backoff: Backoff,
    pub(super) opens: Instant,
}

// === impl Gate ===

impl Gate {
    pub(super) fn open(now: Instant) -> Self {
        Self { backoff: Backoff::default(), opens: now }
    }

    /// After a failure; says for how long.
    pub(super) fn shut(&mut self, now: Instant) -> Duration {
        let pause = self.backoff.failed(rand::random());
        self.opens = now + pause;
        pause
    }
}
