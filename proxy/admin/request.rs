//! The other end of the admin socket: one request, for the command line.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;

/// The longest that one request may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest reply that is read.
const REPLY_MAX: usize = 16 << 20;

/// What the server said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// How it went.
    pub status: StatusCode,
    /// The content, or a text that says what was wrong.
    pub body: String,
}

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// Nobody listens, or we may not ask.
    #[error("cannot reach the admin socket {}{}: {source}", path.display(), hint(source))]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The path of the request is no path.
    #[error("{path:?} is not a path to ask for: {source}")]
    Path {
        /// What was asked for.
        path: String,
        /// What is wrong with it.
        source: http::Error,
    },
    /// The connection broke, or HTTP was not spoken.
    #[error("no answer from {}: {source}", path.display())]
    Exchange {
        /// The socket.
        path: PathBuf,
        /// What hyper said.
        source: hyper::Error,
    },
    /// The answer was cut off, too long, or no text.
    #[error("unusable answer from {}: {reason}", path.display())]
    Unusable {
        /// The socket.
        path: PathBuf,
        /// What is wrong with the answer.
        reason: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Nothing came in time.
    #[error("no answer from {} within {} s", path.display(), PATIENCE.as_secs())]
    Timeout {
        /// The socket.
        path: PathBuf,
    },
}

/// Asks the proxy whose admin socket this is; within 10 s. A reply with an error status is a reply.
///
/// Must be called within a tokio runtime.
pub async fn request(socket: &Path, method: Method, path: &str, body: impl Into<Bytes>) -> Result<Reply, RequestError> {
    let asked = ask(socket, method, path, body.into());
    tokio::time::timeout(PATIENCE, asked).await.unwrap_or_else(|_elapsed| Err(RequestError::Timeout { path: socket.to_owned() }))
}

async fn ask(socket: &Path, method: Method, path: &str, body: Bytes) -> Result<Reply, RequestError> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "localhost")
        .body(Full::new(body))
        .map_err(|source| RequestError::Path { path: path.to_owned(), source })?;
    let stream = UnixStream::connect(socket).await.map_err(|source| RequestError::Connect { path: socket.to_owned(), source })?;

    let exchange = |source| RequestError::Exchange { path: socket.to_owned(), source };
    let unusable = |reason| RequestError::Unusable { path: socket.to_owned(), reason };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(exchange)?;
    let reply = async {
        let (head, body) = sender.send_request(request).await.map_err(exchange)?.into_parts();
        let body = Limited::new(body, REPLY_MAX).collect().await.map_err(unusable)?.to_bytes();
        let body = String::from_utf8(body.into()).map_err(|e| unusable(e.into()))?;
        Ok(Reply { status: head.status, body })
    };
    // The connection has to be driven while the reply is awaited; how it ends, the reply says.
    let connection = async {
        let _ended = connection.await;
        std::future::pending().await
    };
    tokio::select! {
        reply = reply => reply,
        never = connection => never,
    }
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            " (is podresources-proxy running, and is this its admin socket?)"
        }
        io::ErrorKind::PermissionDenied => " (only root and the user that runs the proxy may ask)",
        _ => "",
    }
}
