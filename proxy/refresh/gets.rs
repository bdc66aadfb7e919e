//! Gets of pods that a fresh snapshot does not have: the kubelet is asked, once for all who ask the same.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Shared;
use super::budget::{Budget, Urgency};
use super::handle::Forwarded;
use super::view::Reach;
use crate::answer::{Answer, Freshness, Source};
use crate::grpc::{Code, Status, frame_message};
use crate::source::{Call, Failure, Upstream};

/// Gets under way at once; more wait.
const FLIGHTS: usize = 4;

/// Between two attempts of the same flight.
const PAUSE: Duration = Duration::from_millis(20);

/// Texts by which kubelets say that they have no Get (KEP-3695): the feature is off, or the method unknown.
const DISABLED: &str = "PodResources API Get method disabled";

/// One request that waits for the kubelet's word on one pod.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) namespace: String,
    pub(super) name: String,
    /// The epoch when it arrived.
    pub(super) epoch: u64,
    pub(super) reply: oneshot::Sender<Result<Forwarded, Status>>,
}

type Name = (String, String);

/// Forwards jobs until the channel closes.
pub(super) async fn forward<U: Upstream>(
    shared: Arc<Shared>,
    upstream: U,
    budget: Rc<RefCell<Budget>>,
    mut jobs: mpsc::Receiver<Job>,
) {
    // Not yet begun. A flight that has begun may know less than a job that arrives now, so nobody joins it: they all wait for the
    // next one for that pod.
    let mut waiting: HashMap<Name, Vec<Job>> = HashMap::new();
    let mut under_way: HashSet<Name> = HashSet::new();
    let mut flights = JoinSet::new();
    loop {
        while flights.len() < FLIGHTS {
            let Some(name) = waiting.keys().find(|name| !under_way.contains(name)).cloned() else { break };
            let jobs = waiting.remove(&name).unwrap_or_default();
            under_way.insert(name.clone());
            flights.spawn_local(fly(shared.clone(), upstream.clone(), budget.clone(), name, jobs));
        }
        tokio::select! {
            job = jobs.recv() => match job {
                Some(job) => waiting.entry((job.namespace.clone(), job.name.clone())).or_default().push(job),
                None => return,
            },
            Some(Ok(name)) = flights.join_next() => {
                under_way.remove(&name);
            }
        }
    }
}

async fn fly<U: Upstream>(shared: Arc<Shared>, upstream: U, budget: Rc<RefCell<Budget>>, pod: Name, mut jobs: Vec<Job>) -> Name {
    let (namespace, name) = &pod;
    shared.stats.forwarded.add();
    let result = loop {
        jobs.retain(|job| !job.reply.is_closed());
        let Some(newest) = jobs.iter().map(|job| job.epoch).max() else { return pod };
        if let Err(wait) = { budget.borrow_mut().take(Urgency::Waiter, Instant::now()) } {
            sleep(wait).await;
            continue;
        }
        let (epoch, begun) = (shared.epoch.now(), Instant::now());
        let reply = upstream.call(Call::Get { namespace, name }).await;
        shared.stats.called(2, &reply);
        match reply {
            Ok(message) => match frame_message(&message) {
                Some(framed) => {
                    let freshness = Freshness { age: begun.elapsed(), epoch, source: Source::Kubelet, stale: false };
                    break Ok(Forwarded::Answer(Answer { framed, freshness }));
                }
                None => break Err(Status::new(Code::ResourceExhausted, "the kubelet's reply does not fit a gRPC message")),
            },
            Err(Failure::Answered(status)) if is_off(&status) => break Ok(Forwarded::Off),
            Err(Failure::Answered(status)) => break Err(status),
            Err(Failure::TooLarge(text)) => break Err(Status::new(Code::ResourceExhausted, text)),
            Err(failure @ (Failure::Unreachable(_) | Failure::Lost(_))) => {
                if let Reach::Down { epoch, .. } = shared.view.load().reach
                    && epoch >= newest
                {
                    break Err(Status::new(
                        Code::Unavailable,
                        format!("podresources-proxy: the kubelet cannot be reached: {failure}"),
                    ));
                }
                sleep(PAUSE).await;
            }
            Err(Failure::RateLimited | Failure::Late(_)) => sleep(PAUSE).await,
        }
    };
    for job in jobs {
        // Whoever has hung up meanwhile misses nothing.
        let _gone = job.reply.send(result.clone());
    }
    pod
}

fn is_off(status: &Status) -> bool {
    status.code == Code::Unimplemented || (status.code == Code::Unknown && status.message == DISABLED)
}
