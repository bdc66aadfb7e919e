//! Opening the connection, and telling apart why it could not be opened.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo};
use thiserror::Error;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::channel::Channel;
use super::first_frame::FirstFrame;

/// How long to wait before asking again a listener whose queue of new connections is full.
const BACKLOG_PAUSE: Duration = Duration::from_millis(10);

/// How long to wait for hyper's verdict on a first frame that is not SETTINGS: it may want more bytes than ever come.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// What a connection takes, and how long it may take to open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest reply, in bytes. The kubelet's own clients have 4 or 16 MiB, and real nodes have gone past 4.
    pub max_reply: usize,
    /// Connecting and HTTP/2's first exchange together.
    pub handshake: Duration,
}

/// One open HTTP/2 connection. Calls may run at the same time; dropping it and its channels closes the socket.
#[derive(Clone, Debug)]
pub struct Connection {
    pub(super) channel: Channel,
    pub(super) limits: Limits,
    /// Its sender lives in the connection's task: gone when that ends.
    open: watch::Receiver<()>,
}

/// Why there is no connection. Each text says what to do.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// There is no such file.
    #[error("{} does not exist; is the server running, and is its directory mounted here?", .0.display())]
    NoSuchFile(PathBuf),
    /// The socket's file is there, and nobody listens.
    #[error("nobody listens on {}; its server has stopped, or is being restarted", .0.display())]
    Refused(PathBuf),
    /// The path leads to a file, a directory or a device.
    #[error("{} is not a socket; give the path of the socket itself", .0.display())]
    NotASocket(PathBuf),
    /// Neither reachable nor writable for this user.
    #[error("permission denied on {}; its owner, group and mode decide who may connect (try as root, or join its group)", .0.display())]
    PermissionDenied(PathBuf),
    /// Nothing came back in time: the server hangs, is stopped, or has too many callers.
    #[error("{} did not answer within {}; its server hangs or is overloaded", .path.display(), humantime::format_duration(*.after))]
    TimedOut {
        /// The socket.
        path: PathBuf,
        /// How long was waited.
        after: Duration,
    },
    /// Somebody listens, and it is no gRPC server.
    #[error("{} does not speak HTTP/2; is it a podresources socket?", .path.display())]
    Handshake {
        /// The socket.
        path: PathBuf,
        /// What hyper made of it, where it said something.
        #[source]
        source: Option<hyper::Error>,
    },
    /// Whatever else the kernel says.
    #[error("cannot connect to {}", .path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self { max_reply: 64 << 20, handshake: Duration::from_secs(5) }
    }
}

// === impl Connection ===

impl Connection {
    /// Opens a connection and waits for the server's first frame, so that a success means: somebody there speaks HTTP/2.
    pub async fn connect(path: impl AsRef<Path>, limits: Limits) -> Result<Self, ConnectError> {
        let path = path.as_ref();
        timeout(limits.handshake, Self::open(path, limits))
            .await
            .unwrap_or_else(|_| Err(ConnectError::TimedOut { path: path.to_owned(), after: limits.handshake }))
    }

    async fn open(path: &Path, limits: Limits) -> Result<Self, ConnectError> {
        let (stream, settings) = FirstFrame::new(dial(path).await?);
        let failed = |source| ConnectError::Handshake { path: path.to_owned(), source };
        let (send, driver) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed(Some(error)))?;
        let (ended, open) = watch::channel(());
        let (tell, told) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let end = driver.await;
            drop(ended);
            // Read while the handshake is waited for; later nobody is there to hear it, and the calls themselves have failed.
            let _late = tell.send(end);
        });
        if settings.await.is_err() {
            let said = timeout(LAST_WORDS, told).await;
            return Err(failed(said.ok().and_then(Result::ok).and_then(Result::err)));
        }
        Ok(Self { channel: Channel(send), limits, open })
    }

    /// The connection as a tower service, for tonic's `client::Grpc`.
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// The connection is closed, or closing: no further call can be made.
    pub fn is_closed(&self) -> bool {
        self.channel.is_closed() || self.open.has_changed().is_err()
    }

    /// Resolves when the connection has ended, from either side. Does not keep it open.
    pub fn closed(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut open = self.open.clone();
        async move { while open.changed().await.is_ok() {} }
    }
}

/// `connect(2)`, again while the listener's queue is full: on a Unix socket that is EAGAIN at once, never a wait.
async fn dial(path: &Path) -> Result<UnixStream, ConnectError> {
    loop {
        match UnixStream::connect(path).await {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(BACKLOG_PAUSE).await,
            Err(error) => return Err(explain(path, error)),
        }
    }
}

fn explain(path: &Path, source: io::Error) -> ConnectError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ConnectError::NoSuchFile(path),
        io::ErrorKind::PermissionDenied => ConnectError::PermissionDenied(path),
        // The kernel says "refused" for whatever is not a listening socket, a plain file too.
        io::ErrorKind::ConnectionRefused => match std::fs::metadata(&path) {
            Ok(found) if !found.file_type().is_socket() => ConnectError::NotASocket(path),
            _ => ConnectError::Refused(path),
        },
        _ => ConnectError::Io { path, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_may_not_be_used_is_called_that_and_says_who_decides() {
        let error = explain(Path::new("/run/k.sock"), io::ErrorKind::PermissionDenied.into());
        assert!(matches!(error, ConnectError::PermissionDenied(_)));
        assert!(error.to_string().starts_with("permission denied on /run/k.sock; its owner, group and mode decide"), "{error}");
    }
}
