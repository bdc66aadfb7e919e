//! What connections come over: Unix sockets in earnest, TCP for test tools that know nothing else.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::{TcpStream, UnixStream};

/// A kind of stream socket. Listening and serving happen on different threads, each with its own runtime; between them a connection is a
/// mere descriptor.
pub trait Transport: AsyncRead + AsyncWrite + AsFd + Unpin + Sized + 'static {
    /// Takes over an accepted connection. Needs the runtime that will drive it.
    fn from_accepted(socket: OwnedFd) -> io::Result<Self>;
}

/// A listening socket. What it accepts are bare descriptors, non-blocking and closed on exec: one system call for each, since the
/// runtime of this thread need not know them.
#[derive(Debug)]
pub(super) struct Listener(AsyncFd<OwnedFd>);

// === impl Listener ===

impl Listener {
    /// Takes over a listening, non-blocking socket. Needs the runtime that will drive it.
    #[expect(
        deprecated,
        reason = "what comes in its place is unsafe for types that may change their descriptor; an OwnedFd never does"
    )]
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        AsyncFd::with_interest(socket, Interest::READABLE).map(Self)
    }

    /// Waits for the next connection.
    pub(super) async fn accept(&self) -> io::Result<OwnedFd> {
        self.0.async_io(Interest::READABLE, |socket| Ok(accept(socket)?)).await
    }

    /// The next connection, if there is one.
    pub(super) fn accept_now(&self) -> Option<io::Result<OwnedFd>> {
        match accept(self.0.get_ref()) {
            Err(Errno::AGAIN) => None,
            accepted => Some(accepted.map_err(io::Error::from)),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn accept(listener: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)
}

impl Transport for UnixStream {
    fn from_accepted(socket: OwnedFd) -> io::Result<Self> {
        Self::from_std(socket.into())
    }
}

impl Transport for TcpStream {
    fn from_accepted(socket: OwnedFd) -> io::Result<Self> {
        let stream = Self::from_std(socket.into())?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}
