//! Writes what is offered, the newest of it, and not too often.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::report::Report;
use super::store::Store;
use super::{Offer, Stamps, WriteError};

/// Between two snapshots written, at least.
const SNAPSHOT_PAUSE: Duration = Duration::from_secs(1);
/// Between two times that only the age is written, at least: an age that is read back is too long by no more than this and the time
/// between two captures.
const AGE_PAUSE: Duration = Duration::from_secs(5);
/// After a failure.
const RETRY: Duration = Duration::from_secs(10);
/// Until the other instance is asked again for its place.
const BUSY_RETRY: Duration = Duration::from_secs(1);

/// The writing side. Its work is done on tokio's blocking threads.
#[derive(Debug)]
pub struct Writer {
    store: Arc<Mutex<Store>>,
    offers: watch::Receiver<Option<Offer>>,
    report: Arc<Report>,
    last: Last,
}

/// What has been written, and when.
#[derive(Clone, Debug, Default)]
struct Last {
    content: Option<Content>,
    stamps: Stamps,
    snapshot_at: Option<Instant>,
    age_at: Option<Instant>,
    /// Nothing is tried before this.
    not_before: Option<Instant>,
}

/// What tells one snapshot from another: digests, and whose they are.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Content {
    list: u128,
    allocatable: Option<u128>,
    alpha: Option<u128>,
    server: Option<Arc<str>>,
}

/// What is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Snapshot,
    Age,
}

// === impl Writer ===

impl Writer {
    pub(super) fn new(store: Store, offers: watch::Receiver<Option<Offer>>, report: Arc<Report>) -> Self {
        Self { store: Arc::new(Mutex::new(store)), offers, report, last: Last::default() }
    }

    /// Writes for as long as something may be offered; may be dropped at any await.
    pub async fn run(&mut self) {
        loop {
            let offer = self.offers.borrow_and_update().clone();
            let Some((offer, (step, at))) = offer.and_then(|offer| self.last.next(&offer).map(|next| (offer, next))) else {
                if self.offers.changed().await.is_err() {
                    return;
                }
                continue;
            };
            let due = at.is_none_or(|at| at <= Instant::now());
            if due {
                let (store, handed) = (self.store.clone(), offer.clone());
                let done = tokio::task::spawn_blocking(move || carry_out(&store, step, &handed)).await;
                // It fails only where it panicked, or the runtime is going down.
                let Ok(done) = done else { return };
                self.note(step, &offer, done);
            } else if let Some(at) = at {
                tokio::select! {
                    () = sleep_until(at) => {}
                    changed = self.offers.changed() => if changed.is_err() { return },
                }
            }
        }
    }

    /// Writes at once what has not been written yet: before the end. Blocks.
    pub fn flush(&mut self) {
        let offer = self.offers.borrow_and_update().clone();
        let Some((offer, (step, _))) = offer.and_then(|offer| self.last.next(&offer).map(|next| (offer, next))) else { return };
        let done = carry_out(&self.store, step, &offer);
        self.note(step, &offer, done);
    }

    fn note(&mut self, step: Step, offer: &Offer, done: Result<bool, WriteError>) {
        let now = Instant::now();
        match done {
            Ok(true) => {
                self.report.wrote(step == Step::Snapshot);
                self.last.wrote(step, offer, now);
            }
            // Somebody has removed the file.
            Ok(false) => self.last.content = None,
            Err(error @ WriteError::Busy { .. }) => {
                self.last.not_before = Some(now + BUSY_RETRY);
                if self.report.waits(&error.to_string()) {
                    tracing::info!(%error, "the snapshot is saved once that one has ended");
                }
            }
            Err(error) => {
                self.last.not_before = Some(now + RETRY);
                // What was there before is still there, only it may not be what is in the file handle.
                self.last.content = None;
                if self.report.failed(&error.to_string()) {
                    tracing::warn!(%error, "the snapshot cannot be saved; it is tried again");
                }
            }
        }
    }
}

fn carry_out(store: &Mutex<Store>, step: Step, offer: &Offer) -> Result<bool, WriteError> {
    let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
    match step {
        Step::Snapshot => store.write(offer).map(|()| true),
        Step::Age => store.confirm(offer.stamps),
    }
}

// === impl Last ===

impl Last {
    /// What is to be written of this, and when; `None`: all of it has been.
    fn next(&self, offer: &Offer) -> Option<(Step, Option<Instant>)> {
        let (step, at) = if self.content.as_ref() != Some(&Content::of(offer)) {
            (Step::Snapshot, self.snapshot_at.map(|at| at + SNAPSHOT_PAUSE))
        } else if self.stamps != offer.stamps {
            (Step::Age, self.age_at.map(|at| at + AGE_PAUSE))
        } else {
            return None;
        };
        Some((step, at.max(self.not_before)))
    }

    fn wrote(&mut self, step: Step, offer: &Offer, now: Instant) {
        self.stamps = offer.stamps;
        self.age_at = Some(now);
        self.not_before = None;
        if step == Step::Snapshot {
            self.content = Some(Content::of(offer));
            self.snapshot_at = Some(now);
        }
    }
}

// === impl Content ===

impl Content {
    fn of(offer: &Offer) -> Self {
        Self {
            list: offer.list.digest(),
            allocatable: offer.allocatable.as_ref().map(|allocatable| allocatable.digest()),
            alpha: offer.alpha.as_ref().map(|alpha| alpha.digest()),
            server: offer.server.clone(),
        }
    }
}
