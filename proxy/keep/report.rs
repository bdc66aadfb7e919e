//! What is told about keeping: for `/status` and metrics.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// Counters and last words, shared between the writer and whoever tells.
#[derive(Debug, Default)]
pub struct Report {
    dir: Option<PathBuf>,
    written: AtomicU64,
    confirmed: AtomicU64,
    failed: AtomicU64,
    told: Mutex<Told>,
}

/// The last words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// When something was written last; by the wall clock, for people.
    pub last_written: Option<SystemTime>,
    /// What keeps it from being written now.
    pub error: Option<String>,
    /// Why what an earlier instance left was not used.
    pub not_used: Option<String>,
}

// === impl Report ===

impl Report {
    pub(super) fn at(dir: PathBuf) -> Self {
        Self { dir: Some(dir), ..Self::default() }
    }

    /// The state directory; `None`: nothing is kept.
    pub const fn dir(&self) -> Option<&PathBuf> {
        self.dir.as_ref()
    }

    /// Snapshots written.
    pub fn snapshots_written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Times that only the age of what is saved was written.
    pub fn ages_written(&self) -> u64 {
        self.confirmed.load(Ordering::Relaxed)
    }

    /// Attempts that failed.
    pub fn failures(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// The last words.
    pub fn told(&self) -> Told {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn not_used(&self, why: &str) {
        self.change(|told| told.not_used = Some(why.to_owned()));
    }

    pub(super) fn wrote(&self, whole: bool) {
        let counter = if whole { &self.written } else { &self.confirmed };
        counter.fetch_add(1, Ordering::Relaxed);
        self.change(|told| {
            told.last_written = Some(SystemTime::now());
            if let Some(error) = told.error.take() {
                tracing::info!(was = error, "the snapshot is saved again");
            }
        });
    }

    /// Whether this is news.
    pub(super) fn failed(&self, error: &str) -> bool {
        self.failed.fetch_add(1, Ordering::Relaxed);
        self.waits(error)
    }

    /// Something stands in the way that is no failure. Whether this is news.
    pub(super) fn waits(&self, error: &str) -> bool {
        let mut news = false;
        self.change(|told| {
            news = told.error.as_deref() != Some(error);
            told.error = Some(error.to_owned());
        });
        news
    }

    fn change(&self, change: impl FnOnce(&mut Told)) {
        change(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
