//! The few calls that the compiler cannot check, each with its reason. `unsafe` stands here alone.
#![expect(unsafe_code, reason = "this is the place for it")]

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor to wait on for readability; needs a tokio runtime with I/O.
pub(crate) fn readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open, is owned by the `AsyncFd` from here on, and has the same number until it is dropped with it.
    let registered = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    registered.map_err(io::Error::from)
}
