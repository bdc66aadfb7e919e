//! The admin thread: accepts, and keeps what any visitor can hold small.
//!
//! One request per connection, a bound on its length, its time and on the connections of each door. A full door drops its oldest
//! connection, never the newest: a probe gets its answer whatever slow visitors do.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::bind::{self, Bound, Tcp};
use super::routes::{self, Visitor};
use super::status::{Client, Status};
use super::{Heartbeats, LogLevel, Metrics, Readiness};

/// What the admin server tells of. The closures run on its thread: they must not block.
pub struct Parts {
    /// For `/readyz`.
    pub readiness: Readiness,
    /// For `/healthz`.
    pub heartbeats: Heartbeats,
    /// For `/metrics`.
    pub metrics: Metrics,
    /// For `/loglevel`.
    pub log_level: LogLevel,
    /// For `/status`.
    pub status: Box<dyn Fn() -> Status + Send + Sync>,
    /// For `/clients`.
    pub clients: Box<dyn Fn() -> Vec<Client> + Send + Sync>,
    /// For `/source`: takes what is wanted, where something is; says what holds, or what is wrong.
    pub source: Box<SwitchSource>,
    /// For `/config`: the configuration as it was understood, as TOML.
    pub config: Box<dyn Fn() -> String + Send + Sync>,
}

/// See [`Parts::source`].
pub(super) type SwitchSource = dyn Fn(Option<&str>) -> Result<String, String> + Send + Sync;

/// The admin server at work. It goes on until its token is cancelled, also when this is dropped.
#[derive(Debug)]
pub struct Running {
    thread: JoinHandle<()>,
}

/// What one door grants its visitors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections at once.
    pub(super) connections: usize,
    /// From a connection's begin to its end, request and answer included.
    pub(super) patience: Duration,
}

/// What both doors share.
struct House {
    parts: Arc<Parts>,
    limits: Limits,
    /// Connections of both doors.
    ongoing: TaskTracker,
}

const LIMITS: Limits = Limits { connections: 64, patience: Duration::from_secs(5) };
/// Longest request head, in bytes.
const HEAD_MAX: usize = 16 << 10;
/// Most header fields of one request.
const HEADERS_MAX: usize = 64;
/// What answers under way may still take once we are told to stop.
const FAREWELL: Duration = Duration::from_secs(1);
/// The pause after a failed accept (descriptors ran out) or before another try at an address that is still held.
const PAUSE: Duration = Duration::from_millis(100);

// === impl Bound ===

impl Bound {
    /// Answers both doors from a thread of its own until `shutdown` is cancelled. The socket's file is left where it is: by then it may
    /// be another instance's. Fails where the system gives no thread or no event queue.
    pub fn serve(self, parts: Parts, shutdown: CancellationToken) -> io::Result<Running> {
        self.serve_within(LIMITS, parts, shutdown)
    }

    pub(super) fn serve_within(self, limits: Limits, parts: Parts, shutdown: CancellationToken) -> io::Result<Running> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let unix = {
            let _entered = runtime.enter();
            self.unix.map(UnixListener::from_std).transpose()?
        };
        let tcp = self.tcp;
        let thread = thread::Builder::new().name("admin".to_owned()).spawn(move || {
            runtime.block_on(async {
                let house = House { parts: Arc::new(parts), limits, ongoing: TaskTracker::new() };
                let doors = async { tokio::join!(house.tcp_door(tcp), house.unix_door(unix)) };
                let _stopped = shutdown.run_until_cancelled(doors).await;
                house.ongoing.close();
                let _in_time = timeout(FAREWELL, house.ongoing.wait()).await;
            });
        })?;
        Ok(Running { thread })
    }
}

// === impl Running ===

impl Running {
    /// Waits for the thread's end, at most about a second after the token was cancelled. Blocks: not for async code.
    pub fn join(self) {
        if self.thread.join().is_err() {
            tracing::error!("the admin thread panicked");
        }
    }
}

// === impl House ===

impl House {
    async fn tcp_door(&self, tcp: Option<Tcp>) {
        let listener = match tcp {
            None => return,
            Some(Tcp::Listening(listener)) => listener,
            Some(Tcp::Awaited(address)) => take_over(address).await,
        };
        match TcpListener::from_std(listener) {
            Ok(listener) => self.door(async || Ok((listener.accept().await?.0, Visitor::Anyone))).await,
            Err(error) => tracing::error!(%error, "the admin address cannot be served"),
        }
    }

    async fn unix_door(&self, listener: Option<UnixListener>) {
        let Some(listener) = listener else { return };
        let accept = async || {
            let stream = listener.accept().await?.0;
            let visitor = Visitor::from_uid(stream.peer_cred()?.uid());
            Ok((stream, visitor))
        };
        self.door(accept).await;
    }

    /// Accepts for ever.
    async fn door<S>(&self, accept: impl AsyncFn() -> io::Result<(S, Visitor)>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut open: VecDeque<AbortHandle> = VecDeque::with_capacity(self.limits.connections);
        loop {
            let Ok((stream, visitor)) = accept().await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            open.retain(|connection| !connection.is_finished());
            if open.len() >= self.limits.connections
                && let Some(oldest) = open.pop_front()
            {
                oldest.abort();
            }
            // A visitor who breaks off or dawdles is none of our business.
            let conversation = timeout(self.limits.patience, converse(stream, visitor, Arc::clone(&self.parts)));
            open.push_back(self.ongoing.spawn(conversation).abort_handle());
            // A burst must not push out a connection that has not had its turn yet.
            tokio::task::yield_now().await;
        }
    }
}

/// Gets the address from an instance that is about to leave.
async fn take_over(address: SocketAddr) -> std::net::TcpListener {
    tracing::info!(%address, "another process still holds the admin address; waiting for it to leave");
    loop {
        tokio::time::sleep(PAUSE).await;
        if let Ok(listener) = bind::listen(address) {
            tracing::info!(%address, "serving the admin address");
            return listener;
        }
    }
}

/// One connection: one request, one answer.
async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin, visitor: Visitor, parts: Arc<Parts>) -> hyper::Result<()> {
    let service = service_fn(async |request| Ok::<_, Infallible>(routes::answer(&parts, visitor, request).await));
    http1::Builder::new()
        .max_buf_size(HEAD_MAX)
        .max_headers(HEADERS_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await
}
