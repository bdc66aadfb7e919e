//! The last good snapshot on disk, so that it survives a restart of ours: clients that come back before the kubelet does are answered
//! from it, marked and with its true age, and a kubelet that restarts together with us has its first short list completed by it.
//!
//! The directory is one that no client mounts: whoever could write there could lie to all. Nothing of it is used after a reboot,
//! nothing older than `--max-stale`, nothing that is not whole. An age that was saved may be too long by some seconds, never too short.

mod clock;
mod error;
mod record;
mod report;
mod store;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::snapshot::{Allocatable, PodList};

pub use clock::Stamp;
pub use error::{DirError, NotUsed, WriteError};
pub use record::{Stamps, Unreadable};
#[cfg(feature = "fuzzing")]
pub use record::{seal_record, unseal_record};
pub use report::{Report, Told};
pub use writer::Writer;

use store::Store;

/// Where and what to keep.
#[derive(Clone, Debug)]
pub struct Config {
    /// The state directory; `None`: nothing is kept.
    pub dir: Option<PathBuf>,
    /// Whose replies they are: the kubelet's socket.
    pub upstream: PathBuf,
    /// The largest reply taken from the kubelet, in bytes.
    pub max_reply: usize,
    /// What is older is not used.
    pub max_stale: Duration,
}

/// The parts, each for another thread; `None` where nothing is kept.
#[derive(Debug, Default)]
pub struct Keep {
    /// For the refresher: takes what is to be kept.
    pub keeper: Option<Keeper>,
    /// For the refresher: what an earlier instance has left.
    pub saved: Option<Saved>,
    /// Writes, off the hot path.
    pub writer: Option<Writer>,
    /// What is to be told about it.
    pub report: Arc<Report>,
}

/// The refresher's end: hands over, and never waits.
#[derive(Debug)]
pub struct Keeper {
    offers: watch::Sender<Option<Offer>>,
}

/// What is to be kept: the published content, and when captures brought it last.
#[derive(Clone, Debug)]
pub struct Offer {
    /// `v1` List.
    pub list: Arc<PodList>,
    /// GetAllocatableResources, where the kubelet offers it.
    pub allocatable: Option<Arc<Allocatable>>,
    /// `v1alpha1` List, where somebody asks for it.
    pub alpha: Option<Arc<PodList>>,
    /// When those captures began.
    pub stamps: Stamps,
    /// What tells the kubelet from others; `None` also as long as it had not settled after a restart, since what it is still to tell is
    /// then in none of its replies.
    pub server: Option<Arc<str>>,
}

/// What an earlier instance of this boot has left.
#[derive(Clone, Debug)]
pub struct Saved {
    /// `v1` List.
    pub list: Kept<Arc<PodList>>,
    /// GetAllocatableResources.
    pub allocatable: Option<Kept<Arc<Allocatable>>>,
    /// `v1alpha1` List.
    pub alpha: Option<Kept<Arc<PodList>>>,
    /// The same moments by the clock that they were saved by.
    pub stamps: Stamps,
    /// The kubelet that they came from: while it is the same one, it has not restarted.
    pub server: Option<Arc<str>>,
}

/// One reply that was kept.
#[derive(Clone, Debug)]
pub struct Kept<T> {
    /// The reply.
    pub content: T,
    /// When the capture began that confirmed it last, or somewhat earlier.
    pub begun: Instant,
}

// === impl Config ===

impl Config {
    /// Opens the state directory and reads what is there. An unsafe directory is an error; one that is not to be had is a warning, and
    /// nothing is kept then.
    pub fn open(&self) -> Result<Keep, DirError> {
        let Some(dir) = &self.dir else { return Ok(Keep::default()) };
        let report = Arc::new(Report::at(dir.clone()));
        let mut store = match Store::open(dir, &self.upstream, self.max_file()) {
            Ok(store) => store,
            Err(error) if error.is_unsafe() => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "the last good snapshot will not survive a restart");
                report.failed(&error.to_string());
                return Ok(Keep { report, ..Keep::default() });
            }
        };
        let saved = match store.load(Stamp::now(), Instant::now(), self.max_stale) {
            Ok(saved) => saved,
            Err(why) => {
                tracing::warn!(file = %store.file().display(), %why, "the saved snapshot is not used");
                report.not_used(&why.to_string());
                None
            }
        };
        if let Some(saved) = &saved {
            let age = saved.list.begun.elapsed();
            tracing::info!(pods = saved.list.content.len(), ?age, "a saved snapshot is there, should the kubelet not be");
        }
        let (offers, taken) = watch::channel(None);
        let writer = Writer::new(store, taken, report.clone());
        Ok(Keep { keeper: Some(Keeper { offers }), saved, writer: Some(writer), report })
    }

    /// The largest file that is read: three replies, which restarts may have completed.
    fn max_file(&self) -> u64 {
        const ROOM: u64 = 1 << 20;
        (self.max_reply as u64).saturating_mul(4).saturating_add(ROOM)
    }
}

// === impl Keeper ===

impl Keeper {
    /// Has this written soon. A later offer takes the place of one that is not written yet.
    pub fn offer(&self, offer: Offer) {
        self.offers.send_replace(Some(offer));
    }
}

#[cfg(test)]
mod tests;
