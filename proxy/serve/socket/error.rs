//! What can go wrong with a socket's file, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use super::MAX_PATH;

/// Why there is no socket. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Longer than `sun_path`.
    #[error("socket path {path} is {len} bytes long and the kernel takes {MAX_PATH}; choose a shorter one", path = path.display())]
    TooLong {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        len: usize,
    },
    /// No file name, as in `/` or `..`.
    #[error("socket path {path} names no file; give the path of the socket itself, such as /run/podresources-proxy/kubelet.sock", path = path.display())]
    NoName {
        /// The path.
        path: PathBuf,
    },
    /// Something else is at the path.
    #[error("{path} is {kind} and not a socket that could be replaced; remove it or choose another path", path = path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
        /// What it is, with its article.
        kind: &'static str,
    },
    /// Somebody serves it.
    #[error("socket {path} is served by a living process ({by}); stop it, choose another path, or take its place with --replace", path = path.display())]
    InUse {
        /// The path.
        path: PathBuf,
        /// Who, as far as it can be seen.
        by: String,
    },
    /// The kubelet's directory is not there.
    #[error("{directory} does not exist; it is the kubelet's own directory and is never made here: start the kubelet first, or choose a path in a directory of your own", directory = directory.display())]
    KubeletDirectory {
        /// The directory.
        directory: PathBuf,
    },
    /// Somebody else's directory, which root without its capabilities cannot write to.
    #[error(
        "the directory {directory} belongs to uid {owner}, and this process, which runs as uid {ours} and keeps no right to pass by file permissions, \
         cannot put the socket there: give the directory to uid {ours}, or choose another",
        directory = directory.display()
    )]
    DirectoryOwner {
        /// The directory.
        directory: PathBuf,
        /// Who owns it.
        owner: u32,
        /// Who we are.
        ours: u32,
    },
    /// No right to.
    #[error("no permission to {to} {path}; run as root or as the owner of the directory (giving a socket away needs CAP_CHOWN, which is dropped when the socket has been made: to have it made anew, restart)", path = path.display())]
    NotPermitted {
        /// What was tried.
        to: Step,
        /// On what.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// On a file system that is mounted read-only.
    #[error("cannot {to} {path}: the file system is read-only; mount it read-write or choose another path", path = path.display())]
    ReadOnly {
        /// What was tried.
        to: Step,
        /// On what.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// No space or no quota left.
    #[error("cannot {to} {path}: no space left ({source}); free some (bytes or inodes) or choose a path on another file system", path = path.display())]
    Full {
        /// What was tried.
        to: Step,
        /// On what.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Anything else.
    #[error("cannot {to} {path}: {source}", path = path.display())]
    Io {
        /// What was tried.
        to: Step,
        /// On what.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// What was being done when an error came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Making the directory.
    MakeDirectory,
    /// Looking at what is there.
    Look,
    /// Making a socket and giving it its address.
    Bind,
    /// Setting the mode.
    SetMode,
    /// Setting owner and group.
    SetOwner,
    /// Opening it for connections.
    Listen,
    /// Renaming it into place.
    Publish,
}

/// Names what failed, on what, and sorts it by what one can do about it.
pub(super) fn failed<E: Into<io::Error>>(to: Step, path: &Path) -> impl FnOnce(E) -> SocketError {
    let path = path.to_owned();
    move |error| {
        let source = error.into();
        match source.kind() {
            io::ErrorKind::PermissionDenied => SocketError::NotPermitted { to, path, source },
            io::ErrorKind::ReadOnlyFilesystem => SocketError::ReadOnly { to, path, source },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => SocketError::Full { to, path, source },
            io::ErrorKind::InvalidFilename => SocketError::TooLong { len: path.as_os_str().len(), path },
            _ => SocketError::Io { to, path, source },
        }
    }
}

// === impl Step ===

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::MakeDirectory => "make directory",
            Self::Look => "look at",
            Self::Bind => "bind a socket at",
            Self::SetMode => "set the mode of",
            Self::SetOwner => "set the owner and group of",
            Self::Listen => "listen at",
            Self::Publish => "put the socket in place at",
        })
    }
}
