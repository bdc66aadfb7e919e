//! Gets of pods that a fresh snapshot does not have: the kubelet is asked, once for all who ask the same.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Shared;
use super::budget::{Budget, Urgency};
use super::handle::{Forwarded, unreachable};
use super::view::Reach;
use crate::answer::{Answer, Freshness, Source};
use crate::grpc::{Code, Status, frame_message};
use crate::snapshot::PodList;
use crate::source::{Call, Failure, Upstream};

/// Gets under way at once; more wait.
const FLIGHTS: usize = 4;

/// Jobs that wait for a flight; further ones wait in the channel, and are refused when that is full.
const MOST_WAITING: usize = 1024;

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
    let mut waiting = Waiting::default();
    let mut under_way: HashSet<Name> = HashSet::new();
    let mut flights = JoinSet::new();
    loop {
        while flights.len() < FLIGHTS {
            let Some((name, jobs)) = waiting.next(&under_way) else { break };
            under_way.insert(name.clone());
            flights.spawn_local(fly(shared.clone(), upstream.clone(), budget.clone(), name, jobs));
        }
        if waiting.count >= MOST_WAITING {
            waiting.drop_closed();
        }
        tokio::select! {
            job = jobs.recv(), if waiting.count < MOST_WAITING => match job {
                Some(job) => waiting.push(job),
                None => return,
            },
            Some(Ok(name)) = flights.join_next(), if !flights.is_empty() => {
                under_way.remove(&name);
            }
            // Full, and nobody flies: those who hang up make room.
            () = sleep(PAUSE), if waiting.count >= MOST_WAITING => {}
        }
    }
}

/// Jobs whose flight has not begun, in the order in which their pods were first asked for. A flight that has begun may know less than a
/// job that arrives now, so nobody joins it: they all wait for the next one for that pod.
#[derive(Debug, Default)]
struct Waiting {
    jobs: HashMap<Name, Vec<Job>>,
    order: VecDeque<Name>,
    /// All jobs together.
    count: usize,
}

// === impl Waiting ===

impl Waiting {
    fn push(&mut self, job: Job) {
        let name = (job.namespace.clone(), job.name.clone());
        let jobs = self.jobs.entry(name).or_insert_with_key(|name| {
            self.order.push_back(name.clone());
            Vec::new()
        });
        jobs.push(job);
        self.count += 1;
    }

    /// The pod that was asked for first, save those under way.
    fn next(&mut self, under_way: &HashSet<Name>) -> Option<(Name, Vec<Job>)> {
        let place = self.order.iter().position(|name| !under_way.contains(name))?;
        let name = self.order.remove(place)?;
        let jobs = self.jobs.remove(&name).unwrap_or_default();
        self.count -= jobs.len();
        Some((name, jobs))
    }

    /// Lets go of those whose client has gone.
    fn drop_closed(&mut self) {
        self.jobs.retain(|_, jobs| {
            jobs.retain(|job| !job.reply.is_closed());
            !jobs.is_empty()
        });
        self.order.retain(|name| self.jobs.contains_key(name));
        self.count = self.jobs.values().map(Vec::len).sum();
    }
}

async fn fly<U: Upstream>(shared: Arc<Shared>, upstream: U, budget: Rc<RefCell<Budget>>, pod: Name, mut jobs: Vec<Job>) -> Name {
    let (namespace, name) = &pod;
    shared.stats.forwarded.add();
    let result = loop {
        jobs.retain(|job| !job.reply.is_closed());
        let Some(newest) = jobs.iter().map(|job| job.epoch).max() else { return pod };
        // Dialled before anything is paid: an attempt that meets nobody is no call.
        let connected = upstream.connect().await;
        if connected.is_ok() {
            let taken = budget.borrow_mut().take(Urgency::Forward, Instant::now());
            if let Err(wait) = taken {
                sleep(wait).await;
                continue;
            }
        }
        let (epoch, begun) = (shared.epoch.now(), Instant::now());
        let reply = match connected {
            Ok(()) => upstream.call(Call::Get { namespace, name }).await,
            Err(failure) => Err(failure),
        };
        shared.called(2, &reply);
        match reply {
            // The pod has the tag that it has in List, so the reply reads as a List of one.
            Ok(reply) if PodList::build(&reply.message).is_err() => {
                shared.stats.malformed.add();
                break Err(unusable("it does not parse"));
            }
            Ok(reply) => match frame_message(&reply.message) {
                Some(framed) => {
                    let freshness = Freshness { age: begun.elapsed(), epoch, source: Source::Kubelet, stale: false };
                    break Ok(Forwarded::Answer(Answer { framed, freshness }));
                }
                None => break Err(Status::new(Code::ResourceExhausted, "the kubelet's reply does not fit a gRPC message")),
            },
            Err(Failure::Answered(status)) if is_off(&status) => break Ok(Forwarded::Off),
            Err(Failure::Answered(status)) => break Err(status),
            Err(Failure::Broken(text)) => break Err(unusable(&text)),
            Err(Failure::TooLarge(text)) => break Err(Status::new(Code::ResourceExhausted, text)),
            Err(Failure::Unreachable(_) | Failure::Lost(_)) => {
                let view = shared.view.load_full();
                if let Reach::Down { epoch, .. } = view.reach
                    && epoch >= newest
                {
                    break Err(unreachable(&view.reach, Instant::now(), "so nobody can say whether it has this pod"));
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

fn unusable(why: &str) -> Status {
    Status::new(Code::Unavailable, format!("podresources-proxy: the kubelet's reply to Get cannot be used: {why}"))
}

fn is_off(status: &Status) -> bool {
    status.code == Code::Unimplemented || (status.code == Code::Unknown && status.message == DISABLED)
}
