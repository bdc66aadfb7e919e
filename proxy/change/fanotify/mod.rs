//! fanotify: a mark on each cgroup file system, so that nothing has to be watched one by one and nothing made just now is missed.
//!
//! With file handles (kernel 6.12 and later, seen) an event names the cgroup, and pods, containers and cpusets are all seen. Without
//! (5.10, 6.1) it brings an open file whose path is looked up, and cpusets alone are seen. Needs `CAP_SYS_ADMIN`.
//!
//! The right is needed to make a mark, not to keep it: marks are made before rights are dropped, and one on a file system that is
//! mounted later can be had only where the right was kept, or by a restart.
//!
//! A mark sees every cgroup of the machine. What is not below a kubepods root is told apart by one look into a table and dropped.

mod event;

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::sys::fanotify::{EventFFlags, Fanotify as Group, InitFlags, MarkFlags, MaskFlags};
use rustix::fs::CWD;

use self::event::{Event, Key, events};
use super::epoch::{Epoch, Kind, Queue};
use super::gap::Gap;
use super::journal::Journal;
use super::source::{PartReport, Sees, Source, State};
use super::wait::Wait;
use crate::kubepods::roots::{Dir, Hierarchy, Level, Root, id_of, is_root};
use crate::rights::Needed;
use crate::source::host::{Change, ChangeKind};

/// `FAN_REPORT_DIR_FID | FAN_REPORT_NAME`.
const REPORT_DFID_NAME: InitFlags = InitFlags::from_bits_retain(0xc00);

const GRANT: &str = "grant CAP_SYS_ADMIN in the initial user namespace";

/// The source `fanotify`.
pub(super) struct Fanotify {
    queue: Arc<MarkQueue>,
    mount: PathBuf,
    /// Only the watching thread changes them.
    marks: Mutex<Vec<Mark>>,
}

/// A hierarchy with its mark.
#[derive(Clone, Debug)]
struct Mark {
    hierarchy: Hierarchy,
    /// The file system that was marked.
    fsid: u64,
    state: State,
}

/// The group's queue.
struct MarkQueue {
    group: Group,
    /// Events name directories by handle.
    handles: bool,
    wait: Wait,
    /// Set while somebody holds events that have left the queue and are not counted yet.
    taking: AtomicBool,
    table: Mutex<Table>,
    gap: Gap,
    events: AtomicU64,
    /// Those of other cgroups.
    foreign: AtomicU64,
    losses: AtomicU64,
}

/// What events are told apart by.
#[derive(Debug, Default)]
struct Table {
    known: HashMap<Key, Dir>,
    /// The roots by name, with the directory that each is in.
    roots: HashSet<(Key, Vec<u8>)>,
    /// The roots' paths as the kernel has them, for events without handles.
    paths: Vec<PathBuf>,
    /// Directories in which something was made.
    dirty: HashSet<Key>,
    /// Everything has to be looked at.
    lost: bool,
    /// Where the hierarchies are mounted.
    tops: Vec<PathBuf>,
    /// What [`Source::changes`] is to tell next. It has all that was counted so far: it is filled under the lock that is held until then.
    journal: Journal,
}

/// What an event means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Foreign,
    Change,
    /// A cgroup was made in this one.
    Made(Key),
    /// A kubepods root came: look everywhere.
    Root,
    /// A kubepods root went, or events did.
    Lost,
}

// === impl Fanotify ===

impl Fanotify {
    /// Marks the hierarchies mounted below `mount`. `Err`: what to report in place of a source.
    pub(super) fn mark(mount: PathBuf) -> Result<Self, State> {
        Self::with(mount.clone(), REPORT_DFID_NAME)
            .or_else(|error| match error {
                // The kernel's file handles for cgroups, or the flag itself, came later.
                Errno::ENODEV | Errno::EINVAL | Errno::EOPNOTSUPP | Errno::EXDEV => Self::with(mount, InitFlags::empty()),
                error => Err(error),
            })
            .map_err(|error| state_of(error, "making a fanotify mark"))
    }

    /// With handles or without. A first mark that the kernel does not take is an error.
    fn with(mount: PathBuf, report: InitFlags) -> Result<Self, Errno> {
        let flags = InitFlags::FAN_CLASS_NOTIF | InitFlags::FAN_CLOEXEC | InitFlags::FAN_NONBLOCK | report;
        let group = Group::init(flags, EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC | EventFFlags::O_LARGEFILE)?;
        let wait = Wait::new(&group).map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or_default()))?;
        let queue = MarkQueue {
            group,
            handles: !report.is_empty(),
            wait,
            taking: AtomicBool::new(false),
            table: Mutex::default(),
            gap: Gap::default(),
            events: AtomicU64::new(0),
            foreign: AtomicU64::new(0),
            losses: AtomicU64::new(0),
        };
        let source = Self { queue: Arc::new(queue), mount, marks: Mutex::default() };
        let mut marks = Vec::new();
        for hierarchy in Hierarchy::find(&source.mount) {
            source.queue.mark(&hierarchy)?;
            let Some(fsid) = fsid(&hierarchy.top) else { continue };
            marks.push(Mark { hierarchy, fsid, state: State::Attached });
        }
        *source.marks() = marks;
        source.look_everywhere();
        Ok(source)
    }

    /// Reads all kubepods trees, and marks a file system that was mounted since. A mark stays for as long as its file system does, so
    /// those that are there are not made again: the right to make them may be gone. Says whether something is seen now that was not
    /// before, or is not any more.
    fn look_everywhere(&self) -> bool {
        let before = self.marks().clone();
        let (mut marks, mut found, mut kept, mut turned) = (Vec::new(), Table::default(), HashSet::new(), false);
        for hierarchy in Hierarchy::find(&self.mount) {
            let Some(fsid) = fsid(&hierarchy.top) else { continue };
            let mark = before.iter().find(|mark| mark.fsid == fsid && mark.state == State::Attached).cloned();
            let mark = mark.unwrap_or_else(|| {
                let state = self.queue.mark(&hierarchy).map_or_else(|error| state_of(error, "marking"), |()| State::Attached);
                // A file system that is tried in vain each time is no news.
                turned |= !before.iter().any(|before| before.fsid == fsid && before.state == state);
                Mark { hierarchy: hierarchy.clone(), fsid, state }
            });
            marks.push(mark);
            found.tops.push(hierarchy.top.clone());
            for root in hierarchy.roots() {
                found.add_root(fsid, &root);
                turned |= self.learn(fsid, root.dir(), &mut kept);
            }
        }
        let gone = before.iter().filter(|mark| mark.state == State::Attached && !marks.iter().any(|now| now.fsid == mark.fsid));
        let gone = gone.count() as u64;
        self.queue.losses.fetch_add(gone, Ordering::Relaxed);
        turned |= gone > 0;
        *self.marks() = marks;
        let mut table = self.queue.lock();
        table.known.retain(|key, _| kept.contains(key));
        (table.roots, table.paths, table.tops) = (found.roots, found.paths, found.tops);
        // Which of it is new is not told.
        table.journal.incomplete |= turned;
        turned
    }

    /// Takes a directory and all below it into the table, each before it is read: so what is made in it meanwhile is either found by
    /// the reading, or its event is told apart as it should. Says whether one is new.
    fn learn(&self, fsid: u64, dir: Dir, kept: &mut HashSet<Key>) -> bool {
        let mut gained = false;
        dir.walk(&mut |dir| {
            let key = (fsid, dir.id);
            kept.insert(key);
            let mut table = self.queue.lock();
            if table.known.insert(key, dir.clone()).is_none() {
                gained = true;
                table.note(&dir.path, ChangeKind::Made);
            }
            true
        });
        gained
    }

    /// Reads those directories alone in which something was made.
    fn look_at(&self, dirty: &HashSet<Key>) -> bool {
        let dirs: Vec<(u64, Dir)> = {
            let table = self.queue.lock();
            dirty.iter().filter_map(|key| Some((key.0, table.known.get(key)?.clone()))).collect()
        };
        let mut gained = false;
        for (fsid, dir) in dirs {
            for child in dir.children() {
                gained |= self.learn(fsid, child, &mut HashSet::new());
            }
        }
        gained
    }

    fn marks(&self) -> MutexGuard<'_, Vec<Mark>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for Fanotify {
    fn name(&self) -> &'static str {
        "fanotify"
    }

    fn parts(&self) -> Vec<PartReport> {
        let queue = &self.queue;
        let (events, losses) = (queue.events.load(Ordering::Relaxed), queue.losses.load(Ordering::Relaxed));
        let marks = self.marks();
        if marks.is_empty() {
            let why = format!("no cpuset or unified hierarchy below {}", self.mount.display());
            return vec![PartReport { name: "cgroups".to_owned(), state: State::Absent { why }, events, losses }];
        }
        let part = |(at, Mark { hierarchy, state, .. }): (usize, &Mark)| PartReport {
            name: if queue.handles { hierarchy.name.to_owned() } else { format!("{} (cpusets only)", hierarchy.name) },
            state: state.clone(),
            // The group counts them together.
            events: if at == 0 { events } else { 0 },
            losses: if at == 0 { losses } else { 0 },
        };
        marks.iter().enumerate().map(part).collect()
    }

    fn sees(&self) -> Sees {
        let marks = self.marks();
        if marks.is_empty() || marks.iter().any(|mark| mark.state != State::Attached) {
            return Sees::NOTHING;
        }
        if self.queue.handles { Sees::CGROUPS.and(Sees::CPUSETS) } else { Sees::CPUSETS }
    }

    fn changes(&self) -> Option<Vec<Change>> {
        let sees = self.sees();
        let mut table = self.queue.lock();
        // While a cgroup is not known that was made, what is written in it is taken for another's.
        let whole = Sees::CGROUPS.and(Sees::CPUSETS).without(sees) == Sees::NOTHING && !self.queue.gap.is_open();
        table.journal.take().filter(|_| whole)
    }

    fn needs(&self) -> Needed {
        // To mark what is mounted later; the marks that are there stay without it.
        Needed { sys_admin: self.marks().iter().any(|mark| mark.state == State::Attached), ..Needed::NOTHING }
    }

    fn queue(&self) -> Option<Arc<dyn Queue>> {
        let queue: Arc<dyn Queue> = self.queue.clone();
        Some(queue)
    }

    fn wake(&self) -> io::Result<Option<OwnedFd>> {
        self.queue.wait.descriptor().map(Some)
    }

    fn woken(&self, epoch: &Epoch) {
        self.queue.wait.clear();
        let Some(begun) = self.queue.gap.begin() else { return };
        let (dirty, lost) = {
            let mut table = self.queue.lock();
            (std::mem::take(&mut table.dirty), std::mem::take(&mut table.lost))
        };
        let gained = if lost { self.look_everywhere() } else { self.look_at(&dirty) };
        // Where no directory is known that was not before, nothing can have been taken for another cgroup's.
        if gained {
            epoch.bump(Kind::List);
        }
        self.queue.gap.close(begun);
    }

    fn mend(&self, epoch: &Epoch) {
        if self.look_everywhere() {
            epoch.bump(Kind::List);
        }
        self.woken(epoch);
    }
}

// === impl MarkQueue ===

impl MarkQueue {
    fn mark(&self, hierarchy: &Hierarchy) -> Result<(), Errno> {
        let mut mask = MaskFlags::FAN_MODIFY;
        if self.handles {
            mask |= MaskFlags::FAN_CREATE | MaskFlags::FAN_DELETE | MaskFlags::FAN_ONDIR;
        }
        let flags = MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_FILESYSTEM;
        self.group.mark(flags, mask, CWD, Some(hierarchy.top.as_path()))
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // A panic while the lock was held can only have lost what the next look finds.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn something_waits(&self) -> bool {
        // On an error say yes: the read that follows names it, and a needless look costs little.
        rustix::io::ioctl_fionread(&self.group).map_or(true, |bytes| bytes > 0)
    }

    /// Reads the queue to its end; says whether something changed.
    fn drain(&self, table: &mut Table) -> bool {
        let mut changed = false;
        let mut buffer = [0_u8; 8192];
        loop {
            let more =
                if self.handles { self.read(&mut buffer, table, &mut changed) } else { self.read_files(table, &mut changed) };
            match more {
                Ok(()) | Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return changed,
                Err(_) => {
                    self.take(Meaning::Lost, table, &mut changed);
                    return changed;
                }
            }
        }
    }

    fn read(&self, buffer: &mut [u8], table: &mut Table, changed: &mut bool) -> Result<(), Errno> {
        let length = rustix::io::read(&self.group, &mut *buffer).map_err(|error| Errno::from_raw(error.raw_os_error()))?;
        for event in events(&buffer[..length]) {
            let meaning = table.meaning(&event);
            table.note_event(&event, meaning);
            self.take(meaning, table, changed);
        }
        Ok(())
    }

    fn read_files(&self, table: &mut Table, changed: &mut bool) -> Result<(), Errno> {
        for event in self.group.read_events()? {
            let overflow = event.mask().contains(MaskFlags::FAN_Q_OVERFLOW);
            let path = event.fd().and_then(|fd| std::fs::read_link(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())).ok());
            let meaning = match path {
                _ if overflow => Meaning::Lost,
                Some(path) => table.meaning_of_path(&path),
                // Removed meanwhile, or a file that this process may not name.
                None => Meaning::Change,
            };
            self.take(meaning, table, changed);
        }
        Ok(())
    }

    fn take(&self, meaning: Meaning, table: &mut Table, changed: &mut bool) {
        match meaning {
            Meaning::Foreign => {
                self.foreign.fetch_add(1, Ordering::Relaxed);
                return;
            }
            Meaning::Change => {}
            Meaning::Made(key) => _ = table.dirty.insert(key),
            Meaning::Root => table.lost = true,
            Meaning::Lost => {
                table.lost = true;
                table.journal.incomplete = true;
                self.losses.fetch_add(1, Ordering::Relaxed);
            }
        }
        // A root that comes changes nothing yet: what is made below it until it is known falls into the gap.
        if meaning != Meaning::Root {
            self.events.fetch_add(1, Ordering::Relaxed);
            *changed = true;
        }
        if meaning != Meaning::Change {
            self.gap.open();
            self.wait.wake();
        }
    }
}

impl Queue for MarkQueue {
    fn take_waiting(&self, epoch: &Epoch) {
        // The same order, for the same reasons, as inotify's queue.
        if self.something_waits() || self.taking.load(Ordering::SeqCst) {
            let mut table = self.lock();
            self.taking.store(true, Ordering::SeqCst);
            if self.drain(&mut table) {
                epoch.bump(Kind::List);
            }
            self.taking.store(false, Ordering::SeqCst);
        }
        if self.gap.is_open() {
            epoch.count(Kind::List);
        }
    }
}

// === impl Table ===

impl Table {
    fn add_root(&mut self, fsid: u64, root: &Root) {
        let above = root.path.parent().and_then(id_of);
        if let (Some(above), Some(name)) = (above, root.path.file_name()) {
            self.roots.insert(((fsid, above), name.as_encoded_bytes().to_vec()));
        }
        self.paths.extend(root.path.canonicalize());
    }

    /// Keeps which cgroup an event is about.
    fn note_event(&mut self, event: &Event<'_>, meaning: Meaning) {
        match meaning {
            Meaning::Foreign => return,
            Meaning::Root | Meaning::Lost => return self.journal.incomplete = true,
            Meaning::Change | Meaning::Made(_) => {}
        }
        let Some(dir) = event.dir.and_then(|key| self.known.get(&key)).map(|dir| dir.path.clone()) else {
            return self.journal.incomplete = true;
        };
        let mask = MaskFlags::from_bits_retain(event.mask);
        let entry = || std::str::from_utf8(event.name).ok().map(|name| dir.join(name));
        // Two events on the same entry may come as one, and what is there is looked at in any case.
        if mask.intersects(MaskFlags::FAN_CREATE | MaskFlags::FAN_DELETE) {
            let kind = if mask.contains(MaskFlags::FAN_CREATE) { ChangeKind::Made } else { ChangeKind::Removed };
            match entry() {
                Some(path) => self.note(&path, kind),
                None => self.journal.incomplete = true,
            }
        }
        if mask.contains(MaskFlags::FAN_MODIFY) {
            self.note(&dir, ChangeKind::Written);
        }
    }

    /// Keeps that a cgroup has changed.
    fn note(&mut self, path: &Path, kind: ChangeKind) {
        let below = self.tops.iter().find_map(|top| path.strip_prefix(top).ok()).and_then(Path::to_str);
        match below {
            Some(below) => self.journal.push(Change { cgroup: below.to_owned(), kind }),
            None => self.journal.incomplete = true,
        }
    }

    fn meaning(&self, event: &Event<'_>) -> Meaning {
        let mask = MaskFlags::from_bits_retain(event.mask);
        if mask.contains(MaskFlags::FAN_Q_OVERFLOW) {
            return Meaning::Lost;
        }
        // What cannot be told apart counts.
        let Some(key) = event.dir else { return Meaning::Change };
        // Two events on the same entry may come as one, with both bits set.
        let made = mask.contains(MaskFlags::FAN_CREATE);
        let gone = mask.contains(MaskFlags::FAN_DELETE);
        match self.known.get(&key).map(|dir| dir.level) {
            Some(Level::Root | Level::Class | Level::Pod) if made => Meaning::Made(key),
            Some(Level::Root | Level::Class | Level::Pod) if gone => Meaning::Change,
            Some(_) if mask.contains(MaskFlags::FAN_MODIFY) && event.name.starts_with(b"cpuset.") => Meaning::Change,
            None if gone && self.roots.contains(&(key, event.name.to_vec())) => Meaning::Lost,
            None if made && std::str::from_utf8(event.name).is_ok_and(is_root) => Meaning::Root,
            _ => Meaning::Foreign,
        }
    }

    fn meaning_of_path(&self, path: &Path) -> Meaning {
        let cpuset = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"cpuset."));
        let ours = cpuset && (self.paths.iter().any(|root| path.starts_with(root)) || path.ancestors().any(is_root_path));
        if ours { Meaning::Change } else { Meaning::Foreign }
    }
}

/// A root that is not known yet.
fn is_root_path(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(is_root)
}

/// The id of the file system that a directory is on.
fn fsid(dir: &Path) -> Option<u64> {
    rustix::fs::statvfs(dir).ok().map(|found| found.f_fsid)
}

fn state_of(error: Errno, what: &str) -> State {
    let why = format!("{what}: {error}");
    match error {
        Errno::EPERM | Errno::EACCES => State::Refused { why, grant: GRANT.to_owned() },
        Errno::EMFILE | Errno::ENFILE => {
            State::Refused { why, grant: "raise fs.fanotify.max_user_groups, or the limit on file descriptors".to_owned() }
        }
        Errno::ENOSPC => State::Refused { why, grant: "raise fs.fanotify.max_user_marks".to_owned() },
        _ => State::Absent { why },
    }
}

#[cfg(test)]
mod tests;
