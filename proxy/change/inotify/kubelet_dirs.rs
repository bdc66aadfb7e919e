//! The kubelet's directories: its socket, its state files, its device plugins.
//!
//! Only that a file was put in place matters; the contents are the kubelet's own and are never read. Directories that are missing
//! or go away are waited for at their nearest ancestor.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::inotify::{ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::{Inotify, Look, Meaning, Reader, Tag};
use crate::change::epoch::{Epoch, Kind, Queue};
use crate::change::source::{PartReport, Sees, Source, State};
use crate::rights::denied_hint;

/// Files in the kubelet's root directory whose replacement says that an allocation changed. The kubelet writes each to a temporary
/// name (with a leading dot) and renames it.
const STATE_FILES: [&[u8]; 4] = [b"cpu_manager_state", b"memory_manager_state", b"dra_manager_state", b"allocated_pods_state"];

/// The device manager's checkpoint, in `device-plugins/`.
const DEVICE_CHECKPOINT: &[u8] = b"kubelet_internal_checkpoint";

/// How often a directory that is being made under our eyes is tried.
const TRIES: usize = 8;

/// Holds the podresources socket.
const SOCKET: Tag = 0;
/// Holds the state files.
const STATE: Tag = 1;
/// Holds the plugins' sockets and the device checkpoint.
const PLUGINS: Tag = 2;
/// Will hold, somewhere below, a directory that is missing.
const ABOVE: Tag = 3;

/// Where the kubelet keeps what is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The kubelet's podresources socket.
    pub socket: PathBuf,
    /// The kubelet's `--root-dir`.
    pub root_dir: PathBuf,
}

/// The source `kubelet-dirs`.
#[derive(Debug)]
pub struct KubeletDirs {
    inotify: Arc<Inotify>,
    owner: usize,
    wanted: Vec<(&'static str, PathBuf, Tag)>,
    /// One for each that is wanted.
    states: Mutex<Vec<State>>,
}

/// What the events mean.
pub(in crate::change) struct KubeletReader {
    socket_name: OsString,
}

// === impl Layout ===

impl Layout {
    fn wanted(&self) -> Vec<(&'static str, PathBuf, Tag)> {
        let sockets = self.socket.parent().unwrap_or(Path::new("/")).to_path_buf();
        vec![
            ("socket", sockets, SOCKET),
            ("state-files", self.root_dir.clone(), STATE),
            ("device-plugins", self.root_dir.join("device-plugins"), PLUGINS),
        ]
    }

    /// What reads the events.
    pub(in crate::change) fn reader(&self) -> KubeletReader {
        KubeletReader { socket_name: self.socket.file_name().unwrap_or_default().to_os_string() }
    }
}

// === impl KubeletReader ===

impl Reader for KubeletReader {
    fn read(&self, tag: Tag, flags: ReadFlags, name: &[u8]) -> Meaning {
        if flags.intersects(ReadFlags::IGNORED | ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT) {
            // One loss for each directory: the kernel ends each watch with IGNORED, whatever came before; a move ends none.
            let lost = tag != ABOVE && flags.intersects(ReadFlags::IGNORED | ReadFlags::MOVE_SELF);
            return Meaning { change: Some(Kind::Socket), look: if lost { Look::Lost } else { Look::Here } };
        }
        let change = match tag {
            ABOVE if flags.contains(ReadFlags::ISDIR) => return Meaning { change: None, look: Look::Here },
            SOCKET if name == self.socket_name.as_bytes() => Kind::Socket,
            STATE if STATE_FILES.contains(&name) => Kind::List,
            PLUGINS if name == DEVICE_CHECKPOINT => Kind::Allocatable,
            // A plugin's socket that comes or goes; writes to other files there, and temporary files, mean nothing.
            PLUGINS if !name.starts_with(b".") && flags.intersects(ReadFlags::CREATE | ReadFlags::DELETE | ReadFlags::MOVED_TO) => {
                Kind::Allocatable
            }
            _ => return Meaning::default(),
        };
        Meaning { change: Some(change), ..Meaning::default() }
    }
}

// === impl KubeletDirs ===

impl KubeletDirs {
    /// Begins to watch. Directories that are not there yet are no error. `owner` is the place of this layout's reader.
    pub(in crate::change) fn watch(layout: &Layout, inotify: Arc<Inotify>, owner: usize) -> Self {
        let dirs = Self { inotify, owner, wanted: layout.wanted(), states: Mutex::default() };
        dirs.look();
        dirs
    }

    /// Puts a watch on each wanted directory, or on the nearest ancestor of a missing one. Says whether a directory is watched now
    /// that was not before: what happened in it meanwhile went unseen.
    fn look(&self) -> bool {
        let directory = WatchFlags::CREATE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MODIFY
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF;
        let (mut now, mut states, mut gained) = (HashSet::new(), Vec::new(), false);
        for (_, path, tag) in &self.wanted {
            let mut state = State::Absent { why: format!("waits for {}", path.display()) };
            // What was missing may have been made before its ancestor was watched: so once more after that.
            for _ in 0..TRIES {
                match self.inotify.watch(path, directory, self.owner, *tag) {
                    Ok((wd, new)) => {
                        now.insert((wd, *tag));
                        gained |= new;
                        state = State::Attached;
                        break;
                    }
                    Err(Errno::NOENT) => {}
                    Err(error) => state = refused(path, error),
                }
                match self.watch_above(path) {
                    Some((wd, true)) => _ = now.insert((wd, ABOVE)),
                    Some((wd, false)) => {
                        now.insert((wd, ABOVE));
                        break;
                    }
                    None => break,
                }
            }
            states.push(state);
        }
        self.inotify.keep(self.owner, &now);
        *self.states() = states;
        gained
    }

    fn watch_above(&self, path: &Path) -> Option<(i32, bool)> {
        let above = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        path.ancestors().skip(1).find_map(|up| self.inotify.watch(up, above, self.owner, ABOVE).ok())
    }

    fn states(&self) -> MutexGuard<'_, Vec<State>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for KubeletDirs {
    fn name(&self) -> &'static str {
        "kubelet-dirs"
    }

    fn parts(&self) -> Vec<PartReport> {
        let (events, losses) = self.inotify.counts(self.owner);
        let states = self.states();
        let part = |(at, (name, _, _)): (usize, &(&str, PathBuf, Tag))| PartReport {
            name: (*name).to_owned(),
            state: states.get(at).cloned().unwrap_or(State::Absent { why: "not looked for yet".to_owned() }),
            // The instance counts them together.
            events: if at == 0 { events } else { 0 },
            losses: if at == 0 { losses } else { 0 },
        };
        self.wanted.iter().enumerate().map(part).collect()
    }

    fn sees(&self) -> Sees {
        // What is missing cannot change, and its coming is seen at its ancestor.
        let refused = self.states().iter().any(|state| matches!(state, State::Refused { .. }));
        if refused { Sees::NOTHING } else { Sees::KUBELET }
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
        let Some((gap, begun)) = self.inotify.gap(self.owner).and_then(|gap| Some((gap, gap.begin()?))) else { return };
        self.inotify.take_dirty(self.owner);
        // Where no directory is watched that was not before, nothing can have gone unseen.
        if self.look() {
            epoch.bump(Kind::Socket);
        }
        gap.close(begun);
    }

    fn mend(&self, epoch: &Epoch) {
        if self.look() {
            epoch.bump(Kind::Socket);
        }
        self.woken(epoch);
    }
}

fn refused(path: &Path, error: Errno) -> State {
    let grant = match error {
        Errno::NOSPC => "raise fs.inotify.max_user_watches".to_owned(),
        // No capability is kept that would do instead.
        Errno::ACCESS | Errno::PERM => denied_hint(path).unwrap_or_else(|| "let this user read the directory".to_owned()),
        _ => String::new(),
    };
    State::Refused { why: format!("watching {}: {error}", path.display()), grant }
}

#[cfg(test)]
#[path = "kubelet_dirs_tests.rs"]
mod tests;
