//! What the clients of a class have together. The one place that several clients write to, and only where a user has asked for it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::admission::{Bucket, Pace};
use crate::config;

/// The limits of a class as a whole, and what is left of them.
#[derive(Debug)]
pub(in crate::admission) struct Whole {
    class: String,
    limits: config::Whole,
    pace: Option<Pace>,
    connections: u64,
    left: Arc<Left>,
}

/// What is left; shared with the same class after a reload.
#[derive(Debug)]
#[repr(align(128))]
struct Left {
    bucket: Bucket,
    connections: AtomicU64,
}

/// A connection of a class, until dropped.
#[derive(Debug)]
pub(in crate::admission) struct Counted(Arc<Left>);

// === impl Whole ===

impl Whole {
    /// `None` where the class has no limits as a whole.
    pub(super) fn new(class: &str, limits: config::Whole, previous: Option<&Arc<Self>>) -> Option<Self> {
        let config::Whole { rate, burst, connections } = limits;
        if rate.is_none() && connections.is_none() {
            return None;
        }
        let pace = rate.map(|rate| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast of floats saturates")]
            let second = rate.ceil() as u32;
            Pace::new(rate, burst.map_or(second, std::num::NonZeroU32::get))
        });
        let left = previous.map_or_else(Arc::default, |previous| Arc::clone(&previous.left));
        let connections = connections.map_or(u64::MAX, |most| u64::from(most.get()));
        Some(Self { class: class.to_owned(), limits, pace, connections, left })
    }

    /// Takes a token, or says in how many nanoseconds there will be one.
    pub(in crate::admission) fn take(&self, now: u64) -> Result<(), u64> {
        self.pace.map_or(Ok(()), |pace| self.left.bucket.take(1, pace, now))
    }

    /// Counts a connection in. Whether it is one too many is another question.
    pub(in crate::admission) fn count(&self) -> Counted {
        self.left.connections.fetch_add(1, Relaxed);
        Counted(Arc::clone(&self.left))
    }

    /// Whether more connections are open than may be.
    pub(in crate::admission) fn is_crowded(&self) -> bool {
        self.left.connections.load(Relaxed) > self.connections
    }
}

impl fmt::Display for Whole {
    /// What a client is told that is within its own limits, but its class is not.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "class {} together: {}/s", self.class, self.limits.rate.unwrap_or(f64::INFINITY))
    }
}

// === impl Left ===

impl Default for Left {
    fn default() -> Self {
        Self { bucket: Bucket::full(), connections: AtomicU64::new(0) }
    }
}

// === impl Counted ===

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}
