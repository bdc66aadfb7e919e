//! inotify: one instance for all that is watched by it, so that a request asks one queue.
//!
//! Serving threads read the queue and nothing else. Where directories have to be walked, a [`Gap`] is opened and the thread that
//! watches is woken; until it has looked, every request counts as if something had changed.

mod kubelet_dirs;
mod kubepods;

use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::epoch::{Epoch, Kind, Queue};
use super::gap::Gap;
use super::wait::Wait;

pub use kubelet_dirs::{KubeletDirs, Layout};
pub use kubepods::KubepodsDirs;
pub(super) use kubepods::KubepodsReader;

/// Why there is no inotify at all.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// No instance to be had.
    #[error("cannot make an inotify instance ({0}); raise fs.inotify.max_user_instances")]
    Init(#[source] io::Error),
    /// What it is waited on by.
    #[error("cannot make a descriptor to wait for inotify events ({0}); is there a limit on file descriptors?")]
    Wait(#[source] io::Error),
}

/// Says what an event means. Runs on serving threads: no system calls.
pub(super) trait Reader: Send + Sync {
    fn read(&self, tag: Tag, flags: ReadFlags, name: &[u8]) -> Meaning;
}

/// What its reader knows a directory as.
pub(super) type Tag = u8;

/// What an event means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Meaning {
    /// A change.
    pub(super) change: Option<Kind>,
    /// What it asks of the thread that watches.
    pub(super) look: Look,
}

/// What an event asks of the thread that watches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Look {
    /// Nothing.
    #[default]
    No,
    /// Something in this directory is gone, and need not be watched any more.
    Tidy,
    /// Something in this directory is not watched yet.
    Here,
    /// A directory went that should be there: look everywhere.
    Lost,
}

/// One inotify instance.
pub struct Inotify {
    fd: OwnedFd,
    wait: Wait,
    /// Set while somebody holds events that have left the queue and are not counted yet.
    taking: AtomicBool,
    table: Mutex<Table>,
    owners: Vec<Owner>,
    /// At most so many watches, for tests of what happens then.
    most: AtomicU64,
}

/// One source's side of the instance.
struct Owner {
    reader: Box<dyn Reader>,
    gap: Gap,
    events: AtomicU64,
    losses: AtomicU64,
}

#[derive(Debug, Default)]
struct Table {
    /// Watch descriptors are never used twice by an instance.
    watches: HashMap<i32, Vec<(usize, Tag)>>,
    /// Directories to be looked at again, by owner.
    dirty: Vec<Dirty>,
}

/// What has to be looked at again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Dirty {
    pub(super) all: bool,
    pub(super) some: HashSet<i32>,
}

/// Beyond so many directories, all are looked at.
const MANY_DIRTY: usize = 256;

// === impl Inotify ===

impl Inotify {
    /// An instance for these readers; each is known by its place.
    pub(super) fn new(readers: Vec<Box<dyn Reader>>) -> Result<Arc<Self>, WatchError> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(|e| WatchError::Init(e.into()))?;
        let wait = Wait::new(&fd).map_err(WatchError::Wait)?;
        let table = Table { dirty: vec![Dirty::default(); readers.len()], ..Table::default() };
        let owner = |reader| Owner { reader, gap: Gap::default(), events: AtomicU64::new(0), losses: AtomicU64::new(0) };
        let owners = readers.into_iter().map(owner).collect();
        let (taking, most) = (AtomicBool::new(false), AtomicU64::new(u64::MAX));
        Ok(Arc::new(Self { fd, wait, taking, table: Mutex::new(table), owners, most }))
    }

    /// A descriptor of its own to wait on for readability.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.wait.descriptor()
    }

    /// To be called before looking at what is dirty, so that what comes meanwhile wakes again.
    pub(super) fn woken(&self) {
        self.wait.clear();
    }

    /// Watches a directory for an owner. Says its descriptor, and whether it is watched so only now.
    pub(super) fn watch(&self, path: &Path, flags: WatchFlags, owner: usize, tag: Tag) -> Result<(i32, bool), Errno> {
        let flags = flags | WatchFlags::ONLYDIR | WatchFlags::MASK_ADD;
        let wd = inotify::add_watch(&self.fd, path, flags)?;
        let mut table = self.lock();
        if table.watches.len() as u64 >= self.most.load(Ordering::Relaxed) && !table.watches.contains_key(&wd) {
            inotify::remove_watch(&self.fd, wd)?;
            return Err(Errno::NOSPC);
        }
        let known = table.watches.entry(wd).or_default();
        let new = !known.contains(&(owner, tag));
        if new {
            known.push((owner, tag));
        }
        Ok((wd, new))
    }

    /// Lets go of an owner's watches that are not among these.
    pub(super) fn keep(&self, owner: usize, these: &HashSet<(i32, Tag)>) {
        self.retain(|wd, of, tag| of != owner || these.contains(&(wd, tag)));
    }

    /// Lets go of these watches of an owner. An event of theirs that is still in the queue counts as a change.
    pub(super) fn let_go(&self, owner: usize, these: &HashSet<i32>) {
        if !these.is_empty() {
            self.retain(|wd, of, _| of != owner || !these.contains(&wd));
        }
    }

    fn retain(&self, keep: impl Fn(i32, usize, Tag) -> bool) {
        let mut table = self.lock();
        let mut gone = Vec::new();
        for (wd, known) in &mut table.watches {
            known.retain(|(of, tag)| keep(*wd, *of, *tag));
            if known.is_empty() {
                gone.push(*wd);
            }
        }
        for wd in gone {
            table.watches.remove(&wd);
            // Gone already where the directory itself is gone.
            let _gone = inotify::remove_watch(&self.fd, wd);
        }
    }

    /// An owner's directories that have to be looked at again, each once.
    pub(super) fn take_dirty(&self, owner: usize) -> Dirty {
        self.lock().dirty.get_mut(owner).map(std::mem::take).unwrap_or_default()
    }

    pub(super) fn gap(&self, owner: usize) -> Option<&Gap> {
        self.owners.get(owner).map(|owner| &owner.gap)
    }

    /// Counts a loss.
    pub(super) fn lost(&self, owner: usize) {
        if let Some(owner) = self.owners.get(owner) {
            owner.losses.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// An owner's events and losses so far.
    pub(super) fn counts(&self, owner: usize) -> (u64, u64) {
        let counts = |owner: &Owner| (owner.events.load(Ordering::Relaxed), owner.losses.load(Ordering::Relaxed));
        self.owners.get(owner).map(counts).unwrap_or_default()
    }

    /// How many directories are watched.
    pub(super) fn watches(&self) -> usize {
        self.lock().watches.len()
    }

    #[cfg(test)]
    pub(super) fn allow(&self, most: u64) {
        self.most.store(most, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // A panic while the lock was held can only have lost a watch, which mending puts back.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn something_waits(&self) -> bool {
        // On an error say yes: the read that follows names it, and a needless look costs little.
        rustix::io::ioctl_fionread(&self.fd).map_or(true, |bytes| bytes > 0)
    }

    /// Reads the queue to its end; says what the events were about, if they were about anything.
    fn drain(&self, table: &mut Table) -> Option<Kind> {
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut reader = inotify::Reader::new(&self.fd, &mut buffer);
        let mut seen = None;
        let mut look = false;
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(CStr::to_bytes).unwrap_or_default();
                    look |= self.event(table, event.wd(), event.events(), name, &mut seen);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => {
                    tracing::warn!(%error, "reading inotify events");
                    look |= self.all_lost(table, &mut seen);
                    break;
                }
            }
        }
        if look {
            self.wait.wake();
        }
        seen
    }

    /// Takes in one event; says whether something is to be looked at.
    fn event(&self, table: &mut Table, wd: i32, flags: ReadFlags, name: &[u8], seen: &mut Option<Kind>) -> bool {
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            tracing::warn!("the inotify queue has overflowed: everything is looked at again");
            return self.all_lost(table, seen);
        }
        let Some(known) = table.watches.get(&wd) else {
            // The watch was made a moment ago and is not in the table yet, or was let go with events in the queue.
            if !flags.contains(ReadFlags::IGNORED) {
                *seen = stronger(*seen, Kind::List);
            }
            return false;
        };
        let mut look = false;
        for (at, tag) in known {
            let Some(owner) = self.owners.get(*at) else { continue };
            let meaning = owner.reader.read(*tag, flags, name);
            if let Some(kind) = meaning.change {
                owner.events.fetch_add(1, Ordering::Relaxed);
                *seen = stronger(*seen, kind);
            }
            if meaning.look == Look::No {
                continue;
            }
            look = true;
            if let Some(dirty) = table.dirty.get_mut(*at) {
                dirty.some.insert(wd);
                dirty.all |= meaning.look == Look::Lost || dirty.some.len() > MANY_DIRTY;
            }
            if meaning.look == Look::Lost {
                owner.losses.fetch_add(1, Ordering::Relaxed);
            }
            if meaning.look != Look::Tidy {
                owner.gap.open();
            }
        }
        if flags.contains(ReadFlags::IGNORED) {
            table.watches.remove(&wd);
        }
        look
    }

    /// Nobody knows what has been missed.
    fn all_lost(&self, table: &mut Table, seen: &mut Option<Kind>) -> bool {
        *seen = Some(Kind::Socket);
        for (owner, dirty) in self.owners.iter().zip(&mut table.dirty) {
            owner.losses.fetch_add(1, Ordering::Relaxed);
            dirty.all = true;
            owner.gap.open();
        }
        true
    }
}

impl Queue for Inotify {
    fn take_waiting(&self, epoch: &Epoch) {
        // In this order. An event seen by its maker before we were called is still in the queue, or somebody has taken it: then
        // `taking` was set before the read that emptied the queue, and stays set until the bump is done. SeqCst keeps the load
        // behind the system call and the store before the other thread's read.
        if self.something_waits() || self.taking.load(Ordering::SeqCst) {
            let mut table = self.lock();
            self.taking.store(true, Ordering::SeqCst);
            if let Some(kind) = self.drain(&mut table) {
                epoch.bump(kind);
            }
            self.taking.store(false, Ordering::SeqCst);
        }
        if self.owners.iter().any(|owner| owner.gap.is_open()) {
            epoch.count(Kind::List);
        }
    }
}

impl std::fmt::Debug for Inotify {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inotify").field("fd", &self.fd).finish_non_exhaustive()
    }
}

/// The kind that includes the other.
pub(super) fn stronger(seen: Option<Kind>, kind: Kind) -> Option<Kind> {
    match (seen, kind) {
        (Some(Kind::Socket), _) | (Some(Kind::Allocatable), Kind::List) => seen,
        _ => Some(kind),
    }
}
