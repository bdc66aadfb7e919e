//! Why a door could not be taken, and what to do about it.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use rustix::io::Errno;

/// Why a door could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The TCP address.
    #[error("cannot listen on the admin address {address}{}: {source}", address_hint(source))]
    Address {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The socket's path names no file in a directory.
    #[error("the admin socket {} must be a file in a directory of its own, such as /run/podresources-proxy-admin/admin.sock", path.display())]
    Path {
        /// The socket.
        path: PathBuf,
    },
    /// The directory could not be made or opened.
    #[error("cannot {call} the admin socket's directory {}{}: {source}", path.display(), directory_hint(source))]
    Directory {
        /// What failed.
        call: &'static str,
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody else owns the directory.
    #[error(
        "the admin socket's directory {} belongs to uid {owner}, not to ours ({ours}): whoever owns it could put a socket of their own there. \
         Give it to uid {ours}, or choose another directory",
        path.display()
    )]
    Owner {
        /// The directory.
        path: PathBuf,
        /// Who owns it.
        owner: u32,
        /// Who we are.
        ours: u32,
    },
    /// Others can write to the directory.
    #[error("the admin socket's directory {} has mode {mode:04o}: others could put a socket of their own there. Run `chmod 0700` on it", path.display())]
    Mode {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Something that is no socket stands at the path.
    #[error("{} is there and is not a socket: remove it, or choose another admin socket", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// A living process serves the socket.
    #[error("the admin socket {} is served by {by}: stop that process, choose another admin socket, or take over with --replace", path.display())]
    Living {
        /// The socket.
        path: PathBuf,
        /// The process, as well as it can be named.
        by: String,
    },
    /// The socket could not be put in place.
    #[error("cannot {call} the admin socket {}: {source}", path.display())]
    Socket {
        /// What failed.
        call: &'static str,
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

fn address_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            " (another process listens there; choose another with --admin-address, or take over from an older instance with --replace)"
        }
        io::ErrorKind::PermissionDenied => " (ports below 1024 need CAP_NET_BIND_SERVICE; choose another with --admin-address)",
        io::ErrorKind::AddrNotAvailable => " (this machine has no such address; choose another with --admin-address)",
        _ => "",
    }
}

fn directory_hint(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => " (make its parent first, or choose another path)",
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => " (run as root, or choose a path that you may write to)",
        Some(Errno::LOOP | Errno::NOTDIR) => " (it must be a directory itself, not a file or a link to one)",
        _ => "",
    }
}
