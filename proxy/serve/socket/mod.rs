//! The socket file: bound under a temporary name, given its mode and owner, and only then put in place, so that no client ever sees a
//! socket that is not ready; given up without harm to whoever has taken its place.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use inotify::{EventStream, Inotify, WatchMask};
use rustix::fs::{Access, AtFlags, CWD, Gid, Mode, RenameFlags, Uid, accessat, chmod, chownat, renameat_with};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use rustix::process::geteuid;
use tokio_stream::StreamExt as _;
use tracing::warn;

use crate::rights;

mod error;
mod occupant;

pub use error::{SocketError, Step};

use error::failed;
use occupant::{Occupant, occupant};

/// Bytes of a Unix socket's path that the kernel takes, `sun_path` without its end mark.
const MAX_PATH: usize = 107;
/// The directory of the kubelet's own socket. We never make it: a kubelet that finds it with the wrong mode does not start.
const KUBELETS_OWN: &str = "pod-resources";

/// Where the socket is to be, and whose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketConfig {
    /// Its path.
    pub path: PathBuf,
    /// Permission bits, exactly as given here: the umask has no say.
    pub mode: u32,
    /// The user that owns it; `None` leaves it to the process's own.
    pub owner: Option<u32>,
    /// The group that owns it; `None` leaves it to the process's own.
    pub group: Option<u32>,
    /// Whether to take the place of a socket that a living process serves.
    pub replace: bool,
}

/// The file that leads to our socket: under its temporary name first, in place once published.
#[derive(Debug)]
pub(super) struct SocketFile {
    config: SocketConfig,
    /// What was at the path when it was looked who serves it.
    found: Option<Identity>,
    /// `None`: withdrawn.
    file: Mutex<Option<OwnFile>>,
}

/// A socket's file of our making. Dropped, it is gone; what another process has put in its place stays.
#[derive(Debug)]
struct OwnFile {
    path: PathBuf,
    identity: Identity,
}

/// Which file it is, whatever it is called: device and inode. The inode is not given to another file while its socket is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

/// What a look at our path finds.
enum Found {
    Ours,
    Theirs,
    Nothing(io::Error),
    /// We have not put our file there, or have taken it away.
    NotPublished,
}

/// Makes the socket under a temporary name in the directory of its path, ready for connections.
pub(super) fn bind_temporarily(config: SocketConfig) -> Result<(OwnedFd, SocketFile), SocketError> {
    let path = &config.path;
    let len = path.as_os_str().len();
    if len > MAX_PATH {
        return Err(SocketError::TooLong { path: path.clone(), len });
    }
    let directory = config.directory_and_name()?.0;
    make_directory(directory)?;
    check_directory(directory)?;
    // Before the look: what comes after it is another file.
    let found = Identity::at(path);
    if let (Occupant::Living(by), false) = (occupant(path)?, config.replace) {
        return Err(SocketError::InUse { path: path.clone(), by });
    }
    let (socket, file) = config.make()?;
    Ok((socket, SocketFile { config, found, file: Mutex::new(Some(file)) }))
}

/// The longest queue of connections that the kernel allows.
pub(super) fn backlog() -> i32 {
    const SINCE_LINUX_5_4: i32 = 4096;
    fs::read_to_string("/proc/sys/net/core/somaxconn").ok().and_then(|text| text.trim().parse().ok()).unwrap_or(SINCE_LINUX_5_4)
}

/// Binds to a name that is not taken, no longer than the final one where that has ten bytes or more. A socket left there by a process
/// that died is removed.
fn bind_somewhere(socket: &OwnedFd, directory: &Path, name_len: usize) -> Result<PathBuf, SocketError> {
    const TRIES: u32 = 64;
    let pid = std::process::id();
    let mut last = Errno::ADDRINUSE;
    for attempt in 0..TRIES {
        let temporary = directory.join(format!(".{:07x}{attempt:02x}", pid & 0x0fff_ffff));
        debug_assert!(name_len < 10 || temporary.as_os_str().len() <= directory.as_os_str().len() + 1 + name_len);
        let address = SocketAddrUnix::new(&temporary).map_err(failed(Step::Bind, &temporary))?;
        for _ in 0..2 {
            match bind(socket, &address) {
                Ok(()) => return Ok(temporary),
                Err(Errno::ADDRINUSE) => {}
                Err(error) => return Err(failed(Step::Bind, &temporary)(error)),
            }
            // A process with our id, in another container or before us, is or was using the name.
            match occupant(&temporary) {
                Ok(Occupant::DeadSocket) => drop(fs::remove_file(&temporary)),
                Ok(Occupant::Nobody) => {}
                Ok(Occupant::Living(_)) | Err(_) => break,
            }
        }
        last = Errno::ADDRINUSE;
    }
    Err(failed(Step::Bind, directory)(last))
}

fn make_directory(directory: &Path) -> Result<(), SocketError> {
    match fs::metadata(directory) {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(Step::Look, directory)(error)),
    }
    if directory.file_name().is_some_and(|name| name == KUBELETS_OWN) {
        return Err(SocketError::KubeletDirectory { directory: directory.to_owned() });
    }
    DirBuilder::new().recursive(true).mode(0o755).create(directory).map_err(failed(Step::MakeDirectory, directory))?;
    // The umask may have taken away what clients need to get at the socket.
    chmod(directory, Mode::from_raw_mode(0o755)).map_err(failed(Step::SetMode, directory))
}

/// Makes sure that the socket can be put in place, and taken away, when rights have been dropped.
fn check_directory(directory: &Path) -> Result<(), SocketError> {
    let access = || accessat(CWD, directory, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS);
    // Whatever else may be wrong, the attempt itself will tell.
    if access().is_ok() && rights::without_any(access) == Err(Errno::ACCESS) {
        let owner = fs::metadata(directory).map_or(0, |found| found.uid());
        return Err(SocketError::DirectoryOwner { directory: directory.to_owned(), owner, ours: geteuid().as_raw() });
    }
    Ok(())
}

// === impl SocketConfig ===

impl SocketConfig {
    /// A socket at this path for its owner and its group, which replaces nothing that lives.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), mode: 0o660, owner: None, group: None, replace: false }
    }

    fn directory_and_name(&self) -> Result<(&Path, &OsStr), SocketError> {
        let (Some(name), Some(directory)) = (self.path.file_name(), self.path.parent()) else {
            return Err(SocketError::NoName { path: self.path.clone() });
        };
        Ok((if directory.as_os_str().is_empty() { Path::new(".") } else { directory }, name))
    }

    /// A listening socket of this owner and mode, under a temporary name.
    fn make(&self) -> Result<(OwnedFd, OwnFile), SocketError> {
        let (directory, name) = self.directory_and_name()?;
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(failed(Step::Bind, &self.path))?;
        let path = bind_somewhere(&socket, directory, name.len())?;
        // From here on the temporary file goes away with this, whatever fails.
        let identity = fs::symlink_metadata(&path).map(|found| Identity::of(&found)).map_err(failed(Step::Look, &path))?;
        let file = OwnFile { path, identity };
        self.set_owner_and_mode(&file.path)?;
        // Nobody could connect before this, so nobody got in under a mode that was not meant.
        listen(&socket, backlog()).map_err(failed(Step::Listen, &file.path))?;
        Ok((socket, file))
    }

    fn set_owner_and_mode(&self, file: &Path) -> Result<(), SocketError> {
        if self.owner.is_some() || self.group.is_some() {
            let (owner, group) = (self.owner.map(Uid::from_raw), self.group.map(Gid::from_raw));
            chownat(CWD, file, owner, group, AtFlags::SYMLINK_NOFOLLOW).map_err(failed(Step::SetOwner, file))?;
        }
        chmod(file, Mode::from_raw_mode(self.mode)).map_err(failed(Step::SetMode, file))
    }
}

// === impl SocketFile ===

impl SocketFile {
    pub(super) fn path(&self) -> &Path {
        &self.config.path
    }

    /// Puts the socket in place. Clients that connect from now on come to us; one who was connected to what stood there before stays
    /// connected to it.
    pub(super) fn publish(&self) -> Result<(), SocketError> {
        let mut file = self.lock();
        let Some(file) = file.as_mut().filter(|file| file.path != self.config.path) else { return Ok(()) };
        // Once more: it may have been some time since the bind. A dead socket does not come to life, and with the rights that are left
        // by now one of another owner could not be asked.
        if Identity::at(self.path()) != self.found
            && let (Occupant::Living(by), false) = (occupant(self.path())?, self.config.replace)
        {
            return Err(SocketError::InUse { path: self.path().to_owned(), by });
        }
        fs::rename(&file.path, self.path()).map_err(failed(Step::Publish, self.path()))?;
        self.path().clone_into(&mut file.path);
        Ok(())
    }

    /// Takes the socket's file away, where it is still ours; what another process has put there stays.
    pub(super) fn withdraw(&self) {
        drop(self.lock().take());
    }

    /// Ends once another file is at our path. Where somebody has merely removed ours, it is made anew, and the socket behind it handed to
    /// `renewed`: nobody can find the old one any more.
    pub(super) async fn taken_over(&self, renewed: impl Fn(OwnedFd)) {
        /// How often to look where the kernel tells of changes, and where it does not.
        const LOOK: [Duration; 2] = [Duration::from_secs(1), Duration::from_millis(100)];
        let directory = self.path().parent().unwrap_or(Path::new("/"));
        let mut told = watch(directory);
        let mut complained = false;
        loop {
            // Events that come after this look are still in the queue for the wait below.
            match self.look() {
                Found::Theirs => return,
                Found::Ours => complained = false,
                Found::NotPublished => {}
                Found::Nothing(why) => match self.renew() {
                    Ok(Some(socket)) => {
                        warn!(path = %self.path().display(), %why, "somebody has removed the socket's file; it is made anew");
                        renewed(socket);
                        // The directory may be another one now.
                        told = watch(directory);
                    }
                    Ok(None) => continue,
                    Err(error) if !complained => {
                        complained = true;
                        warn!(%error, "the socket's file is gone and cannot be made anew: no new client can connect; it is tried again");
                    }
                    Err(_) => {}
                },
            }
            match &mut told {
                // What happened does not matter: the file is looked at anyway.
                Some(events) => drop(tokio::time::timeout(LOOK[0], events.next()).await),
                None => tokio::time::sleep(LOOK[1]).await,
            }
        }
    }

    fn look(&self) -> Found {
        let file = self.lock();
        let Some(file) = file.as_ref().filter(|file| file.path == self.config.path) else { return Found::NotPublished };
        match fs::symlink_metadata(&file.path) {
            Ok(found) if Identity::of(&found) == file.identity => Found::Ours,
            Ok(_) => Found::Theirs,
            Err(error) => Found::Nothing(error),
        }
    }

    /// Makes the socket anew where its file is gone. `None`: somebody else has been faster, or the end has come.
    fn renew(&self) -> Result<Option<OwnedFd>, SocketError> {
        let mut file = self.lock();
        let Some(file) = file.as_mut() else { return Ok(None) };
        make_directory(self.config.directory_and_name()?.0)?;
        let (socket, mut next) = self.config.make()?;
        match renameat_with(CWD, &next.path, CWD, self.path(), RenameFlags::NOREPLACE) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(None),
            Err(error) => return Err(failed(Step::Publish, self.path())(error)),
        }
        self.path().clone_into(&mut next.path);
        // What is at the old one's path is not the old one, so dropping that removes nothing.
        *file = next;
        Ok(Some(socket))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<OwnFile>> {
        self.file.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

// === impl OwnFile ===

impl Drop for OwnFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| Identity::of(&found) == self.identity) {
            // Where it cannot be removed it is left as a dead socket, which the next start replaces.
            drop(fs::remove_file(&self.path));
        }
    }
}

/// Watches for files that come into a directory or leave it. Where no watch is to be had (their number is limited), looking will do.
fn watch(directory: &Path) -> Option<EventStream<[u8; 4096]>> {
    let inotify = Inotify::init().ok()?;
    inotify.watches().add(directory, WatchMask::CREATE | WatchMask::MOVED_TO | WatchMask::MOVED_FROM | WatchMask::DELETE).ok()?;
    inotify.into_event_stream([0; 4096]).ok()
}

// === impl Identity ===

impl Identity {
    fn at(path: &Path) -> Option<Self> {
        fs::symlink_metadata(path).ok().map(|found| Self::of(&found))
    }

    fn of(found: &Metadata) -> Self {
        Self { device: found.dev(), inode: found.ino() }
    }
}
