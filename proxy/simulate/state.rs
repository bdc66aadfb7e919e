//! What all tasks of the stand-in share, and the answer to each call from it.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::config::Config;
use super::counters::Counters;
use super::fault::Faults;
use super::lifecycle::Instance;
use super::limiter::Limiter;
use super::node::Node;
use super::pod::PodKey;
use super::profile::{Features, Support};
use super::service::Method;
use super::state_files::StateFiles;
use super::{recorded, reply};
use crate::grpc::{Code, Status};
use crate::proto::v1;

/// How far the simulated kubelet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Nobody listens.
    Down,
    /// It listens and knows no pods and no devices yet.
    Empty,
    /// It knows its pods; no plugin has registered.
    Pods,
    /// It knows everything.
    Whole,
}

/// Shared by the handle, the connections and the tasks in the background.
pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) features: Features,
    pub(super) socket: PathBuf,
    /// Which file it was when it was bound last: another process may have put its own there.
    pub(super) bound: Mutex<Option<(u64, u64)>>,
    pub(super) stage: watch::Sender<Stage>,
    pub(super) hang: watch::Sender<bool>,
    pub(super) counters: Counters,
    /// The running kubelet; starts and stops take turns here.
    pub(super) instance: tokio::sync::Mutex<Option<Instance>>,
    /// Locked around rendering and writing, so that a file never goes back in time. Taken before `state`.
    pub(super) files: Mutex<Option<StateFiles>>,
    /// The end of everything.
    pub(super) closed: CancellationToken,
    /// Churn, and restarts.
    pub(super) background: TaskTracker,
    state: Mutex<State>,
}

/// What a call reads and changes.
pub(super) struct State {
    pub(super) node: Node,
    /// Orders of answers; apart from the node's own dice, so that callers do not change which pods come.
    rng: SmallRng,
    limiter: Option<Limiter>,
    pub(super) faults: Faults,
    pub(super) latency: Duration,
    /// Replies given by hand, by method.
    raw: [Option<Bytes>; Method::ALL.len()],
}

// === impl Shared ===

impl Shared {
    pub(super) fn new(config: Config, socket: PathBuf, list: Option<Bytes>, files: Option<StateFiles>) -> Self {
        let features = config.features();
        let mut state = State {
            node: Node::new(&config.node()),
            rng: SmallRng::seed_from_u64(!config.seed),
            limiter: config.rate.filter(|_| features.rate_limit).map(|rate| Limiter::new(rate, Instant::now())),
            faults: Faults::default(),
            latency: config.latency,
            raw: [const { None }; Method::ALL.len()],
        };
        state.set_raw(Method::List, list);
        Self {
            features,
            socket,
            bound: Mutex::new(None),
            stage: watch::Sender::new(Stage::Down),
            hang: watch::Sender::new(config.hang),
            counters: Counters::default(),
            instance: tokio::sync::Mutex::new(None),
            files: Mutex::new(files),
            closed: CancellationToken::new(),
            background: TaskTracker::new(),
            state: Mutex::new(state),
            config,
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A running kubelet is that far now, or farther.
    pub(super) fn advance(&self, to: Stage) {
        self.stage.send_if_modified(|now| {
            let on = *now != Stage::Down && *now < to;
            if on {
                *now = to;
            }
            on
        });
    }

    /// Until the kubelet is at least that far.
    pub(super) async fn reach(&self, stage: Stage) {
        // Fails only when the sender is gone, and it is ours.
        drop(self.stage.subscribe().wait_for(|now| *now >= stage).await);
    }
}

// === impl State ===

impl State {
    pub(super) fn set_raw(&mut self, method: Method, reply: Option<Bytes>) {
        self.raw[method as usize] = reply;
    }

    /// Takes a token of the one bucket.
    pub(super) fn grant(&mut self, now: Instant) -> bool {
        self.limiter.as_mut().is_none_or(|limiter| limiter.take(now))
    }

    /// The message that answers a call, built anew.
    pub(super) fn answer(&mut self, method: Method, pod: &PodKey, features: &Features, stage: Stage) -> Result<Bytes, Status> {
        supported(method, features)?;
        let raw = self.raw[method as usize].clone();
        let list = self.raw[Method::List as usize].clone();
        match method {
            Method::List | Method::AlphaList if stage < Stage::Pods => Ok(Bytes::new()),
            Method::Get if stage < Stage::Pods => Err(not_found(pod)),
            Method::Allocatable => Ok(self.allocatable(raw, list.as_ref(), features, stage >= Stage::Whole)),
            Method::List => Ok(raw.unwrap_or_else(|| encode(&reply::list(&self.node, features, &mut self.rng)))),
            Method::AlphaList => Ok(match (raw, &list) {
                (Some(raw), _) => raw,
                (None, Some(list)) => encode(&recorded::alpha_list(list)),
                (None, None) => encode(&reply::alpha_list(&self.node, &mut self.rng)),
            }),
            Method::Get => match (raw, &list) {
                (Some(raw), _) => Some(raw),
                (None, Some(list)) => recorded::get(list, pod),
                (None, None) => reply::get(&self.node, features, pod, &mut self.rng).map(|reply| encode(&reply)),
            }
            .ok_or_else(|| not_found(pod)),
        }
    }

    fn allocatable(&mut self, raw: Option<Bytes>, list: Option<&Bytes>, features: &Features, registered: bool) -> Bytes {
        let given = match (raw, list) {
            (Some(raw), _) if registered => return raw,
            // Bytes that are no reply at all go out as they are even now.
            (Some(raw), _) => match v1::AllocatableResourcesResponse::decode(raw.clone()) {
                Ok(reply) => reply,
                Err(_) => return raw,
            },
            (None, Some(list)) => recorded::allocatable(list),
            (None, None) => return encode(&reply::allocatable(&self.node, features, registered, &mut self.rng)),
        };
        let devices = if registered { given.devices } else { Vec::new() };
        encode(&v1::AllocatableResourcesResponse { devices, ..given })
    }
}

fn encode(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}

/// The kubelet's own words for a method that is switched off; for one that it does not have, those of its gRPC library.
fn supported(method: Method, features: &Features) -> Result<(), Status> {
    match method {
        Method::Get if features.get == Support::Off => Err(Status::new(Code::Unknown, "PodResources API Get method disabled")),
        Method::Allocatable if features.allocatable == Support::Off => Err(Status::new(Code::Unknown, features.allocatable_off)),
        _ => Ok(()),
    }
}

fn not_found(pod: &PodKey) -> Status {
    Status::new(Code::Unknown, format!("pod {} in namespace {} not found", pod.name, pod.namespace))
}
