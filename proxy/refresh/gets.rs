//! Gets of pods that a fresh snapshot does not have: the kubelet is asked, once for all who ask the same.
//!
//! Which pod is next is decided fairly by client: whoever asks for one waits for one of each other client, not for a thousand of one.

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
use super::handle::{Forwarded, unreachable};
use super::view::Reach;
use crate::admission::Fair;
use crate::answer::{Answer, Freshness, Who};
use crate::grpc::{Code, Status, frame_message};
use crate::snapshot::PodList;
use crate::source::{Call, Failure, Upstream};

/// Gets under way at once; more wait.
const FLIGHTS: usize = 4;

/// Pods that wait for a flight, by all clients together. Beyond that the client that asks for most loses its last.
const MOST_WAITING: usize = 1024;

/// Pods that one client may wait for. A node starts fewer at once.
const MOST_OF_ONE: usize = 64;

/// Between two attempts of the same flight.
const PAUSE: Duration = Duration::from_millis(20);

/// Texts by which kubelets say that they have no Get (KEP-3695): the feature is off, or the method unknown.
const DISABLED: &str = "PodResources API Get method disabled";

/// One request that waits for the kubelet's word on one pod.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) who: Who,
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
        tokio::select! {
            job = jobs.recv() => match job {
                Some(job) => waiting.push(job),
                None => return,
            },
            Some(Ok(name)) = flights.join_next(), if !flights.is_empty() => {
                under_way.remove(&name);
            }
        }
    }
}

/// Jobs whose flight has not begun. A flight that has begun may know less than a job that arrives now, so nobody joins it: they all wait
/// for the next one for that pod.
#[derive(Debug)]
struct Waiting {
    jobs: HashMap<Name, Vec<Job>>,
    /// The pods, in each client's order; who asks for a pod that another asked for has it in its own.
    order: Fair<(u64, Name)>,
}

// === impl Waiting ===

impl Default for Waiting {
    fn default() -> Self {
        Self { jobs: HashMap::new(), order: Fair::new() }
    }
}

impl Waiting {
    fn push(&mut self, job: Job) {
        let (who, name) = (job.who, (job.namespace.clone(), job.name.clone()));
        let asked = self.jobs.get(&name).is_some_and(|jobs| jobs.iter().any(|job| job.who.id == who.id));
        if !asked {
            // Where nobody looks who a client is, all are one.
            let most = if who == Who::ANYBODY { MOST_WAITING } else { MOST_OF_ONE };
            if self.order.len_of(who) >= most || self.order.len() >= MOST_WAITING {
                self.drop_closed();
            }
            if self.order.len_of(who) >= most {
                return refuse(job);
            }
            self.order.push(who, (who.id, name.clone()));
        }
        self.jobs.entry(name).or_default().push(job);
        if self.order.len() > MOST_WAITING
            && let Some((id, name)) = self.order.shed()
        {
            self.drop_jobs(id, &name);
        }
    }

    /// The pod whose turn it is, save those under way, with all who ask for it.
    fn next(&mut self, under_way: &HashSet<Name>) -> Option<(Name, Vec<Job>)> {
        let (_, name) = self.order.pop(|(_, name)| !under_way.contains(name))?;
        self.order.retain(|(_, other)| *other != name);
        let jobs = self.jobs.remove(&name).unwrap_or_default();
        Some((name, jobs))
    }

    /// Lets go of those whose client has gone.
    fn drop_closed(&mut self) {
        self.jobs.retain(|_, jobs| {
            jobs.retain(|job| !job.reply.is_closed());
            !jobs.is_empty()
        });
        let jobs = &self.jobs;
        self.order.retain(|(id, name)| jobs.get(name).is_some_and(|jobs| jobs.iter().any(|job| job.who.id == *id)));
    }

    /// Refuses what one client has asked of one pod.
    fn drop_jobs(&mut self, id: u64, name: &Name) {
        let Some(jobs) = self.jobs.get_mut(name) else { return };
        jobs.extract_if(.., |job| job.who.id == id).for_each(refuse);
        if jobs.is_empty() {
            self.jobs.remove(name);
        }
    }
}

fn refuse(job: Job) {
    // Whoever has hung up meanwhile misses nothing.
    let _gone = job.reply.send(Err(too_many()));
}

/// What a client gets that asks for more unknown pods than can be forwarded for it.
pub(super) fn too_many() -> Status {
    Status::new(Code::ResourceExhausted, "podresources-proxy: too many Gets of unknown pods wait for the kubelet")
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
                    let freshness = Freshness { age: begun.elapsed(), epoch, source: upstream.source(), stale: false };
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

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    fn push(waiting: &mut Waiting, id: u64, name: &str) -> oneshot::Receiver<Result<Forwarded, Status>> {
        let (reply, answer) = oneshot::channel();
        let who = Who { id, weight: NonZeroU32::MIN };
        waiting.push(Job { who, namespace: "ns".to_owned(), name: name.to_owned(), epoch: 0, reply });
        answer
    }

    #[test]
    fn when_all_places_are_taken_it_is_not_the_newcomer_who_is_refused() {
        let mut waiting = Waiting::default();
        let floods: Vec<_> =
            (0..40 * MOST_OF_ONE).map(|at| push(&mut waiting, (at % 40) as u64, &format!("nobody-{at}"))).collect();
        assert_eq!(waiting.order.len(), MOST_WAITING);
        let mut newcomer = push(&mut waiting, 99, "mine");
        assert!(newcomer.try_recv().is_err(), "it waits");
        let kept = floods.into_iter().filter_map(|mut answer| answer.try_recv().err()).count();
        assert_eq!(kept, MOST_WAITING - 1);
        let before = std::iter::from_fn(|| waiting.next(&HashSet::new())).position(|((_, name), _)| name == "mine").unwrap();
        assert!(before <= 40, "{before}");
    }

    #[test]
    fn who_asks_for_the_same_pod_flies_along_whoevers_turn_it_is() {
        let mut waiting = Waiting::default();
        let _answers =
            [push(&mut waiting, 1, "a"), push(&mut waiting, 2, "a"), push(&mut waiting, 2, "a"), push(&mut waiting, 2, "b")];
        let flight = |waiting: &mut Waiting| waiting.next(&HashSet::new()).map(|((_, name), jobs)| (name, jobs.len()));
        assert_eq!(flight(&mut waiting), Some(("a".to_owned(), 3)));
        assert_eq!(flight(&mut waiting), Some(("b".to_owned(), 1)));
        assert_eq!(flight(&mut waiting), None);
    }
}
