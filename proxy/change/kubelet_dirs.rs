//! inotify on the kubelet's directories: its socket, its state files, its device plugins.
//!
//! Only that a file was put in place matters; the contents are the kubelet's own and are never read. Directories that are missing
//! or go away are waited for at their nearest ancestor.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::epoch::{Epoch, Kind, Queue};
use super::source::{PartReport, Sees, Source, State};

/// Files in the kubelet's root directory whose replacement says that an allocation changed. The kubelet writes each to a temporary
/// name (with a leading dot) and renames it.
const STATE_FILES: [&[u8]; 4] = [b"cpu_manager_state", b"memory_manager_state", b"dra_manager_state", b"allocated_pods_state"];

/// The device manager's checkpoint, in `device-plugins/`.
const DEVICE_CHECKPOINT: &[u8] = b"kubelet_internal_checkpoint";

/// Where the kubelet keeps what is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The kubelet's podresources socket.
    pub socket: PathBuf,
    /// The kubelet's `--root-dir`.
    pub root_dir: PathBuf,
}

/// Why the directories cannot be watched at all.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// No inotify instance to be had.
    #[error("cannot make an inotify instance ({0}): raise fs.inotify.max_user_instances")]
    Init(#[source] io::Error),
    /// The descriptor could not be duplicated.
    #[error("cannot duplicate the inotify descriptor: {0}")]
    Duplicate(#[source] io::Error),
}

/// What a directory is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Holds the podresources socket.
    Socket,
    /// Holds the state files.
    State,
    /// Holds the plugins' sockets and the device checkpoint.
    Plugins,
    /// Will hold, somewhere below, a directory that is missing.
    Ancestor,
}

/// A queue of changes to the kubelet's directories.
#[derive(Debug)]
pub struct KubeletDirs {
    fd: OwnedFd,
    /// Set while somebody holds events that have left the queue and are not counted yet.
    taking: AtomicBool,
    watches: Mutex<Watches>,
}

#[derive(Debug)]
struct Watches {
    wanted: Vec<(PathBuf, Role)>,
    socket_name: OsString,
    by_descriptor: HashMap<i32, Vec<Role>>,
    missing: Vec<PathBuf>,
    last_error: Option<String>,
}

// === impl Layout ===

impl Layout {
    fn wanted(&self) -> Vec<(PathBuf, Role)> {
        let sockets = self.socket.parent().unwrap_or(Path::new("/")).to_path_buf();
        vec![(sockets, Role::Socket), (self.root_dir.clone(), Role::State), (self.root_dir.join("device-plugins"), Role::Plugins)]
    }
}

// === impl KubeletDirs ===

impl KubeletDirs {
    /// Begins to watch. Directories that are not there yet are no error.
    pub fn watch(layout: &Layout) -> Result<Self, WatchError> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(|e| WatchError::Init(e.into()))?;
        let mut watches = Watches {
            wanted: layout.wanted(),
            socket_name: layout.socket.file_name().unwrap_or_default().to_os_string(),
            by_descriptor: HashMap::new(),
            missing: Vec::new(),
            last_error: None,
        };
        watches.rescan(&fd);
        Ok(Self { fd, taking: AtomicBool::new(false), watches: Mutex::new(watches) })
    }

    /// A descriptor of its own to wait on for readability.
    pub fn descriptor(&self) -> Result<OwnedFd, WatchError> {
        self.fd.try_clone().map_err(WatchError::Duplicate)
    }

    /// Looks again at every directory: one may have been replaced without an event. For the slow timer.
    pub fn mend(&self, epoch: &Epoch) {
        let mut watches = self.lock();
        self.taking.store(true, Ordering::SeqCst);
        // What waits is counted before any watch changes: events of a watch that is gone could not be told apart any more.
        let seen = watches.drain(&self.fd);
        let seen = if watches.rescan(&self.fd) { Some(Kind::Socket) } else { seen };
        if let Some(kind) = seen {
            epoch.bump(kind);
        }
        self.taking.store(false, Ordering::SeqCst);
    }

    /// The directories that are not there, or cannot be watched.
    pub fn missing(&self) -> Vec<PathBuf> {
        self.lock().missing.clone()
    }

    /// The last error of a watch, for people.
    pub fn last_error(&self) -> Option<String> {
        self.lock().last_error.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Watches> {
        // A panic while the lock was held can only have lost a watch, which `mend` puts back.
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn something_waits(&self) -> bool {
        // On an error say yes: the read that follows names it, and a needless look costs little.
        rustix::io::ioctl_fionread(&self.fd).map_or(true, |bytes| bytes > 0)
    }
}

impl AsFd for KubeletDirs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Has inotify events of the kubelet's directories counted.
#[derive(Debug)]
pub struct KubeletDirsSource(pub Arc<KubeletDirs>);

impl Source for KubeletDirsSource {
    fn name(&self) -> &'static str {
        "kubelet-dirs"
    }

    fn parts(&self) -> Vec<PartReport> {
        let missing = self.0.missing();
        let state = if missing.is_empty() {
            State::Attached
        } else {
            let missing: Vec<String> = missing.iter().map(|path| path.display().to_string()).collect();
            let error = self.0.last_error().map(|error| format!(" ({error})")).unwrap_or_default();
            State::Absent { why: format!("waits for {}{error}", missing.join(", ")) }
        };
        vec![PartReport { name: "directories".to_owned(), state, events: 0, losses: 0 }]
    }

    fn sees(&self) -> Sees {
        Sees::KUBELET
    }

    fn queue(&self) -> Option<Arc<dyn Queue>> {
        let queue: Arc<dyn Queue> = self.0.clone();
        Some(queue)
    }

    fn wake(&self) -> io::Result<Option<OwnedFd>> {
        self.0.descriptor().map(Some).map_err(io::Error::other)
    }

    fn mend(&self, epoch: &Epoch) {
        self.0.mend(epoch);
    }
}

impl Queue for KubeletDirs {
    fn take_waiting(&self, epoch: &Epoch) {
        // In this order. An event seen by its maker before we were called is still in the queue, or somebody has taken it: then
        // `taking` was set before the read that emptied the queue, and stays set until the bump is done. SeqCst keeps the load
        // behind the system call and the store before the other thread's read.
        if !self.something_waits() && !self.taking.load(Ordering::SeqCst) {
            return;
        }
        let mut watches = self.lock();
        self.taking.store(true, Ordering::SeqCst);
        let seen = watches.drain(&self.fd);
        if let Some(kind) = seen {
            epoch.bump(kind);
        }
        self.taking.store(false, Ordering::SeqCst);
    }
}

// === impl Watches ===

impl Watches {
    /// Reads the queue to its end; says what the events were about, if they were about anything.
    fn drain(&mut self, fd: &OwnedFd) -> Option<Kind> {
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut reader = inotify::Reader::new(fd, &mut buffer);
        let mut seen = None;
        let mut look_again = false;
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => break,
                Err(error) => {
                    self.last_error = Some(format!("reading inotify: {error}"));
                    seen = Some(Kind::Socket);
                    break;
                }
            };
            let flags = event.events();
            if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                self.last_error = Some("the inotify queue overflowed".to_owned());
                (seen, look_again) = (Some(Kind::Socket), true);
                continue;
            }
            let Some(roles) = self.by_descriptor.get(&event.wd()) else { continue };
            if flags.intersects(ReadFlags::IGNORED | ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT) {
                (seen, look_again) = (Some(Kind::Socket), true);
                if flags.intersects(ReadFlags::IGNORED) {
                    self.by_descriptor.remove(&event.wd());
                }
                continue;
            }
            let name = event.file_name().map(std::ffi::CStr::to_bytes).unwrap_or_default();
            for role in roles {
                let kind = match role {
                    Role::Ancestor => {
                        look_again = true;
                        continue;
                    }
                    Role::Socket if name == self.socket_name.as_bytes() => Kind::Socket,
                    Role::State if STATE_FILES.contains(&name) => Kind::List,
                    Role::Plugins if name == DEVICE_CHECKPOINT => Kind::Allocatable,
                    // A plugin's socket that comes or goes; writes to other files there, and temporary files, mean nothing.
                    Role::Plugins
                        if !name.starts_with(b".")
                            && flags.intersects(ReadFlags::CREATE | ReadFlags::DELETE | ReadFlags::MOVED_TO) =>
                    {
                        Kind::Allocatable
                    }
                    _ => continue,
                };
                seen = stronger(seen, kind);
            }
        }
        if look_again && self.rescan(fd) {
            seen = Some(Kind::Socket);
        }
        seen
    }

    /// Puts a watch on each wanted directory, or on the nearest ancestor of a missing one. Says whether a directory is watched now
    /// that was not before: what happened in it meanwhile went unseen.
    fn rescan(&mut self, fd: &OwnedFd) -> bool {
        let directory = WatchFlags::ONLYDIR
            | WatchFlags::MASK_ADD
            | WatchFlags::CREATE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MODIFY
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF;
        let ancestor = WatchFlags::ONLYDIR
            | WatchFlags::MASK_ADD
            | WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF;
        let mut now: HashMap<i32, Vec<Role>> = HashMap::new();
        self.missing.clear();
        for (path, role) in &self.wanted {
            match inotify::add_watch(fd, path, directory) {
                Ok(wd) => now.entry(wd).or_default().push(*role),
                Err(error) => {
                    if error != Errno::NOENT {
                        self.last_error = Some(format!("watching {}: {error}", path.display()));
                    }
                    self.missing.push(path.clone());
                    let nearest = path.ancestors().skip(1).find_map(|up| inotify::add_watch(fd, up, ancestor).ok());
                    if let Some(wd) = nearest {
                        now.entry(wd).or_default().push(Role::Ancestor);
                    }
                }
            }
        }
        let gained = now.iter().any(|(wd, roles)| {
            let before = self.by_descriptor.get(wd).map(Vec::as_slice).unwrap_or_default();
            roles.iter().any(|role| *role != Role::Ancestor && !before.contains(role))
        });
        for wd in self.by_descriptor.keys().filter(|wd| !now.contains_key(wd)) {
            // Gone already where the directory itself is gone.
            let _gone = inotify::remove_watch(fd, *wd);
        }
        self.by_descriptor = now;
        gained
    }
}

/// The kind that includes the other.
fn stronger(seen: Option<Kind>, kind: Kind) -> Option<Kind> {
    match (seen, kind) {
        (Some(Kind::Socket), _) | (Some(Kind::Allocatable), Kind::List) => seen,
        _ => Some(kind),
    }
}

#[cfg(test)]
#[path = "kubelet_dirs_tests.rs"]
mod tests;
