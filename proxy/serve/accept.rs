//! Accepting, on a thread of its own, so that no load on the workers keeps a client from getting in.
//!
//! It never gives up: where descriptors run out, a spare one is spent to take a connection and close it, so that its client learns at
//! once, and the queue does not spin; when descriptors are back, all goes on.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rustix::io::Errno;
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::lobby::{Caller, Waiting};
use super::pause::has_hung_up;
use super::socket::SocketFile;
use super::stats::Stats;
use super::transport::Listener;

/// The thread's name.
pub(super) const THREAD: &str = "serve-accept";
/// How long accepting goes on after the socket's path has ceased to lead here. A client that has looked the path up, and is not yet in
/// the queue, is somewhere within one system call.
const LINGER: Duration = Duration::from_millis(50);
/// How long to wait where accepting fails and not even the spare descriptor helps.
const PAUSE: Duration = Duration::from_millis(20);
/// Connections that are taken before anything else is looked at.
const BATCH: usize = 64;
/// How often it is looked how long the queue is, while somebody is in it.
const LOOK: Duration = Duration::from_millis(100);
/// How often one kind of trouble is logged.
const LOG_EVERY: Duration = Duration::from_mins(1);

/// Accepts connections and hands each to the worker that has the fewest.
pub(super) struct Acceptor {
    pub(super) listener: OwnedFd,
    /// Those that come in its place, as its path leads to them.
    pub(super) listeners: mpsc::UnboundedReceiver<OwnedFd>,
    /// The path that leads to the listener, withdrawn before it is closed; TCP has none.
    pub(super) file: Option<Arc<SocketFile>>,
    /// One for each worker of `stats`, in the same order.
    pub(super) workers: Vec<mpsc::UnboundedSender<Accepted>>,
    pub(super) stats: Arc<Stats>,
    /// Most connections open at a time.
    pub(super) limit: usize,
    /// Somebody looks who comes, which takes a moment.
    pub(super) looked_at: bool,
    /// How many of those are for uid 0 alone.
    pub(super) for_root: usize,
}

/// A connection that nobody has looked at yet.
pub(super) struct Accepted {
    pub(super) socket: OwnedFd,
    pub(super) waiting: Waiting,
}

/// Takes connections out of the queue.
struct Queue {
    file: Option<Arc<SocketFile>>,
    workers: Vec<mpsc::UnboundedSender<Accepted>>,
    stats: Arc<Stats>,
    limit: usize,
    looked_at: bool,
    for_root: usize,
    spare: Option<OwnedFd>,
    over_limit: Seldom,
    crowded: Seldom,
    out_of_descriptors: Seldom,
    full: Seldom,
    failing: Seldom,
    next_look: Option<Instant>,
}

/// Says when something may be logged again.
#[derive(Default)]
struct Seldom {
    next: Option<Instant>,
}

/// Starts the accepting thread. It ends after `stop`, once the queue is empty, and then closes the listener.
pub(super) fn start(acceptor: Acceptor, stop: CancellationToken, alive: mpsc::Sender<Infallible>) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
    let spare = spare();
    std::thread::Builder::new().name(THREAD.into()).spawn(move || {
        let _alive = alive;
        let Acceptor { listener, listeners, file, workers, stats, limit, looked_at, for_root } = acceptor;
        let queue = Queue {
            file,
            workers,
            stats,
            limit,
            looked_at,
            for_root,
            spare,
            over_limit: Seldom::default(),
            crowded: Seldom::default(),
            out_of_descriptors: Seldom::default(),
            full: Seldom::default(),
            failing: Seldom::default(),
            next_look: None,
        };
        if let Err(error) = runtime.block_on(queue.run(listener, listeners, &stop)) {
            tracing::error!(%error, "accepting has ended: the socket cannot be watched");
        }
    })?;
    Ok(())
}

fn spare() -> Option<OwnedFd> {
    File::open("/dev/null").map(OwnedFd::from).ok()
}

// === impl Queue ===

impl Queue {
    async fn run(
        mut self,
        listener: OwnedFd,
        mut listeners: mpsc::UnboundedReceiver<OwnedFd>,
        stop: &CancellationToken,
    ) -> io::Result<()> {
        let mut listener = self.listen_to(listener)?;
        while let Some(Some(next)) = stop.run_until_cancelled(self.accept_until(&listener, &mut listeners)).await {
            let next = self.listen_to(next)?;
            self.empty(&listener);
            listener = next;
        }
        if let Some(file) = &self.file {
            file.withdraw();
        }
        let _ = timeout(LINGER, self.accept(&listener)).await;
        self.empty(&listener);
        Ok(())
    }

    fn listen_to(&self, socket: OwnedFd) -> io::Result<Listener> {
        self.stats.accept.listen_to(&socket);
        Listener::new(socket)
    }

    /// Accepts until there is another listener.
    async fn accept_until(&mut self, listener: &Listener, listeners: &mut mpsc::UnboundedReceiver<OwnedFd>) -> Option<OwnedFd> {
        tokio::select! {
            Some(next) = listeners.recv() => Some(next),
            () = self.accept(listener) => None,
        }
    }

    /// Takes whoever is in the queue now: they have connected, and closing the listener would reset them. The queue cannot be longer than
    /// its backlog, so this ends even where somebody keeps connecting.
    fn empty(&mut self, listener: &Listener) {
        for _ in 0..=super::socket::backlog() {
            match listener.accept_now() {
                Some(Ok(socket)) => self.hand_over(socket),
                Some(Err(_)) => {}
                None => break,
            }
        }
    }

    /// Accepts for ever: whoever is there already, in batches, then whoever comes.
    async fn accept(&mut self, listener: &Listener) {
        loop {
            let mut accepted = Some(listener.accept().await);
            self.look();
            for _ in 0..BATCH {
                match accepted.take().or_else(|| listener.accept_now()) {
                    Some(Ok(socket)) => self.hand_over(socket),
                    Some(Err(error)) => {
                        self.not_accepted(listener, error).await;
                        break;
                    }
                    None => break,
                }
            }
        }
    }

    /// Looks now and then whether the queue is full. Such a look cannot see everything, but a queue that is full again and again.
    fn look(&mut self) {
        let now = Instant::now();
        if self.next_look.is_some_and(|next| now < next) {
            return;
        }
        self.next_look = Some(now + LOOK);
        let Some(queue) = self.stats.accept.queue().filter(|queue| queue.is_full()) else { return };
        self.stats.accept.queue_full.fetch_add(1, Relaxed);
        if self.full.now() {
            let length = queue.length;
            warn!(length, "the kernel's queue of new connections is full: others cannot connect (EAGAIN) until it is emptied");
        }
    }

    async fn not_accepted(&mut self, listener: &Listener, error: io::Error) {
        match Errno::from_io_error(&error) {
            // The client has gone again while it was in the queue, or a signal came.
            Some(Errno::CONNABORTED | Errno::INTR | Errno::PROTO) => {}
            Some(Errno::MFILE | Errno::NFILE) => self.turn_away(listener).await,
            _ => {
                if self.failing.now() {
                    warn!(%error, "accepting a connection failed; trying again");
                }
                sleep(PAUSE).await;
            }
        }
    }

    fn hand_over(&mut self, socket: OwnedFd) {
        let Self { workers, stats, limit, looked_at, for_root, .. } = self;
        if has_hung_up(&socket) {
            // Dialled and gone: there is nobody to answer.
            stats.accept.accepted.fetch_add(1, Relaxed);
            return;
        }
        let caller = Caller::of(&socket);
        let loads = stats.workers.iter().map(|worker| worker.open.load(Relaxed));
        // Those that wait to be looked at are on top: most of them may not stay.
        let waiting = if *looked_at { stats.accept.lobby.waiting() } else { 0 };
        let open = loads.clone().sum::<u64>().saturating_sub(waiting as u64);
        let full = open >= *limit as u64 || (open >= limit.saturating_sub(*for_root).max(1) as u64 && !caller.is_root());
        if full {
            stats.accept.over_limit.fetch_add(1, Relaxed);
            if self.over_limit.now() {
                warn!(open, limit, "connection closed: as many as allowed are open");
            }
            return;
        }
        // Where nobody looks, nobody waits for it.
        let Some(waiting) = stats.accept.lobby.enter(if *looked_at { caller } else { Caller::Unknown }, Instant::now()) else {
            stats.accept.over_limit.fetch_add(1, Relaxed);
            if self.crowded.now() {
                warn!(?caller, "connection closed: its process dials without end, or its client has too many already");
            }
            return;
        };
        let Some((least, _)) = loads.enumerate().min_by_key(|(_, load)| *load) else { return };
        stats.workers[least].open.fetch_add(1, Relaxed);
        stats.accept.accepted.fetch_add(1, Relaxed);
        if workers[least].send(Accepted { socket, waiting }).is_err() {
            stats.workers[least].open.fetch_sub(1, Relaxed);
        }
    }

    /// No descriptor is left for a connection: spends the spare one on taking it and closing it.
    async fn turn_away(&mut self, listener: &Listener) {
        if self.out_of_descriptors.now() {
            warn!("connections are closed: no file descriptors left; raise the limit (LimitNOFILE=, ulimit -n)");
        }
        let had_one = self.spare.take().is_some();
        // Another thread may have been faster and taken the descriptor, or the client has gone; then there is nothing to do but wait.
        let turned_away = had_one && matches!(listener.accept_now(), Some(Ok(_)));
        self.spare = spare();
        if turned_away {
            self.stats.accept.out_of_descriptors.fetch_add(1, Relaxed);
        } else {
            sleep(PAUSE).await;
        }
    }
}

// === impl Seldom ===

impl Seldom {
    fn now(&mut self) -> bool {
        let now = Instant::now();
        let due = self.next.is_none_or(|next| now >= next);
        if due {
            self.next = Some(now + LOG_EVERY);
        }
        due
    }
}
