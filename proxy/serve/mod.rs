//! Serving: a Unix socket, HTTP/2 and gRPC on it, each call answered through [`Answers`].
//!
//! One thread accepts; each worker, one per CPU, has a thread and a runtime of its own and keeps its connections to itself. The caller
//! owns the beginning and the end: [`Server::bind`] makes the socket under a temporary name, [`Bound::serve`] starts the threads,
//! [`Serving::publish`] puts the socket in place, and the caller's token stops it all.
//!
//! Never here: a source, a capture, a snapshot. What the answers are is [`Answers`]' business.

use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::answer::Answers;

mod accept;
mod activity;
mod backlog;
mod body;
mod config;
mod connection;
mod door;
pub mod gather;
mod lobby;
pub mod mend;
mod metadata;
mod method;
mod pause;
mod service;
mod session;
mod socket;
mod stats;
mod transport;
mod worker;

pub use backlog::Queue;
pub use config::{Config, Limits, ServingConfig};
pub use door::{Door, Identify};
pub use method::Method;
pub use socket::{SocketConfig, SocketError, Step};
pub use stats::Stats;
pub use transport::Transport;

use socket::SocketFile;

/// Makes sockets to serve on.
#[derive(Clone, Copy, Debug)]
pub struct Server;

/// A socket under its temporary name. Dropped, it is gone.
#[derive(Debug)]
pub struct Bound {
    socket: OwnedFd,
    file: SocketFile,
    serving: ServingConfig,
    door: Option<Door>,
}

/// A server at work. It stops by the token that it was given, not by being dropped.
#[derive(Debug)]
pub struct Serving {
    file: Option<Arc<SocketFile>>,
    threads: Threads,
}

/// The threads at work.
#[derive(Debug)]
struct Threads {
    stats: Arc<Stats>,
    /// Listeners in place of the one at work, to the accepting thread.
    renewed: mpsc::UnboundedSender<OwnedFd>,
    /// Each thread holds a sender as long as it lives; nothing is ever sent.
    living: mpsc::Receiver<Infallible>,
}

/// Why serving could not begin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A thread or its runtime.
    #[error("cannot start thread {name}: {source}; is there a limit on threads or file descriptors?")]
    Thread {
        /// The thread's name.
        name: String,
        /// What the system said.
        source: io::Error,
    },
}

/// For [`crate::fuzzing`].
#[cfg(feature = "fuzzing")]
pub(crate) fn asked(method: Method, message: bytes::Bytes) -> Result<crate::answer::Ask, crate::grpc::Status> {
    service::ask(method, message)
}

/// For [`crate::fuzzing`].
#[cfg(feature = "fuzzing")]
pub(crate) fn max_age(value: &http::HeaderValue) -> Result<Option<std::time::Duration>, crate::grpc::Status> {
    let headers = std::iter::once((http::HeaderName::from_static("podresources-max-age"), value.clone())).collect();
    metadata::terms(&headers).map(|terms| terms.max_age)
}

// === impl Server ===

impl Server {
    /// Makes the socket under a temporary name beside its path, with its mode and owner, and opens it for connections. Nobody can find
    /// it before [`Serving::publish`].
    pub fn bind(config: Config) -> Result<Bound, SocketError> {
        let (socket, file) = socket::bind_temporarily(config.socket)?;
        Ok(Bound { socket, file, serving: config.serving, door: None })
    }
}

// === impl Bound ===

impl Bound {
    /// Has every connection come in by this door; without one, nobody looks who comes.
    #[must_use]
    pub fn behind(self, door: Door) -> Self {
        Self { door: Some(door), ..self }
    }

    /// Starts the threads, which answer with clones of `answers`. Cancelling `stop` withdraws the socket, takes whoever has connected by
    /// then, tells all clients to go, finishes what is in flight within the grace, and ends the threads.
    pub fn serve<A>(self, answers: A, stop: CancellationToken) -> Result<Serving, StartError>
    where
        A: Answers + Clone + Send,
    {
        let file = Arc::new(self.file);
        let threads =
            Threads::start::<UnixStream, A>(self.socket, Some(Arc::clone(&file)), self.serving, answers, self.door.as_ref(), stop)?;
        Ok(Serving { file: Some(file), threads })
    }
}

// === impl Serving ===

impl Serving {
    /// Serves connections that come to a listening, non-blocking socket which the caller has made: the same stack without a socket file.
    pub fn over<T, A>(listener: OwnedFd, serving: ServingConfig, answers: A, stop: CancellationToken) -> Result<Self, StartError>
    where
        T: Transport,
        A: Answers + Clone + Send,
    {
        let threads = Threads::start::<T, A>(listener, None, serving, answers, None, stop)?;
        Ok(Self { file: None, threads })
    }

    /// Puts the socket in place, over a dead one or, where that is wanted, over one that lives. A second time it does nothing.
    pub fn publish(&self) -> Result<(), SocketError> {
        self.file.as_ref().map_or(Ok(()), |file| file.publish())
    }

    /// The path of the socket.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|file| file.path())
    }

    /// Ends once another process has put its socket in the place of ours; never before [`Self::publish`]. The caller then stops: clients
    /// find the other one by themselves, and nothing of its is touched. Until then a socket's file that somebody removes is made anew.
    pub async fn taken_over(&self) {
        match &self.file {
            // Where the accepting thread has gone, all is over anyway.
            Some(file) => file.taken_over(|socket| drop(self.threads.renewed.send(socket))).await,
            None => std::future::pending().await,
        }
    }

    /// The numbers, to be read at any time.
    pub fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.threads.stats)
    }

    /// Ends when all threads have: after the stop, when everything in flight is finished or the grace is over.
    pub async fn drained(&mut self) {
        // Nothing is ever sent: this ends when the last sender is gone.
        let _ = self.threads.living.recv().await;
    }
}

// === impl Threads ===

impl Threads {
    fn start<T, A>(
        listener: OwnedFd,
        file: Option<Arc<SocketFile>>,
        config: ServingConfig,
        answers: A,
        door: Option<&Door>,
        stop: CancellationToken,
    ) -> Result<Self, StartError>
    where
        T: Transport,
        A: Answers + Clone + Send,
    {
        let for_root = door.map_or(0, |door| door.table.config().for_root());
        let stats = Arc::new(Stats::new(worker::count(config.threads), config.limits.connections));
        let (alive, living) = mpsc::channel(1);
        let mut workers = Vec::new();
        for (index, answers) in std::iter::repeat_n(answers, stats.workers.len()).enumerate() {
            let (sender, sockets) = mpsc::unbounded_channel();
            let (stats, alive, door) = (Arc::clone(&stats), alive.clone(), door.cloned());
            let name = format!("serve-{index}");
            let shared = move || service::Shared::new(answers, config, door, stats, index);
            // A token of its own: looking at it takes a lock that no other worker wants.
            worker::start::<T, A>(name.clone(), shared, sockets, stop.child_token(), alive)
                .map_err(|source| StartError::Thread { name, source })?;
            workers.push(sender);
        }
        let (renewed, listeners) = mpsc::unbounded_channel();
        let limit = config.limits.connections;
        let (stats_of_accept, looked_at) = (Arc::clone(&stats), door.is_some());
        let acceptor = accept::Acceptor { listener, listeners, file, workers, stats: stats_of_accept, limit, looked_at, for_root };
        accept::start(acceptor, stop, alive).map_err(|source| StartError::Thread { name: accept::THREAD.into(), source })?;
        Ok(Self { stats, renewed, living })
    }
}
