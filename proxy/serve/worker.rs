//! A worker: one thread, one runtime, its share of the connections.
//!
//! Nothing that belongs to a connection ever moves to another thread, so nothing of it needs a lock.

use std::convert::Infallible;
use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::thread::sched_getaffinity;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::debug;

use crate::answer::Answers;

use super::accept::Accepted;
use super::service::Shared;
use super::transport::Transport;
use super::{connection, door};

/// How many workers there are: one per CPU of our affinity mask, at most `cap`.
pub(super) fn count(cap: Option<std::num::NonZeroUsize>) -> usize {
    // The mask can be read by every process for itself; where it has more CPUs than the call can hold, one worker still serves.
    let cpus = sched_getaffinity(None).map_or(1, |mask| mask.count() as usize).max(1);
    cap.map_or(cpus, |cap| cap.get().min(cpus))
}

/// Starts a worker. It ends when no more connections can come (all senders are gone) and those that it has are closed.
///
/// `shared` makes what its connections share, on the worker's own thread.
pub(super) fn start<T, A>(
    name: String,
    shared: impl FnOnce() -> Shared<A> + Send + 'static,
    mut sockets: mpsc::UnboundedReceiver<Accepted>,
    stop: CancellationToken,
    alive: mpsc::Sender<Infallible>,
) -> io::Result<()>
where
    T: Transport,
    A: Answers,
{
    // The runtime cannot leave the thread that makes it, so what became of it has to be told.
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    std::thread::Builder::new().name(name).spawn(move || {
        let _alive = alive;
        let runtime = match Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(door::LOOKING)
            .build_local(LocalOptions::default())
        {
            Ok(runtime) => runtime,
            Err(error) => return drop(tell.send(Err(error))),
        };
        drop(tell.send(Ok(())));
        runtime.block_on(async {
            let shared = Rc::new(shared());
            let grace = shared.limits.grace;
            let connections = TaskTracker::new();
            while let Some(Accepted { socket, waiting }) = sockets.recv().await {
                let (open, stop) = (Open(Rc::clone(&shared)), stop.clone());
                connections.spawn_local(async move {
                    let caller = waiting.caller();
                    let Some((socket, admitted)) = open.0.enter(socket, waiting).await else { return };
                    match T::from_accepted(socket) {
                        Ok(socket) => connection::serve(socket, admitted, Rc::clone(&open.0), stop).await,
                        Err(error) => debug!(%error, "connection lost before it was served"),
                    }
                    open.0.left(caller);
                });
            }
            connections.close();
            // Each connection keeps to the grace by itself; the last may have come a moment after the others.
            let _ = tokio::time::timeout(grace + 2 * connection::LAST_WORDS, connections.wait()).await;
        });
    })?;
    told.recv().unwrap_or_else(|gone| Err(io::Error::other(gone)))
}

/// Counts a connection as open until dropped; the accepting thread has counted it in.
struct Open<A: Answers>(Rc<Shared<A>>);

// === impl Open ===

impl<A: Answers> Drop for Open<A> {
    fn drop(&mut self) {
        self.0.worker_stats().open.fetch_sub(1, Relaxed);
    }
}
