//! Who waits for a capture, and which.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::budget::Urgency;
use super::view::{Need, Part};

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// `v1` List, and Get with it.
    List,
    /// `v1` GetAllocatableResources.
    Allocatable,
    /// `v1alpha1` List.
    AlphaList,
}

/// The waiting requests, told to the refresher.
#[derive(Debug, Default)]
pub(super) struct Demand {
    list: Queue,
    allocatable: Queue,
    alpha_list: Queue,
    news: Notify,
}

/// The waiting requests of one lane; only the most demanding counts, since a capture that contents it contents all.
#[derive(Debug, Default)]
struct Queue {
    waiting: AtomicUsize,
    /// The latest epoch that anyone wants.
    epoch: AtomicU64,
    /// The latest epoch that anyone knows of, whatever answer would content them.
    known: AtomicU64,
    /// A capture has to begin after this.
    after: Mutex<Option<Instant>>,
}

/// A place in the queue; dropping it gives the place up.
#[derive(Debug)]
pub(super) struct Place<'a>(&'a AtomicUsize);

// === impl Demand ===

impl Demand {
    /// Waits in a lane.
    pub(super) fn join(&self, lane: Lane, need: &Need) -> Place<'_> {
        let queue = self.queue(lane);
        queue.known.fetch_max(need.epoch, Ordering::Relaxed);
        if need.max_age.is_some() {
            let mut after = queue.after.lock().unwrap_or_else(PoisonError::into_inner);
            *after = (*after).max(Some(need.arrived));
        } else {
            queue.epoch.fetch_max(need.epoch, Ordering::Relaxed);
        }
        // Release: whoever sees the place taken sees what is wanted.
        queue.waiting.fetch_add(1, Ordering::Release);
        self.news.notify_one();
        Place(&queue.waiting)
    }

    /// How many wait in a lane.
    pub(super) fn waiting(&self, lane: Lane) -> usize {
        self.queue(lane).waiting.load(Ordering::Acquire)
    }

    /// Whether somebody waits for a newer capture than this part, and how urgent that is.
    pub(super) fn unmet<T>(&self, lane: Lane, part: Option<&Part<T>>) -> Option<Urgency> {
        let queue = self.queue(lane);
        if queue.waiting.load(Ordering::Acquire) == 0 {
            return None;
        }
        let Some(part) = part else { return Some(Urgency::Waiter) };
        if part.epoch < queue.epoch.load(Ordering::Relaxed) {
            return Some(Urgency::Waiter);
        }
        let after = *queue.after.lock().unwrap_or_else(PoisonError::into_inner);
        after.is_some_and(|after| part.begun <= after).then_some(Urgency::Forced)
    }

    /// The epoch that the verdict "cannot be reached" must not be older than, where somebody waits.
    pub(super) fn epoch(&self, lane: Lane) -> Option<u64> {
        let queue = self.queue(lane);
        (queue.waiting.load(Ordering::Acquire) > 0).then(|| queue.known.load(Ordering::Relaxed))
    }

    /// Resolves once somebody has joined since the last call; for the refresher alone.
    pub(super) async fn news(&self) {
        self.news.notified().await;
    }

    const fn queue(&self, lane: Lane) -> &Queue {
        match lane {
            Lane::List => &self.list,
            Lane::Allocatable => &self.allocatable,
            Lane::AlphaList => &self.alpha_list,
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
