//! What is at a path already: nothing, a socket that is dead or alive, or something that is none of our business.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::error::failed;
use super::{SocketError, Step};

/// What is at a path.
pub(super) enum Occupant {
    Nobody,
    DeadSocket,
    Living(String),
}

/// Finds out what is at the path; an error where it is something that we may not replace.
pub(super) fn occupant(path: &Path) -> Result<Occupant, SocketError> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Occupant::Nobody),
        Err(error) => return Err(failed(Step::Look, path)(error)),
    };
    let not_a_socket = |kind| Err(SocketError::NotASocket { path: path.to_owned(), kind });
    let kind = found.file_type();
    if kind.is_dir() {
        return not_a_socket("a directory");
    } else if kind.is_symlink() {
        return not_a_socket("a symbolic link");
    } else if kind.is_file() {
        return not_a_socket("a regular file");
    } else if !kind.is_socket() {
        return not_a_socket("a device or a pipe");
    }
    let address = SocketAddrUnix::new(path).map_err(failed(Step::Look, path))?;
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(failed(Step::Look, path))?;
    match connect(&probe, &address) {
        Ok(()) => Ok(Occupant::Living(
            socket_peercred(&probe).map_or_else(|_| "unknown".to_owned(), |peer| format!("process {}", peer.pid.as_raw_nonzero())),
        )),
        // Its queue is full: somebody has it open.
        Err(Errno::AGAIN) => Ok(Occupant::Living("busy: its queue is full".to_owned())),
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(Occupant::DeadSocket),
        Err(Errno::PROTOTYPE) => not_a_socket("a socket of another kind (not a stream socket)"),
        Err(error) => Err(failed(Step::Look, path)(error)),
    }
}
