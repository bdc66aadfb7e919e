//! A kubelet in memory, for the refresher's tests: no socket, virtual time.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::grpc::{Code, Status};
use crate::proto::{v1, v1alpha1};
use crate::source::{Call, Failure, Reply, Upstream};

#[derive(Clone, Debug, Default)]
pub(super) struct FakeKubelet(Rc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: RefCell<State>,
    ended: Notify,
}

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a thing of its own that a test turns on")]
pub(super) struct State {
    /// Nobody listens.
    pub(super) down: bool,
    /// Accepts, never answers.
    pub(super) hangs: bool,
    pub(super) latency: Duration,
    /// Pods as (name, device ids), all in namespace "ns".
    pub(super) pods: Vec<(&'static str, Vec<&'static str>)>,
    pub(super) devices: Vec<&'static str>,
    /// Served in place of the pods.
    pub(super) raw_list: Option<Bytes>,
    /// The next calls of any method end so.
    pub(super) failures: VecDeque<Failure>,
    pub(super) allocatable_error: Option<Status>,
    /// GetAllocatableResources alone is never answered.
    pub(super) allocatable_hangs: bool,
    pub(super) get_error: Option<Status>,
    pub(super) alpha_error: Option<Status>,
    /// The calls that arrived.
    pub(super) calls: Vec<(Instant, String)>,
    /// What tells this server from others.
    pub(super) server: Option<&'static str>,
    /// At the very moment of the next List's reply somebody else finds the connection gone and makes another.
    pub(super) redialled_after_list: bool,
    connected: bool,
    connections: u64,
}

impl FakeKubelet {
    pub(super) fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.state.borrow_mut())
    }

    /// The process ends: connections drop, nobody listens.
    pub(super) fn kill(&self) {
        self.with(|state| {
            state.down = true;
            state.connected = false;
        });
        self.0.ended.notify_waiters();
    }

    pub(super) fn calls(&self, method: &str) -> usize {
        self.with(|state| state.calls.iter().filter(|(_, call)| call == method).count())
    }
}

impl State {
    fn pod(&self, name: &str) -> Option<v1::PodResources> {
        let (name, devices) = self.pods.iter().find(|(pod, _)| *pod == name)?;
        let devices = devices.iter().map(|id| device(id)).collect();
        let container = v1::ContainerResources { name: "c".to_owned(), devices, ..Default::default() };
        Some(v1::PodResources {
            name: (*name).to_owned(),
            namespace: "ns".to_owned(),
            containers: vec![container],
            ..Default::default()
        })
    }

    fn reply(&mut self, call: &Call<'_>) -> Result<Bytes, Failure> {
        if let Some(failure) = self.failures.pop_front() {
            return Err(failure);
        }
        let bytes = match call {
            Call::List => {
                if let Some(raw) = &self.raw_list {
                    return Ok(raw.clone());
                }
                let pod_resources = self.pods.iter().filter_map(|(name, _)| self.pod(name)).collect();
                v1::ListPodResourcesResponse { pod_resources }.encode_to_vec()
            }
            Call::Allocatable => match &self.allocatable_error {
                Some(status) => return Err(Failure::Answered(status.clone())),
                None => v1::AllocatableResourcesResponse {
                    devices: self.devices.iter().map(|id| device(id)).collect(),
                    ..Default::default()
                }
                .encode_to_vec(),
            },
            Call::Get { name, namespace } => match (&self.get_error, self.pod(name)) {
                (Some(status), _) => return Err(Failure::Answered(status.clone())),
                (None, Some(pod)) => v1::GetPodResourcesResponse { pod_resources: Some(pod) }.encode_to_vec(),
                (None, None) => {
                    let text = format!("pod {name} in namespace {namespace} not found");
                    return Err(Failure::Answered(Status::new(Code::Unknown, text)));
                }
            },
            Call::AlphaList => {
                if let Some(status) = &self.alpha_error {
                    return Err(Failure::Answered(status.clone()));
                }
                let pod = |(name, _): &(&str, Vec<&str>)| v1alpha1::PodResources {
                    name: (*name).to_owned(),
                    namespace: "ns".to_owned(),
                    ..Default::default()
                };
                v1alpha1::ListPodResourcesResponse { pod_resources: self.pods.iter().map(pod).collect() }.encode_to_vec()
            }
        };
        Ok(bytes.into())
    }
}

impl Upstream for FakeKubelet {
    async fn connect(&self) -> Result<(), Failure> {
        self.with(|state| {
            if state.down {
                return Err(Failure::Unreachable("nobody listens".to_owned()));
            }
            if !state.connected {
                state.connected = true;
                state.connections += 1;
            }
            Ok(())
        })
    }

    async fn call(&self, call: Call<'_>) -> Result<Reply, Failure> {
        self.connect().await?;
        let (latency, connection) = self.with(|state| {
            let name = match call {
                Call::List => "List",
                Call::Allocatable => "Allocatable",
                Call::Get { .. } => "Get",
                Call::AlphaList => "AlphaList",
            };
            state.calls.push((Instant::now(), name.to_owned()));
            (state.latency, state.connections)
        });
        // As of the moment when the call arrives: what changes later is not in it.
        let reply = self.with(|state| state.reply(&call)).map(|message| Reply { message, connection });
        let answer = async {
            sleep(latency).await;
            if self.with(|state| state.hangs || (state.allocatable_hangs && call == Call::Allocatable)) {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = answer => {
                if call == Call::List && self.with(|state| std::mem::take(&mut state.redialled_after_list)) {
                    self.with(|state| state.connections += 1);
                }
                reply
            }
            () = self.0.ended.notified() => Err(Failure::Lost("the connection was closed".to_owned())),
            () = sleep(Duration::from_secs(10)) => Err(Failure::Late(Duration::from_secs(10))),
        }
    }

    fn connections(&self) -> u64 {
        self.with(|state| state.connections)
    }

    fn server(&self) -> Option<Arc<str>> {
        self.with(|state| state.server.map(Arc::from))
    }

    fn drop_if_replaced(&self) -> bool {
        false
    }

    async fn closed(&self) {
        if self.with(|state| state.connected) {
            self.0.ended.notified().await;
        } else {
            std::future::pending::<()>().await;
        }
    }
}

fn device(id: &str) -> v1::ContainerDevices {
    v1::ContainerDevices { resource_name: "example.com/device".to_owned(), device_ids: vec![id.to_owned()], topology: None }
}
