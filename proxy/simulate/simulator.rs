//! The handle on a running stand-in.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::net::UnixStream;
use tokio_util::sync::DropGuard;

use super::config::{Config, ConfigError};
use super::fault::Fault;
use super::lifecycle::identity;
use super::node::{AllocateError, Node};
use super::pod::{PodKey, PodRequest};
use super::recorded::{self, RecordedError};
use super::service::Method;
use super::state::{Shared, Stage};
use super::state_files::{File, StateFileError, StateFiles};
use super::sysfs;

/// A kubelet stand-in. Clones are handles on the same one; it ends with the last of them.
#[derive(Clone)]
pub struct Simulator {
    shared: Arc<Shared>,
    /// Ends all tasks; they hold `shared`, so that alone would never end them.
    _ends_tasks: Arc<DropGuard>,
}

/// The stand-in cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The recorded reply cannot be used.
    #[error(transparent)]
    Recorded(#[from] RecordedError),
    /// The kubelet's root directory cannot be kept.
    #[error(transparent)]
    StateFile(#[from] StateFileError),
    /// Somebody serves that socket.
    #[error("{path} is served by a living process: stop it, or choose another socket")]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// There is something else in the socket's place.
    #[error("{path} is there and is not a socket: move it away, or choose another path")]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The temporary socket cannot be bound.
    #[error("cannot bind a socket at {path}: its directory must exist, be writable, and the path be shorter than 108 bytes")]
    Bind {
        /// The temporary name.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The socket cannot be put in its place.
    #[error("cannot rename a socket to {path}")]
    Rename {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A pod did not come or go as it should.
#[derive(Debug, thiserror::Error)]
pub enum PodError {
    /// The node says no.
    #[error(transparent)]
    Allocate(#[from] AllocateError),
    /// It did, and a state file does not tell.
    #[error(transparent)]
    StateFile(#[from] StateFileError),
}

// === impl Simulator ===

impl Simulator {
    /// Starts a kubelet that knows everything at once. Its tasks run on the current runtime.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        config.check()?;
        let socket = config.socket()?;
        let list = config.from.as_deref().map(recorded::load).transpose()?;
        let files = config.root_dir.as_deref().map(StateFiles::create).transpose()?;
        vacant(&socket, config.replace).await?;
        let shared = Arc::new(Shared::new(config, socket, list, files));
        shared.write(&File::ALL)?;
        if let (Some(root), None) = (&shared.config.root_dir, &shared.config.from) {
            sysfs::write(root, shared.state().node.inventory())?;
        }
        let ends_tasks = Arc::new(shared.closed.clone().drop_guard());
        shared.run(Stage::Whole).await?;
        if shared.config.churn > 0.0 {
            shared.background.spawn(shared.closed.clone().run_until_cancelled_owned(Arc::clone(&shared).churn()));
        }
        if let Some(every) = shared.config.restart_every {
            shared.background.spawn(shared.closed.clone().run_until_cancelled_owned(Arc::clone(&shared).restart_every(every)));
        }
        Ok(Self { shared, _ends_tasks: ends_tasks })
    }

    /// Where it serves.
    pub fn socket(&self) -> &Path {
        &self.shared.socket
    }

    /// Admits a pod and sees it through to all that it asks for; a kubelet that is down does so when it is back. A pod that cannot
    /// have what it asks for is turned away.
    pub async fn add_pod(&self, request: PodRequest) -> Result<(), PodError> {
        self.shared.reach(Stage::Pods).await;
        let key = request.key.clone();
        self.shared.state().node.admit(request)?;
        Ok(self.shared.come(&key, false).await??)
    }

    /// The same with an invented pod; where the node is full, it makes do with less.
    pub async fn add_some_pod(&self) -> Result<PodKey, PodError> {
        self.shared.reach(Stage::Pods).await;
        let key = self.shared.state().node.admit_next();
        self.shared.come(&key, true).await??;
        Ok(key)
    }

    /// Takes a pod out of every answer at once, and returns when what it held is free.
    pub async fn remove_pod(&self, key: &PodKey) -> Result<(), PodError> {
        let uid = self.shared.state().node.remove(key)?;
        Ok(self.shared.let_go(&uid).await?)
    }

    /// Ends a pod: it holds nothing any more, and the kubelet knows it still.
    pub fn terminate_pod(&self, key: &PodKey) -> Result<(), PodError> {
        self.shared.state().node.terminate(key)?;
        Ok(self.shared.write(&File::ALL)?)
    }

    /// Makes the device of this id sick or well, which its plugin reports; whether there is one.
    pub fn set_device_health(&self, id: &str, healthy: bool) -> Result<bool, StateFileError> {
        let found = self.shared.state().node.set_device_health(id, healthy);
        self.shared.write(&[File::Devices])?;
        Ok(found)
    }

    /// The node as it is now.
    pub fn node(&self) -> Node {
        self.shared.state().node.clone()
    }

    /// Serves this message (without prefix) to each List; Get, Allocatable and `v1alpha1` List follow from it unless set too.
    pub fn set_list(&self, message: Bytes) {
        self.set_reply(Method::List, Some(message));
    }

    /// Serves this message (without prefix) to each GetAllocatableResources.
    pub fn set_allocatable(&self, message: Bytes) {
        self.set_reply(Method::Allocatable, Some(message));
    }

    /// Serves this message (without prefix) to each call of the method; `None`: what the node says, as before.
    pub fn set_reply(&self, method: Method, message: Option<Bytes>) {
        self.shared.state().set_raw(method, message);
    }

    /// Restarts as a kubelet does, and returns when it knows everything again. Given up half way, it may stay down.
    pub async fn restart(&self) -> Result<(), StartError> {
        self.shared.restart().await
    }

    /// Stops serving: all connections end, and the socket's file stays, dead.
    pub async fn stop(&self) {
        self.shared.halt().await;
    }

    /// Serves again after a stop, as a starting kubelet does: nothing is known at first. [`Simulator::reach`] waits for more.
    pub async fn start_again(&self) -> Result<(), StartError> {
        self.shared.run(Stage::Empty).await
    }

    /// How far the kubelet is.
    pub fn stage(&self) -> Stage {
        *self.shared.stage.borrow()
    }

    /// Until the kubelet is at least that far.
    pub async fn reach(&self, stage: Stage) {
        self.shared.reach(stage).await;
    }

    /// Lets a starting kubelet know as much at once, whatever the times in its config say. Never back, and not while it is down.
    pub fn advance(&self, stage: Stage) {
        self.shared.advance(stage);
    }

    /// Takes calls and does not answer them; off again, they get their answers.
    pub fn hang(&self, hang: bool) {
        self.shared.hang.send_replace(hang);
    }

    /// Waits before each answer.
    pub fn set_latency(&self, latency: Duration) {
        self.shared.state().latency = latency;
    }

    /// Has something go wrong with coming calls, after what was asked for before. Calls over the rate limit do not count.
    pub fn fail(&self, fault: impl Into<Fault>) {
        self.shared.state().faults.push(fault.into());
    }

    /// No more faults.
    pub fn clear_faults(&self) {
        self.shared.state().faults.clear();
    }

    /// Calls of a method so far, those over the rate limit among them.
    pub fn calls(&self, method: Method) -> u64 {
        self.shared.counters.calls(method)
    }

    /// Calls over the rate limit so far.
    pub fn refused(&self) -> u64 {
        self.shared.counters.refused()
    }

    /// Connections so far.
    pub fn accepted(&self) -> u64 {
        self.shared.counters.accepted()
    }

    /// Open connections.
    pub fn connections(&self) -> usize {
        self.shared.counters.connections()
    }

    /// Ends everything and removes the socket's file.
    pub async fn close(self) {
        self.shared.closed.cancel();
        self.shared.background.close();
        self.shared.background.wait().await;
        self.shared.halt().await;
        // It may be gone, with its directory, or be another's by now.
        let bound = *self.shared.bound.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if bound.is_some() && bound == identity(&self.shared.socket) {
            drop(std::fs::remove_file(&self.shared.socket));
        }
    }
}

/// Whether the socket's place may be taken: there is nothing, or a socket that nobody serves.
async fn vacant(path: &Path, replace: bool) -> Result<(), StartError> {
    match std::fs::symlink_metadata(path) {
        Ok(there) if !there.file_type().is_socket() => Err(StartError::NotASocket { path: path.to_owned() }),
        Ok(_) if !replace && UnixStream::connect(path).await.is_ok() => Err(StartError::InUse { path: path.to_owned() }),
        // A directory that cannot be read shows when the socket is bound.
        Ok(_) | Err(_) => Ok(()),
    }
}
