//! What connections come over: Unix sockets in earnest, TCP for test tools that know nothing else.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// A kind of stream socket. Listening and serving happen on different threads, each with its own runtime; between them a connection is a
/// mere descriptor.
pub trait Transport: AsyncRead + AsyncWrite + AsFd + Unpin + Sized + 'static {
    /// Its listener.
    type Listener;

    /// Takes over a listening, non-blocking socket. Needs the runtime that will drive it.
    fn listener(socket: OwnedFd) -> io::Result<Self::Listener>;

    /// The next connection; non-blocking, closed on exec.
    fn accept(listener: &Self::Listener) -> impl Future<Output = io::Result<OwnedFd>>;

    /// Takes over an accepted connection. Needs the runtime that will drive it.
    fn from_accepted(socket: OwnedFd) -> io::Result<Self>;
}

impl Transport for UnixStream {
    type Listener = UnixListener;

    fn listener(socket: OwnedFd) -> io::Result<UnixListener> {
        UnixListener::from_std(socket.into())
    }

    async fn accept(listener: &UnixListener) -> io::Result<OwnedFd> {
        let (stream, _) = listener.accept().await?;
        Ok(stream.into_std()?.into())
    }

    fn from_accepted(socket: OwnedFd) -> io::Result<Self> {
        Self::from_std(socket.into())
    }
}

impl Transport for TcpStream {
    type Listener = TcpListener;

    fn listener(socket: OwnedFd) -> io::Result<TcpListener> {
        TcpListener::from_std(socket.into())
    }

    async fn accept(listener: &TcpListener) -> io::Result<OwnedFd> {
        let (stream, _) = listener.accept().await?;
        Ok(stream.into_std()?.into())
    }

    fn from_accepted(socket: OwnedFd) -> io::Result<Self> {
        let stream = Self::from_std(socket.into())?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}
