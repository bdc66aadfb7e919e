//! The kubelet's Pods API: `WatchPods` (KEP-4188), a stream of pods added, modified and deleted.
//!
//! It comes after the kernel's own events and may drop some silently, so it is never the only source that matters. What it carries,
//! whole pods with their environment, is skipped unread. It alone says that a restarted kubelet knows all its pods again.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use http::uri::PathAndQuery;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::epoch::{Epoch, Kind};
use super::source::{PartReport, Source, State};
use crate::backoff::Backoff;
use crate::causes::with_causes;
use crate::client::{ConnectError, Connection, Limits};
use crate::proto::v1alpha1::{EventType, WatchPodsEvent, WatchPodsRequest};

/// Where the kubelet puts the socket, below its root directory.
const SOCKET: &str = "pods-api/pods-api.sock";

/// The method as later kubelets will have it, and as 1.36 and 1.37 do.
const METHODS: [&str; 2] = ["/v1beta1.Pods/WatchPods", "/v1alpha1.Pods/WatchPods"];

/// An event is one pod; etcd holds none above 1.5 MiB.
const LARGEST_EVENT: usize = 8 << 20;

/// How often a kubelet that does not know its pods yet is asked.
const INITIALIZING: Duration = Duration::from_millis(100);

/// The source `pods-api`.
#[derive(Debug)]
pub(super) struct PodsApi {
    shared: Arc<Shared>,
    stop: CancellationToken,
    epoch: OnceLock<Arc<Epoch>>,
    /// The thread has been started.
    started: AtomicBool,
}

#[derive(Debug)]
struct Shared {
    socket: PathBuf,
    state: Mutex<State>,
    events: AtomicU64,
    losses: AtomicU64,
    settled: watch::Sender<Option<Settled>>,
}

/// The kubelet knows all its pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// When the stream that says so was opened: it is the word of the kubelet that ran then.
    pub opened: Instant,
    /// When it said so.
    pub at: Instant,
}

/// Why a stream ended, or never began.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("{}", .0.message())]
    Status(#[source] Status),
    #[error("the kubelet has ended the stream")]
    Ended,
}

// === impl PodsApi ===

impl PodsApi {
    /// Follows the pods of the kubelet with this root directory, once there is an epoch.
    pub(super) fn new(root_dir: &Path) -> Self {
        let state = State::Absent { why: "not asked yet".to_owned() };
        let shared = Shared {
            socket: root_dir.join(SOCKET),
            state: Mutex::new(state),
            events: AtomicU64::new(0),
            losses: AtomicU64::new(0),
            settled: watch::channel(None).0,
        };
        Self { shared: Arc::new(shared), stop: CancellationToken::new(), epoch: OnceLock::new(), started: AtomicBool::new(false) }
    }
}

impl Source for PodsApi {
    fn name(&self) -> &'static str {
        "pods-api"
    }

    fn parts(&self) -> Vec<PartReport> {
        let shared = &self.shared;
        vec![PartReport {
            name: "watch".to_owned(),
            state: shared.state().clone(),
            events: shared.events.load(Ordering::Relaxed),
            losses: shared.losses.load(Ordering::Relaxed),
        }]
    }

    fn begin(&self, epoch: &Arc<Epoch>) {
        // Called once; and no thread may be started yet: it would have rights that are about to be dropped.
        let _first = self.epoch.set(epoch.clone());
    }

    /// It mends itself, see [`Shared::follow`], once its thread has been started.
    fn mend(&self, _: &Epoch) {
        let Some(epoch) = self.epoch.get().cloned() else { return };
        if self.started.swap(true, Ordering::Relaxed) {
            return;
        }
        let (shared, stop) = (self.shared.clone(), self.stop.clone());
        let thread =
            std::thread::Builder::new().name("pods-api".to_owned()).spawn(
                move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                    Ok(runtime) => _ = runtime.block_on(stop.run_until_cancelled(shared.follow(&epoch))),
                    Err(error) => shared.now(refused(&error)),
                },
            );
        if let Err(error) = thread {
            self.shared.now(refused(&error));
            self.started.store(false, Ordering::Relaxed);
        }
    }

    fn settled(&self) -> Option<watch::Receiver<Option<Settled>>> {
        Some(self.shared.settled.subscribe())
    }
}

impl Drop for PodsApi {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

// === impl Shared ===

impl Shared {
    /// One stream after the other.
    async fn follow(&self, epoch: &Epoch) {
        let mut backoff = Backoff::default();
        loop {
            let end = self.stream(epoch, &mut backoff).await;
            self.settled.send_replace(None);
            let before = self.state().clone();
            let attached = before == State::Attached;
            let state = match before {
                State::Attached | State::Lost { .. } => State::Lost { why: end.to_string() },
                State::Refused { .. } | State::Absent { .. } => self.state_after(&end),
            };
            let pause = match &end {
                // The kubelet is coming up: soon it will say that it is settled.
                End::Status(status) if status.code() == Code::FailedPrecondition => INITIALIZING,
                _ => backoff.failed(rand::random()),
            };
            if attached {
                tracing::info!(why = %end, "the kubelet's Pods API stream is lost");
                self.losses.fetch_add(1, Ordering::Relaxed);
                epoch.bump(Kind::List);
            }
            self.now(state);
            sleep(pause).await;
        }
    }

    /// One stream, from its opening to its end.
    async fn stream(&self, epoch: &Epoch, backoff: &mut Backoff) -> End {
        let opened = Instant::now();
        let mut stream = match self.open().await {
            Ok(stream) => stream,
            Err(end) => return end,
        };
        let mut synced = false;
        loop {
            let kind = match stream.message().await {
                Ok(Some(event)) => event.r#type(),
                Ok(None) => return End::Ended,
                Err(status) => return End::Status(status),
            };
            match kind {
                EventType::InitialSyncComplete => {
                    synced = true;
                    backoff.reset();
                    self.now(State::Attached);
                    // Nobody heard what happened before.
                    epoch.bump(Kind::List);
                    self.settled.send_replace(Some(Settled { opened, at: Instant::now() }));
                }
                // The pods that there are: told as one, when all are.
                EventType::Added if !synced => {}
                // An unknown kind is a change too.
                EventType::Added | EventType::Modified | EventType::Deleted | EventType::Unspecified => {
                    self.events.fetch_add(1, Ordering::Relaxed);
                    epoch.bump(Kind::List);
                }
            }
        }
    }

    async fn open(&self) -> Result<Streaming<WatchPodsEvent>, End> {
        let limits = Limits { max_reply: LARGEST_EVENT, ..Limits::default() };
        let connection = Connection::connect(&self.socket, limits).await?;
        let mut client = connection.grpc();
        let mut last = Status::unimplemented("WatchPods");
        for method in METHODS {
            if let Err(error) = client.ready().await {
                return Err(End::Status(Status::unavailable(with_causes(&error))));
            }
            let codec = ProstCodec::<WatchPodsRequest, WatchPodsEvent>::default();
            let request = Request::new(WatchPodsRequest {});
            match client.server_streaming(request, PathAndQuery::from_static(method), codec).await {
                Ok(response) => return Ok(response.into_inner()),
                Err(status) if status.code() == Code::Unimplemented => last = status,
                Err(status) => return Err(End::Status(status)),
            }
        }
        Err(End::Status(last))
    }

    fn state_after(&self, end: &End) -> State {
        match end {
            End::Connect(ConnectError::NoSuchFile(_)) => State::Absent {
                why: format!("no {}: Kubernetes 1.37, or 1.36 with the feature gate PodsAPI", self.socket.display()),
            },
            End::Connect(ConnectError::PermissionDenied(_)) => {
                State::Refused { why: end.to_string(), grant: "run as root, or grant CAP_DAC_OVERRIDE".to_owned() }
            }
            End::Connect(_) | End::Status(_) | End::Ended => State::Absent { why: end.to_string() },
        }
    }

    fn now(&self, state: State) {
        *self.state() = state;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refused(error: &std::io::Error) -> State {
    State::Refused {
        why: format!("cannot start a thread: {error}"),
        grant: "raise the limit on threads or file descriptors".to_owned(),
    }
}

#[cfg(test)]
mod tests;
