//! The kubepods cgroups: pods and containers made and removed, cpusets written.
//!
//! Each directory down to the containers is watched. One that was just made is not yet, so what is made or written in it before its
//! watch is there goes unseen: a gap that is open until the directory has been looked at. Whether a written cpuset differs from the
//! last cannot be told without reading it, so every write counts. Exec probes move processes and count nothing.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::inotify::{ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::{Dirty, Inotify, Look, Meaning, Reader, Tag};
use crate::change::epoch::{Epoch, Kind, Queue};
use crate::change::source::{PartReport, Sees, Source, State};
use crate::kubepods::roots::{Dir, Hierarchy, Level, Root, is_root};

/// A kubepods root.
const ROOT: Tag = 0;
/// A class of pods, or a pod: what is made in it counts.
const PARENT: Tag = 1;
/// A container: only its cpuset counts.
const CONTAINER: Tag = 2;
/// Above a root: one may come here by name.
const ABOVE: Tag = 3;
/// There is no root in this hierarchy: one may come anywhere.
const SEARCHED: Tag = 4;

/// How often hierarchies are searched while roots come under our eyes.
const TRIES: usize = 4;

/// The source `kubepods`.
pub struct KubepodsDirs {
    inotify: Arc<Inotify>,
    owner: usize,
    mount: PathBuf,
    found: Mutex<Found>,
}

/// What the events mean.
pub(in crate::change) struct KubepodsReader;

/// What is watched. Only the watching thread changes it.
#[derive(Debug, Default)]
struct Found {
    by_descriptor: HashMap<i32, Dir>,
    by_path: BTreeMap<PathBuf, i32>,
    hierarchies: Vec<(Hierarchy, Vec<Root>)>,
    /// Why not everything is watched.
    error: Option<Errno>,
    /// Hierarchies in which a root was there once.
    had_roots: HashSet<&'static str>,
}

// === impl KubepodsReader ===

impl Reader for KubepodsReader {
    fn read(&self, tag: Tag, flags: ReadFlags, name: &[u8]) -> Meaning {
        let made = flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO);
        let gone = flags.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM);
        let written = flags.contains(ReadFlags::MODIFY) && name.starts_with(b"cpuset.");
        let root = || std::str::from_utf8(name).is_ok_and(is_root);
        let (change, look) = match (tag, flags.contains(ReadFlags::ISDIR)) {
            (ROOT | PARENT, true) if made => (Some(Kind::List), Look::Here),
            // The removal of a cgroup is told to its parent alone: its own watch stays, and would hold memory.
            (ROOT | PARENT, true) if gone => (Some(Kind::List), Look::Tidy),
            (ROOT | PARENT | CONTAINER, false) if written => (Some(Kind::List), Look::No),
            (ABOVE, true) if made && root() => (None, Look::Here),
            (ABOVE, true) if gone && root() => (Some(Kind::List), Look::Lost),
            (SEARCHED, true) if made => (None, Look::Here),
            _ => (None, Look::No),
        };
        Meaning { change, look }
    }
}

// === impl KubepodsDirs ===

impl KubepodsDirs {
    /// Begins to watch the kubepods cgroups of the hierarchies mounted below `mount`. That there are none yet is no error. `owner` is
    /// the place of a [`KubepodsReader`].
    pub(in crate::change) fn watch(mount: PathBuf, inotify: Arc<Inotify>, owner: usize) -> Self {
        let dirs = Self { inotify, owner, mount, found: Mutex::default() };
        dirs.look_everywhere(&mut dirs.found());
        dirs
    }

    /// Looks for roots, and at all that lies below them. Says whether something is watched now that was not before, or no longer
    /// can be.
    fn look_everywhere(&self, found: &mut Found) -> bool {
        let before = found.error;
        found.error = None;
        found.by_descriptor.clear();
        found.by_path.clear();
        found.hierarchies.clear();
        let (mut kept, mut gained) = (HashSet::new(), false);
        for hierarchy in Hierarchy::find(&self.mount) {
            let mut roots = hierarchy.roots();
            // One that came between the search and the watches is found by another search.
            for _ in 0..TRIES {
                if !self.watch_above(&hierarchy, &roots, found, &mut kept) {
                    break;
                }
                let again = hierarchy.roots();
                if again == roots {
                    break;
                }
                roots = again;
            }
            for root in &roots {
                gained |= self.look_below(root.dir(), found, &mut kept);
            }
            if !roots.is_empty() {
                found.had_roots.insert(hierarchy.name);
            }
            found.hierarchies.push((hierarchy, roots));
        }
        self.inotify.keep(self.owner, &kept);
        match (before, found.error) {
            (None, Some(_)) => self.inotify.lost(self.owner),
            (Some(_), None) => gained = true,
            _ => {}
        }
        gained || (before.is_none() && found.error.is_some())
    }

    /// Watches where roots may come: the directories above those that are there, or everywhere near the top. Says whether one is watched
    /// now that was not before.
    fn watch_above(&self, hierarchy: &Hierarchy, roots: &[Root], found: &mut Found, kept: &mut HashSet<(i32, Tag)>) -> bool {
        let (mut dirs, tag) = (Vec::new(), if roots.is_empty() { SEARCHED } else { ABOVE });
        if roots.is_empty() {
            hierarchy.search(&mut |dir| dirs.push(dir.to_owned()), &mut Vec::new());
        } else {
            let above = roots.iter().flat_map(|root| root.path.ancestors().skip(1));
            dirs.extend(above.filter(|dir| dir.starts_with(&hierarchy.top)).map(Path::to_owned));
            dirs.sort_unstable();
            dirs.dedup();
        }
        let mut gained = false;
        for dir in dirs {
            match self.inotify.watch(&dir, above(), self.owner, tag) {
                Ok((wd, new)) => {
                    gained |= new;
                    kept.insert((wd, tag));
                }
                Err(error) => note(&mut found.error, error),
            }
        }
        gained
    }

    /// Watches a directory and all below it, each before it is read. Says whether one is watched now that was not before.
    fn look_below(&self, dir: Dir, found: &mut Found, kept: &mut HashSet<(i32, Tag)>) -> bool {
        let mut gained = false;
        dir.walk(&mut |dir| {
            let (flags, tag) = match dir.level {
                Level::Root => (parent(), ROOT),
                Level::Class | Level::Pod => (parent(), PARENT),
                Level::Container => (WatchFlags::MODIFY, CONTAINER),
            };
            match self.inotify.watch(&dir.path, flags, self.owner, tag) {
                Ok((wd, new)) => {
                    gained |= new;
                    kept.insert((wd, tag));
                    found.insert(wd, dir.clone());
                }
                Err(error) => note(&mut found.error, error),
            }
            // At the limit there is nothing to be won by going on.
            found.error.is_none()
        });
        gained
    }

    /// Looks at those directories alone in which something was made or removed.
    fn look_at(&self, dirty: &HashSet<i32>, found: &mut Found) -> bool {
        let before = found.error;
        let mut gained = false;
        let mut kept = HashSet::new();
        for dir in dirty.iter().filter_map(|wd| found.by_descriptor.get(wd).cloned()).collect::<Vec<_>>() {
            let children = dir.children();
            let gone = found.remove_others(&dir, &children);
            self.inotify.let_go(self.owner, &gone);
            for child in children {
                gained |= self.look_below(child, found, &mut kept);
            }
        }
        if before.is_none() && found.error.is_some() {
            self.inotify.lost(self.owner);
            gained = true;
        }
        gained
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        // What a panic left half done, the next look does again.
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Found ===

impl Found {
    fn insert(&mut self, wd: i32, dir: Dir) {
        self.by_path.insert(dir.path.clone(), wd);
        self.by_descriptor.insert(wd, dir);
    }

    /// Forgets what lies below a directory and not in one of these children of it.
    fn remove_others(&mut self, dir: &Dir, children: &[Dir]) -> HashSet<i32> {
        let there: HashMap<&Path, u64> = children.iter().map(|child| (child.path.as_path(), child.id)).collect();
        let below = |path: &Path| path.starts_with(&dir.path) && path != dir.path;
        let mut gone = HashSet::new();
        // A directory's paths lie together, in the order of their components.
        for (path, wd) in self.by_path.range(dir.path.clone()..).take_while(|(path, _)| path.starts_with(&dir.path)) {
            let child = path.ancestors().find(|path| path.parent() == Some(&dir.path));
            let known = child.and_then(|child| Some((there.get(child)?, self.by_path.get(child)?)));
            // Another cgroup may have the name by now.
            let stays = known.is_some_and(|(id, wd)| self.by_descriptor.get(wd).is_some_and(|dir| dir.id == *id));
            if below(path) && !stays {
                gone.insert(*wd);
            }
        }
        self.by_descriptor.retain(|wd, _| !gone.contains(wd));
        self.by_path.retain(|_, wd| !gone.contains(wd));
        gone
    }
}

impl Source for KubepodsDirs {
    fn name(&self) -> &'static str {
        "kubepods"
    }

    fn parts(&self) -> Vec<PartReport> {
        let (events, losses) = self.inotify.counts(self.owner);
        let found = self.found();
        if found.hierarchies.is_empty() {
            let why = format!("no cpuset or unified hierarchy below {}", self.mount.display());
            return vec![PartReport { name: "cgroups".to_owned(), state: State::Absent { why }, events, losses }];
        }
        let state = |hierarchy: &Hierarchy, roots: &[Root]| match (found.error, roots.is_empty()) {
            (Some(Errno::NOSPC), _) => State::Lost {
                why: format!(
                    "{} directories are watched and no more may be: raise fs.inotify.max_user_watches",
                    self.inotify.watches()
                ),
            },
            (Some(error), _) => State::Lost { why: format!("watching cgroups: {error}") },
            (None, true) if found.had_roots.contains(hierarchy.name) => {
                State::Lost { why: "the kubepods cgroup is gone".to_owned() }
            }
            (None, true) => State::Absent { why: "no kubepods cgroup yet".to_owned() },
            (None, false) => State::Attached,
        };
        let part = |(at, (hierarchy, roots)): (usize, &(Hierarchy, Vec<Root>))| PartReport {
            name: hierarchy.name.to_owned(),
            state: state(hierarchy, roots),
            // The instance counts them together.
            events: if at == 0 { events } else { 0 },
            losses: if at == 0 { losses } else { 0 },
        };
        found.hierarchies.iter().enumerate().map(part).collect()
    }

    fn sees(&self) -> Sees {
        let found = self.found();
        let whole = found.error.is_none() && !found.hierarchies.is_empty();
        if whole { Sees::CGROUPS.and(Sees::CPUSETS) } else { Sees::NOTHING }
    }

    fn queue(&self) -> Option<Arc<dyn Queue>> {
        let queue: Arc<dyn Queue> = self.inotify.clone();
        Some(queue)
    }

    fn wake(&self) -> io::Result<Option<OwnedFd>> {
        self.inotify.descriptor().map(Some)
    }

    fn woken(&self, epoch: &Epoch) {
        self.inotify.woken();
        let Some(gap) = self.inotify.gap(self.owner) else { return };
        let begun = gap.begin();
        let dirty = self.inotify.take_dirty(self.owner);
        if dirty == Dirty::default() && begun.is_none() {
            return;
        }
        let mut found = self.found();
        let everywhere = dirty.all || dirty.some.iter().any(|wd| !found.by_descriptor.contains_key(wd));
        let gained = if everywhere { self.look_everywhere(&mut found) } else { self.look_at(&dirty.some, &mut found) };
        // Where no directory is watched that was not before, nothing can have gone unseen.
        if gained {
            epoch.bump(Kind::List);
        }
        if let Some(begun) = begun {
            gap.close(begun);
        }
    }

    fn mend(&self, epoch: &Epoch) {
        if self.look_everywhere(&mut self.found()) {
            epoch.bump(Kind::List);
        }
        self.woken(epoch);
    }
}

impl std::fmt::Debug for KubepodsDirs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubepodsDirs").field("mount", &self.mount).finish_non_exhaustive()
    }
}

fn above() -> WatchFlags {
    WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::DELETE | WatchFlags::MOVED_FROM
}

fn parent() -> WatchFlags {
    above() | WatchFlags::MODIFY
}

/// A directory that vanished meanwhile is normal here; of other errors the first is kept.
fn note(kept: &mut Option<Errno>, error: Errno) {
    if error != Errno::NOENT && error != Errno::NOTDIR {
        kept.get_or_insert(error);
    }
}

#[cfg(test)]
#[path = "kubepods_tests.rs"]
mod tests;
