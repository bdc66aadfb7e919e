//! The simulated kubelet's life: its socket, its restarts, and pods that come and go.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rand::Rng;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{interval, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use super::node::AllocateError;
use super::pod::PodKey;
use super::service::call;
use super::simulator::StartError;
use super::state::{Shared, Stage};
use super::state_files::{File, StateFileError};
use crate::serve::mend::Mend;

/// One run of the kubelet, from a start to a stop.
pub(super) struct Instance {
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// Runs the streams of connections where a stop can wait for them.
#[derive(Clone)]
struct Tracked(TaskTracker);

/// Time for a socket's backlog to clear, or for a descriptor to come free.
const ACCEPT_RETRY: Duration = Duration::from_millis(10);

// === impl Shared ===

impl Shared {
    /// Binds the socket and serves it; what is known at first is `stage`.
    pub(super) async fn run(self: &Arc<Self>, stage: Stage) -> Result<(), StartError> {
        let mut instance = self.instance.lock().await;
        if instance.is_some() {
            return Ok(());
        }
        let listener = bind(&self.socket)?;
        *self.bound.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = identity(&self.socket);
        let next = Instance { stop: self.closed.child_token(), tasks: TaskTracker::new() };
        self.stage.send_replace(stage);
        next.tasks.spawn(Arc::clone(self).accept(listener, next.stop.clone(), next.tasks.clone()));
        if stage < Stage::Whole {
            next.tasks.spawn(next.stop.clone().run_until_cancelled_owned(Arc::clone(self).recover()));
        }
        *instance = Some(next);
        Ok(())
    }

    /// Closes the listener and all connections. The socket's file stays, dead.
    pub(super) async fn halt(&self) {
        let mut instance = self.instance.lock().await;
        if let Some(last) = instance.take() {
            last.stop.cancel();
            last.tasks.close();
            last.tasks.wait().await;
            self.stage.send_replace(Stage::Down);
        }
    }

    /// A kubelet's restart, until it knows everything again.
    pub(super) async fn restart(self: &Arc<Self>) -> Result<(), StartError> {
        self.halt().await;
        sleep(self.config.restart.down).await;
        self.run(Stage::Empty).await?;
        self.reach(Stage::Whole).await;
        Ok(())
    }

    /// Restarts for ever.
    pub(super) async fn restart_every(self: Arc<Self>, every: Duration) {
        loop {
            sleep(every).await;
            if let Err(error) = self.restart().await {
                warn!(error = &error as &dyn std::error::Error, "the simulated kubelet could not start again");
            }
        }
    }

    /// Replaces pods for ever, `churn` a second.
    pub(super) async fn churn(self: Arc<Self>) {
        let mut ticks = interval(Duration::from_secs_f64(1.0 / self.config.churn));
        loop {
            ticks.tick().await;
            // Nothing comes or goes as long as no kubelet knows its pods.
            if *self.stage.borrow() < Stage::Pods {
                self.reach(Stage::Pods).await;
                ticks.reset();
            }
            let (gone, next) = {
                let node = &mut self.state().node;
                let gone = node.some_running_pod().and_then(|key| node.remove(&key).ok());
                (gone, node.admit_next())
            };
            let shared = Arc::clone(&self);
            self.background.spawn(self.closed.clone().run_until_cancelled_owned(async move {
                if let Some(uid) = gone {
                    shared.log_failure(shared.let_go(&uid).await);
                }
            }));
            let shared = Arc::clone(&self);
            self.background.spawn(self.closed.clone().run_until_cancelled_owned(async move {
                let come = shared.come(&next, true).await;
                // It may have been removed by hand in the meantime.
                if let Ok(written) = come {
                    shared.log_failure(written);
                }
            }));
        }
    }

    /// Brings an admitted pod to all that it asks for, in the kubelet's order: each thing is granted first and written down then. A
    /// pod that cannot have it stays without (`make_do`), or is turned away.
    pub(super) async fn come(&self, key: &PodKey, make_do: bool) -> Result<Result<(), StateFileError>, AllocateError> {
        sleep(self.config.pod.admission).await;
        let allocated = self.state().node.allocate(key);
        allocated.or_else(|error| self.refuse(key, make_do, error))?;
        if let Err(error) = self.write(&[File::Devices, File::Cpus, File::Memory, File::AllocatedPods]) {
            return Ok(Err(error));
        }
        if self.state().node.pod(key).is_none_or(|pod| pod.request.containers.iter().all(|container| container.claims == 0)) {
            return self.state().node.finish(key).map(Ok);
        }
        sleep(self.config.pod.prepare).await;
        let prepared = self.state().node.finish(key);
        prepared.or_else(|error| self.refuse(key, make_do, error))?;
        Ok(self.write(&[File::Claims]))
    }

    /// Frees what a removed pod held, when the kubelet comes to it.
    pub(super) async fn let_go(&self, uid: &str) -> Result<(), StateFileError> {
        sleep(self.config.pod.release).await;
        self.state().node.release(uid);
        self.write(&File::ALL)
    }

    /// Writes state files as they should be now. Short writes without a sync: not worth a thread of their own.
    pub(super) fn write(&self, which: &[File]) -> Result<(), StateFileError> {
        let mut files = self.files.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some(files) = files.as_mut() else { return Ok(()) };
        for file in which {
            let content = file.render(&self.state().node);
            files.write(*file, &content)?;
        }
        Ok(())
    }

    fn refuse(&self, key: &PodKey, make_do: bool, error: AllocateError) -> Result<(), AllocateError> {
        let node = &mut self.state().node;
        if matches!(error, AllocateError::UnknownPod(_) | AllocateError::OutOfOrder(_)) {
            return Err(error);
        }
        if make_do {
            node.make_do(key);
            return Ok(());
        }
        node.turn_away(key);
        Err(error)
    }

    fn log_failure(&self, written: Result<(), StateFileError>) {
        if let Err(error) = written {
            warn!(error = &error as &dyn std::error::Error, root = ?self.config.root_dir, "a state file is out of date");
        }
    }

    /// What comes back after a start: first the pods, the devices of plugins last.
    async fn recover(self: Arc<Self>) {
        sleep(self.config.restart.empty).await;
        self.advance(Stage::Pods);
        sleep(self.config.restart.devices).await;
        self.advance(Stage::Whole);
        // A plugin that registers makes the kubelet write its checkpoint.
        self.log_failure(self.write(&[File::Devices]));
    }

    async fn accept(self: Arc<Self>, listener: UnixListener, stop: CancellationToken, tasks: TaskTracker) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.cancelled() => return,
            };
            match accepted {
                Ok((stream, _)) => {
                    tasks.spawn(Arc::clone(&self).connection(stream, stop.child_token(), tasks.clone()));
                }
                Err(error) => {
                    warn!(error = &error as &dyn std::error::Error, "the simulated kubelet cannot accept a connection");
                    sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }

    async fn connection(self: Arc<Self>, stream: UnixStream, stop: CancellationToken, tasks: TaskTracker) {
        let _open = self.counters.open();
        let service = service_fn(|request| call(Arc::clone(&self), stop.clone(), request));
        let connection = http2::Builder::new(Tracked(tasks)).timer(TokioTimer::new()).serve_connection(layered(stream), service);
        tokio::select! {
            // How a client leaves is its own affair.
            _ = connection => {}
            () = stop.cancelled() => {}
        }
        // Streams of this connection that still wait for something end too.
        stop.cancel();
    }
}

/// The accepted stream as HTTP/2 reads it: people point real clients here, whose `:authority` has to be mended.
fn layered(stream: UnixStream) -> TokioIo<Mend<UnixStream>> {
    TokioIo::new(Mend::new(stream))
}

// === impl Tracked ===

impl<F: Future<Output: Send> + Send + 'static> hyper::rt::Executor<F> for Tracked {
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}

/// Binds a temporary name in the same directory and renames it over `path`: as a kubelet does it, and with a new inode each time.
fn bind(path: &Path) -> Result<UnixListener, StartError> {
    let temporary = temporary_name(path);
    let listener = UnixListener::bind(&temporary).map_err(|source| StartError::Bind { path: temporary.clone(), source })?;
    match std::fs::rename(&temporary, path) {
        Ok(()) => Ok(listener),
        Err(source) => {
            // The rename is what is worth telling.
            drop(std::fs::remove_file(&temporary));
            Err(StartError::Rename { path: path.to_owned(), source })
        }
    }
}

/// Device and inode of what is at a path.
pub(super) fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Digits, as Go makes them for temporary files.
fn temporary_name(path: &Path) -> PathBuf {
    path.with_file_name(rand::rng().random_range(100_000_000..u32::MAX).to_string())
}
