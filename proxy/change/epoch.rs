//! "Changes seen so far", as one word that never falls.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// What a change was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Something that List may show.
    List,
    /// Something that GetAllocatableResources may show as well: the device plugins' checkpoint, a plugin's socket.
    Allocatable,
    /// The kubelet's own socket came or went: everything may differ, and what cannot be reached may be reached again.
    Socket,
}

/// A source whose changes wait in a kernel queue until somebody reads them.
///
/// A change is visible to its maker's next system call as soon as it stands in the queue, so a request that wants the truth
/// must look there before it reads the epoch.
pub trait Queue: Send + Sync {
    /// Turns whatever waits in the queue into bumps of `epoch`. When this returns, every change that was in the queue when it was
    /// called has been counted, whichever thread read it.
    fn take_waiting(&self, epoch: &Epoch);
}

/// Counts changes. A snapshot is fresh for a request when the epoch read before its capture began is at least the epoch that the
/// request read on arrival.
///
/// It means nothing to another process: tokens that leave this one carry an instance id beside it.
pub struct Epoch {
    word: AtomicU64,
    allocatable: AtomicU64,
    socket: AtomicU64,
    queues: Vec<Arc<dyn Queue>>,
    bumped: Notify,
}

// === impl Epoch ===

impl Epoch {
    /// An epoch fed by these queues, and by whoever calls [`Epoch::bump`]. Starts at one, so that zero is older than every change.
    #[must_use]
    pub fn new(queues: Vec<Arc<dyn Queue>>) -> Self {
        Self { word: AtomicU64::new(1), allocatable: AtomicU64::new(1), socket: AtomicU64::new(1), queues, bumped: Notify::new() }
    }

    /// The epoch at this moment: what stands in the queues is counted first.
    pub fn now(&self) -> u64 {
        for queue in &self.queues {
            queue.take_waiting(self);
        }
        // Acquire: pairs with `bump`, so that whoever sees a change also sees what it was about.
        self.word.load(Ordering::Acquire)
    }

    /// Counts one change.
    pub fn bump(&self, kind: Kind) {
        match kind {
            Kind::List => {}
            Kind::Allocatable => {
                self.allocatable.fetch_add(1, Ordering::Relaxed);
            }
            Kind::Socket => {
                self.allocatable.fetch_add(1, Ordering::Relaxed);
                self.socket.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.word.fetch_add(1, Ordering::Release);
        self.bumped.notify_one();
    }

    /// How many of the changes GetAllocatableResources may show. Read it after [`Epoch::now`].
    pub fn allocatable(&self) -> u64 {
        self.allocatable.load(Ordering::Relaxed)
    }

    /// How many of the changes were about the kubelet's socket. Read it after [`Epoch::now`].
    pub fn socket(&self) -> u64 {
        self.socket.load(Ordering::Relaxed)
    }

    /// Resolves once something has been counted since the last call; for one caller only, the refresher.
    pub async fn bumped(&self) {
        self.bumped.notified().await;
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epoch").field("word", &self.word).field("queues", &self.queues.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_bump_is_seen_by_the_next_reader_and_told_by_kind() {
        let epoch = Epoch::new(Vec::new());
        let before = epoch.now();
        epoch.bump(Kind::List);
        assert_eq!((epoch.now(), epoch.allocatable(), epoch.socket()), (before + 1, 1, 1));
        epoch.bump(Kind::Allocatable);
        assert_eq!((epoch.now(), epoch.allocatable(), epoch.socket()), (before + 2, 2, 1));
        epoch.bump(Kind::Socket);
        assert_eq!((epoch.now(), epoch.allocatable(), epoch.socket()), (before + 3, 3, 2));
    }

    #[test]
    fn what_waits_in_a_queue_counts_before_the_epoch_is_read() {
        struct OneChange(AtomicBool);
        impl Queue for OneChange {
            fn take_waiting(&self, epoch: &Epoch) {
                if self.0.swap(false, Ordering::Relaxed) {
                    epoch.bump(Kind::List);
                }
            }
        }
        let queue = Arc::new(OneChange(AtomicBool::new(false)));
        let epoch = Epoch::new(vec![queue.clone()]);
        let before = epoch.now();
        queue.0.store(true, Ordering::Relaxed);
        assert_eq!(epoch.now(), before + 1);
        assert_eq!(epoch.now(), before + 1, "one change counts once");
    }
}
