//! A queue that is fair by client: start-time fair queueing (Goyal, Vin, Cheng 1996) over whole jobs.
//!
//! Whoever asks for little is served soon, however much the others ask for; where all ask for more than there is, each gets a part by its
//! weight. Pure: no clock, no I/O.

use std::collections::{HashMap, VecDeque};

use crate::answer::Who;

/// Jobs that wait, in a fair order.
#[derive(Debug)]
pub(crate) struct Fair<T> {
    flows: HashMap<u64, Flow<T>>,
    /// The start tag of the job that was served last.
    now: u64,
    /// Jobs so far, to put those of the same tag in the order in which they came.
    count: u64,
    waiting: usize,
}

/// One client's jobs, in the order in which they came. Each takes as much virtual time as any other of it.
#[derive(Debug)]
struct Flow<T> {
    jobs: VecDeque<T>,
    /// The start tag of the first job; where none waits, when the last one ends.
    start: u64,
    cost: u64,
    /// The count of jobs when the first of these came, to put clients of the same tag in order.
    since: u64,
}

/// Virtual time that a job of weight 1 takes.
const COST: u64 = 1 << 32;

// === impl Fair ===

impl<T> Fair<T> {
    /// An empty queue.
    pub(crate) fn new() -> Self {
        Self { flows: HashMap::new(), now: 0, count: 0, waiting: 0 }
    }

    /// All jobs that wait.
    pub(crate) const fn len(&self) -> usize {
        self.waiting
    }

    /// Jobs of this client that wait.
    pub(crate) fn len_of(&self, who: Who) -> usize {
        self.flows.get(&who.id).map_or(0, |flow| flow.jobs.len())
    }

    /// Puts a job behind those of the same client.
    pub(crate) fn push(&mut self, who: Who, job: T) {
        let (now, since) = (self.now, self.count);
        let flow = self.flows.entry(who.id).or_insert_with(|| Flow { jobs: VecDeque::new(), start: now, cost: COST, since });
        if flow.jobs.is_empty() {
            flow.start = flow.start.max(now);
            flow.since = since;
        }
        flow.cost = COST / u64::from(who.weight.get());
        flow.jobs.push_back(job);
        self.count += 1;
        self.waiting += 1;
    }

    /// The next job that may go: of all clients that have one, that of the client that has had least for its weight.
    pub(crate) fn pop(&mut self, may: impl Fn(&T) -> bool) -> Option<T> {
        let first = |flow: &Flow<T>| flow.jobs.iter().position(&may).map(|at| (flow.start, flow.since, at));
        let flows = self.flows.values_mut().filter_map(|flow| first(flow).map(|first| (first, flow)));
        let ((start, _, at), flow) = flows.min_by_key(|((start, since, _), _)| (*start, *since))?;
        let job = flow.jobs.remove(at)?;
        flow.start = start.saturating_add(flow.cost);
        self.now = self.now.max(start);
        self.waiting -= 1;
        self.forget();
        Some(job)
    }

    /// Gives back the last job of the client that has most waiting.
    pub(crate) fn shed(&mut self) -> Option<T> {
        let (_, flow) = self.flows.iter_mut().max_by_key(|(id, flow)| (flow.jobs.len(), **id))?;
        let job = flow.jobs.pop_back()?;
        self.waiting -= 1;
        self.forget();
        Some(job)
    }

    /// Lets go of the jobs that nobody wants any more.
    pub(crate) fn retain(&mut self, mut wanted: impl FnMut(&T) -> bool) {
        for flow in self.flows.values_mut() {
            flow.jobs.retain(&mut wanted);
        }
        self.waiting = self.flows.values().map(|flow| flow.jobs.len()).sum();
        self.forget();
    }

    /// Lets go of clients that wait for nothing and have had no more than their part: coming back, they would have the same place.
    fn forget(&mut self) {
        let now = self.now;
        self.flows.retain(|_, flow| !flow.jobs.is_empty() || flow.start > now);
        if self.flows.is_empty() {
            self.now = 0;
        }
    }
}
