//! The admin server's two doors, taken early: before anything else is set up, so that a wrong address ends the program at once.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::Error;

/// Where the admin server listens. Either door may be left out.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The address for probes and scrapes.
    pub address: Option<SocketAddr>,
    /// The socket for root. Its directory is made (mode 0700) if it is not there; the directory's parent is not.
    pub socket: Option<PathBuf>,
    /// Take the socket from a living process, and wait for an address that one still holds: for a rolling upgrade.
    pub replace: bool,
}

/// The doors, taken and not yet answered.
#[derive(Debug)]
pub struct Bound {
    pub(super) tcp: Option<Tcp>,
    pub(super) unix: Option<UnixListener>,
}

/// The TCP door.
#[derive(Debug)]
pub(super) enum Tcp {
    Listening(TcpListener),
    /// Another process holds the address and is about to leave.
    Awaited(SocketAddr),
}

// === impl Config ===

impl Config {
    /// Takes the doors. Requests that come before [`Bound::serve`] wait in the kernel's queue.
    pub fn bind(&self) -> Result<Bound, Error> {
        let unix = self.socket.as_deref().map(|path| bind_socket(path, self.replace)).transpose()?;
        let tcp = self.address.map(|address| bind_address(address, self.replace)).transpose()?;
        Ok(Bound { tcp, unix })
    }
}

// === impl Bound ===

impl Bound {
    /// The TCP address as the system gave it; `None` without one, or while another process still holds it.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        match &self.tcp {
            Some(Tcp::Listening(listener)) => listener.local_addr().ok(),
            Some(Tcp::Awaited(_)) | None => None,
        }
    }
}

// === impl Tcp ===

fn bind_address(address: SocketAddr, replace: bool) -> Result<Tcp, Error> {
    match listen(address) {
        Ok(listener) => Ok(Tcp::Listening(listener)),
        Err(e) if replace && e.kind() == io::ErrorKind::AddrInUse => Ok(Tcp::Awaited(address)),
        Err(source) => Err(Error::Address { address, source }),
    }
}

/// A listener fit for tokio.
pub(super) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn bind_socket(path: &Path, replace: bool) -> Result<UnixListener, Error> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Error::Path { path: path.to_owned() });
    };
    let directory = private_directory(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })?;
    let failed = |call| move |source| Error::Socket { call, path: path.to_owned(), source };

    // Two that start at once take turns, so that the second finds the first one's socket. Let go when `directory` closes.
    rustix::fs::flock(&directory, FlockOperation::LockExclusive).map_err(|e| failed("lock the directory of")(e.into()))?;
    match fs::symlink_metadata(path) {
        Ok(there) if !there.file_type().is_socket() => return Err(Error::NotASocket { path: path.to_owned() }),
        Ok(_) if !replace => {
            if let Some(by) = served_by(path).map_err(failed("probe"))? {
                return Err(Error::Living { path: path.to_owned(), by });
            }
        }
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(failed("look at")(source)),
    }

    // Bound under another name and renamed: the path goes from the old socket to ours with nothing between.
    let mut fresh = std::ffi::OsString::from(".");
    fresh.push(name);
    fresh.push(format!(".{}", std::process::id()));
    let fresh = path.with_file_name(fresh);
    let _leftover = fs::remove_file(&fresh);
    let listener = UnixListener::bind(&fresh).map_err(failed("bind"))?;
    let placed = fs::set_permissions(&fresh, Permissions::from_mode(0o600))
        .and_then(|()| listener.set_nonblocking(true))
        .and_then(|()| fs::rename(&fresh, path));
    if let Err(source) = placed {
        let _gone = fs::remove_file(&fresh);
        return Err(failed("put in place")(source));
    }
    Ok(listener)
}

/// Makes the directory if need be; opens it if nobody but us can put anything there.
fn private_directory(path: &Path) -> Result<File, Error> {
    let failed = |call| move |source| Error::Directory { call, path: path.to_owned(), source };
    match DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(failed("make")(e)),
        Ok(()) | Err(_) => {}
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| failed("open")(e.into()))?;
    let directory = File::from(directory);
    let found = directory.metadata().map_err(failed("look at"))?;
    let ours = rustix::process::geteuid().as_raw();
    if found.uid() != ours {
        return Err(Error::Owner { path: path.to_owned(), owner: found.uid(), ours });
    }
    if found.mode() & 0o022 != 0 {
        return Err(Error::Mode { path: path.to_owned(), mode: found.mode() & 0o7777 });
    }
    Ok(directory)
}

/// The process that answers at a socket; `None` where the socket is dead. Never waits.
fn served_by(path: &Path) -> io::Result<Option<String>> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let probe: OwnedFd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&probe, &address) {
        Ok(()) => {
            let pid = rustix::net::sockopt::socket_peercred(&probe)?.pid.as_raw_pid();
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            Ok(Some(format!("process {pid} ({})", name.trim_end())))
        }
        // Its queue is full: it lives, whoever it is.
        Err(Errno::AGAIN) => Ok(Some("a process that is too busy to be asked".to_owned())),
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(None),
        Err(e) => Err(e.into()),
    }
}
