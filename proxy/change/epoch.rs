//! "Changes seen so far", as one word that never falls.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;

use super::word::Words;

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
/// It is the sum of a word of ours and of words that the kernel writes to. Each only grows, and one that was added stays: so the
/// sum never falls, whatever happens to the source that it came from.
///
/// It means nothing to another process: tokens that leave this one carry an instance id beside it.
pub struct Epoch {
    word: AtomicU64,
    allocatable: AtomicU64,
    socket: AtomicU64,
    words: OnceLock<Box<Link>>,
    queues: Vec<Arc<dyn Queue>>,
    /// The queues that have to be asked, bit by bit; the others' changes are seen by another one as well.
    asked: AtomicU32,
    bumped: Notify,
}

/// A list that only grows, so that it can be walked without a lock.
struct Link {
    words: Words,
    next: OnceLock<Box<Self>>,
}

/// There are as many words as there may be. A source that is mended should count in the words that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a change source has brought {MOST_WORDS} maps so far; no more are taken")]
pub struct TooManyWords;

/// Each costs a page, and a load for every request.
const MOST_WORDS: usize = 16;

// === impl Epoch ===

impl Epoch {
    /// An epoch fed by these queues (32 at most), and by whoever calls [`Epoch::bump`]. Starts at one, so that zero is older than every
    /// change.
    #[must_use]
    pub fn new(queues: Vec<Arc<dyn Queue>>) -> Self {
        debug_assert!(queues.len() <= 32, "a bit for each");
        Self {
            word: AtomicU64::new(1),
            allocatable: AtomicU64::new(1),
            socket: AtomicU64::new(1),
            words: OnceLock::new(),
            queues,
            asked: AtomicU32::new(u32::MAX),
            bumped: Notify::new(),
        }
    }

    /// The epoch at this moment: what stands in the queues is counted first.
    pub fn now(&self) -> u64 {
        let asked = self.asked.load(Ordering::Relaxed);
        for (at, queue) in self.queues.iter().enumerate() {
            if asked & (1 << at) != 0 {
                queue.take_waiting(self);
            }
        }
        self.counted()
    }

    /// What has been counted so far, without a look at the queues. For whoever only wants to know whether it moved.
    #[inline]
    pub fn counted(&self) -> u64 {
        // Acquire: pairs with `bump`, so that whoever sees a change also sees what it was about.
        self.sum(self.word.load(Ordering::Acquire), Words::CHANGES)
    }

    /// Counts one change.
    pub fn bump(&self, kind: Kind) {
        self.count(kind);
        self.wake();
    }

    /// Counts one change and wakes nobody: for a state in which every look has to count, and which somebody is at work to end.
    pub fn count(&self, kind: Kind) {
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
    }

    /// Has the refresher look: a word of the kernel's has moved, which wakes nobody by itself.
    pub fn wake(&self) {
        self.bumped.notify_one();
    }

    /// Adds words that the kernel writes to, for good. Counts one change: what happened before they were there went unseen.
    pub fn add_words(&self, words: Words) -> Result<(), TooManyWords> {
        let mut link = Box::new(Link { words, next: OnceLock::new() });
        let mut place = &self.words;
        for _ in 0..MOST_WORDS {
            let Err(back) = place.set(link) else {
                self.bump(Kind::Socket);
                return Ok(());
            };
            link = back;
            match place.get() {
                Some(taken) => place = &taken.next,
                None => break,
            }
        }
        Err(TooManyWords)
    }

    /// Chooses which queues are asked from now on, by their place in [`Epoch::new`]'s list. A queue that is not asked is emptied by
    /// [`Epoch::take`]. Where one is asked that was not, counts one change: what it alone saw so far went unseen.
    pub fn ask(&self, queues: impl IntoIterator<Item = usize>) {
        let asked = queues.into_iter().filter(|at| *at < 32).fold(0, |asked, at| asked | (1 << at));
        let before = self.asked.swap(asked, Ordering::SeqCst);
        if asked & !before != 0 {
            self.bump(Kind::Socket);
        }
    }

    /// Whether requests ask the queue at this place.
    pub fn asks(&self, queue: usize) -> bool {
        queue < 32 && self.asked.load(Ordering::Relaxed) & (1 << queue) != 0
    }

    /// Counts what stands in all queues, also in those that requests do not ask.
    pub fn take(&self) {
        for queue in &self.queues {
            queue.take_waiting(self);
        }
    }

    /// How many of the changes GetAllocatableResources may show. Read it after [`Epoch::now`].
    pub fn allocatable(&self) -> u64 {
        self.sum(self.allocatable.load(Ordering::Relaxed), Words::ALLOCATABLE)
    }

    /// How many of the changes were about the kubelet's socket. Read it after [`Epoch::now`].
    pub fn socket(&self) -> u64 {
        self.sum(self.socket.load(Ordering::Relaxed), Words::SOCKET)
    }

    /// Resolves once something has been counted since the last call; for one caller only, the refresher.
    pub async fn bumped(&self) {
        self.bumped.notified().await;
    }

    #[inline]
    fn sum(&self, mut sum: u64, at: usize) -> u64 {
        let mut place = &self.words;
        while let Some(link) = place.get() {
            sum = sum.wrapping_add(link.words.load(at));
            place = &link.next;
        }
        sum
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epoch").field("counted", &self.counted()).field("queues", &self.queues.len()).finish_non_exhaustive()
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

    /// A page as a BPF map would have it, with something to write to it by.
    fn page() -> (std::fs::File, Words) {
        let page = rustix::fs::memfd_create("words", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&page, rustix::param::page_size() as u64).unwrap();
        let words = Words::map(&page).unwrap();
        (page.into(), words)
    }

    fn write(page: &std::fs::File, at: usize, value: u64) {
        std::os::unix::fs::FileExt::write_all_at(page, &value.to_ne_bytes(), (at * 8) as u64).unwrap();
    }

    #[test]
    fn what_the_kernel_counts_is_in_the_epoch_at_once_and_by_kind() {
        let epoch = Epoch::new(Vec::new());
        let (page, words) = page();
        write(&page, Words::CHANGES, 40);
        let before = epoch.now();
        epoch.add_words(words).unwrap();
        let begun = (epoch.now(), epoch.allocatable(), epoch.socket());
        assert_eq!(begun.0, before + 41, "what the word had, and one for what went unseen");
        write(&page, Words::SOCKET, 1);
        write(&page, Words::ALLOCATABLE, 3);
        write(&page, Words::CHANGES, 45);
        assert_eq!((epoch.now(), epoch.allocatable(), epoch.socket()), (begun.0 + 5, begun.1 + 3, begun.2 + 1));
    }

    #[test]
    fn the_epoch_never_falls_whatever_becomes_of_the_maps() {
        let epoch = Epoch::new(Vec::new());
        let mut last = epoch.now();
        for round in 0..MOST_WORDS as u64 {
            let (page, words) = page();
            write(&page, Words::CHANGES, 100 * round);
            epoch.add_words(words).unwrap();
            drop(page);
            assert!(epoch.now() > last, "round {round}");
            last = epoch.now();
        }
        let (_page, words) = page();
        assert_eq!(epoch.add_words(words), Err(TooManyWords));
        assert_eq!(epoch.now(), last);
    }

    #[test]
    fn a_queue_that_need_not_be_asked_is_left_to_whoever_empties_all() {
        struct Always;
        impl Queue for Always {
            fn take_waiting(&self, epoch: &Epoch) {
                epoch.bump(Kind::List);
            }
        }
        let epoch = Epoch::new(vec![Arc::new(Always), Arc::new(Always)]);
        let before = epoch.now();
        epoch.ask([1]);
        assert_eq!(epoch.now(), before + 1);
        epoch.take();
        assert_eq!(epoch.counted(), before + 3);
    }
}
