//! The loop that captures: one flight at a time, for whoever waits, after every change, and now and then.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::budget::{Budget, Urgency};
use super::capture::Lane as ListLane;
use super::demand::Lane;
use super::gate::Gate;
use super::gets;
use super::handle::Handle;
use super::restart::DeviceGrace;
use super::schedule::Schedule;
use super::trouble::{Step, Troubles};
use super::view::Reach;
use super::{Config, Shared, gets::Job};
use crate::answer::Source;
use crate::change::{Epoch, Settled};
use crate::keep::{Keeper, Stamps};
use crate::snapshot::PodList;
use crate::source::{Call, Failure, Reply, Upstream};

/// While pods are kept after a restart, how often to look whether they still live.
const RECHECK: Duration = Duration::from_millis(100);

/// How long GetAllocatableResources and `v1alpha1` List may take while somebody waits for a List.
const SIDE_PATIENCE: Duration = Duration::from_secs(1);

/// While the kubelet cannot be reached, the least pause between two attempts, however much changes.
const DIAL_PAUSE: Duration = Duration::from_millis(10);

/// Captures and publishes. Lives on one thread.
#[derive(Debug)]
pub struct Refresher<U> {
    pub(super) shared: Arc<Shared>,
    pub(super) upstream: U,
    jobs: Option<mpsc::Receiver<Job>>,
    budget: Rc<RefCell<Budget>>,
    pub(super) schedule: Schedule,
    /// The connection's own failures, and the kubelet's rate limit: no call at all before this opens.
    gate: Gate,
    list_gate: Gate,
    allocatable_gate: Gate,
    alpha_gate: Gate,
    troubles: Troubles,
    /// The epoch, and the count of changes to the socket, up to which changes have been noted.
    noted: (u64, u64),
    pub(super) list: ListLane,
    pub(super) alpha: ListLane,
    /// What `v1alpha1` List was when it was last kept fresh: the base of a merge, should the kubelet restart before anyone asks again.
    pub(super) alpha_before: Option<Arc<PodList>>,
    /// The count of changes up to which GetAllocatableResources has been asked.
    pub(super) allocatable_asked: u64,
    /// When GetAllocatableResources is asked again although nothing shows that it changed.
    allocatable_due: Instant,
    /// The connection that GetAllocatableResources was answered over last; zero before the first.
    pub(super) allocatable_connection: u64,
    pub(super) grace: Option<DeviceGrace>,
    /// The kubelet's word that it knows all its pods, where somebody hears it.
    pub(super) settled: Option<watch::Receiver<Option<Settled>>>,
    /// Saves what is published.
    pub(super) keeper: Option<Keeper>,
    /// When the captures began that are published, by a clock that outlives us.
    pub(super) stamps: Stamps,
    /// The server whose replies an earlier instance has saved, until the first connection.
    pub(super) saved_server: Option<Arc<str>>,
}

/// What is to be done next.
#[derive(Debug)]
enum Next {
    Fly(Urgency),
    Recheck,
    Idle { until: Instant },
}

// === impl Refresher ===

impl<U: Upstream> Refresher<U> {
    /// A refresher for this source; the handle answers from what it publishes, once it runs.
    pub fn new(shared: Channel, upstream: U) -> Self {
        let Channel { shared, jobs } = shared;
        let now = Instant::now();
        let budget = Budget::new(shared.config.upstream_rate, shared.config.upstream_burst, now);
        let schedule = Schedule::new(shared.config.interval, now);
        Self {
            shared,
            upstream,
            jobs: Some(jobs),
            budget: Rc::new(RefCell::new(budget)),
            schedule,
            gate: Gate::open(now),
            list_gate: Gate::open(now),
            allocatable_gate: Gate::open(now),
            alpha_gate: Gate::open(now),
            troubles: Troubles::default(),
            noted: (0, 0),
            list: ListLane::default(),
            alpha: ListLane::default(),
            alpha_before: None,
            allocatable_asked: 0,
            allocatable_due: now,
            allocatable_connection: 0,
            grace: None,
            settled: None,
            keeper: None,
            stamps: Stamps::default(),
            saved_server: None,
        }
    }

    /// Has it go by the kubelet's own word that it knows all its pods, where that can be heard.
    #[must_use]
    pub fn with_settled(self, settled: Option<watch::Receiver<Option<Settled>>>) -> Self {
        Self { settled, ..self }
    }

    /// Captures for ever; drop it to stop. Needs a `LocalSet`.
    pub async fn run(mut self) {
        if let Some(jobs) = self.jobs.take() {
            tokio::task::spawn_local(gets::forward(self.shared.clone(), self.upstream.clone(), self.budget.clone(), jobs));
        }
        let mut recheck_at = Instant::now();
        loop {
            if self.upstream.switch() {
                self.switched();
            }
            self.note_changes();
            match self.next(Instant::now(), recheck_at) {
                Next::Fly(urgency) => {
                    self.fly(urgency).await;
                    self.introduce();
                }
                Next::Recheck => {
                    recheck_at = Instant::now() + RECHECK;
                    self.recheck().await;
                }
                Next::Idle { until } => self.idle(until).await,
            }
        }
    }

    fn note_changes(&mut self) {
        let epoch = self.shared.epoch.now();
        if epoch == self.noted.0 {
            return;
        }
        let socket = self.shared.epoch.socket();
        if socket != self.noted.1 {
            // What could not be reached may be there again.
            self.gate = Gate::open(Instant::now());
            self.upstream.drop_if_replaced();
            self.schedule.hurry(Instant::now());
        }
        self.noted = (epoch, socket);
        self.schedule.changed(Instant::now());
    }

    /// Another source has been taken: what is published is the other one's word, and no answer to whoever asks from now on.
    fn switched(&mut self) {
        let now = Instant::now();
        self.shared.publish(|view| {
            view.list.iter_mut().for_each(|part| part.epoch = 0);
            view.allocatable.iter_mut().for_each(|part| part.epoch = 0);
            view.alpha.iter_mut().for_each(|part| part.epoch = 0);
        });
        for gate in [&mut self.gate, &mut self.list_gate, &mut self.allocatable_gate, &mut self.alpha_gate] {
            *gate = Gate::open(now);
        }
        self.allocatable_asked = 0;
        self.shared.stats.switches.add();
        self.shared.epoch.bump(crate::change::Kind::Socket);
    }

    fn next(&self, now: Instant, recheck_at: Instant) -> Next {
        let next = self.next_flight(now, recheck_at);
        match (next, self.upstream.due()) {
            (Next::Idle { until }, Some(due)) => Next::Idle { until: until.min(due) },
            (next, _) => next,
        }
    }

    fn next_flight(&self, now: Instant, recheck_at: Instant) -> Next {
        let lanes =
            [(Lane::List, &self.list_gate), (Lane::Allocatable, &self.allocatable_gate), (Lane::AlphaList, &self.alpha_gate)];
        let wanted = lanes.into_iter().filter_map(|(lane, gate)| self.wanted(lane).map(|urgency| (gate.opens, urgency)));
        // Of those that may be asked for now, the most urgent.
        let waiter = wanted.min_by_key(|(opens, urgency)| ((*opens).max(now), Reverse(*urgency)));
        let (due, urgency) = self.schedule.next();
        let scheduled = (due.max(self.list_gate.opens), urgency);
        // Of two that are due, the waiter.
        let (at, urgency) = waiter.filter(|(at, _)| *at <= now || *at <= scheduled.0).unwrap_or(scheduled);
        let at = at.max(self.gate.opens);
        if at <= now {
            return Next::Fly(urgency);
        }
        if !self.list.keeps_pods() && !self.alpha.keeps_pods() {
            return Next::Idle { until: at };
        }
        if recheck_at <= now { Next::Recheck } else { Next::Idle { until: at.min(recheck_at) } }
    }

    /// Whether somebody waits for this, and how urgent it is.
    fn wanted(&self, lane: Lane) -> Option<Urgency> {
        let view = self.shared.view.load();
        if let Reach::Down { epoch, .. } = view.reach {
            return self.shared.demand.epoch(lane).filter(|wanted| *wanted > epoch).map(|_| Urgency::Waiter);
        }
        match lane {
            Lane::List => self.shared.demand.unmet(lane, view.list.as_ref()),
            Lane::Allocatable => self.shared.demand.unmet(lane, view.allocatable.as_ref()),
            Lane::AlphaList => self.shared.demand.unmet(lane, view.alpha.as_ref()),
        }
    }

    async fn idle(&self, until: Instant) {
        self.shared.note(|activity| {
            let doing = if activity.last_error.is_some() { "waiting to ask the kubelet again" } else { "idle" };
            doing.clone_into(&mut activity.doing);
        });
        tokio::select! {
            () = sleep_until(until) => {}
            () = self.shared.epoch.bumped() => {}
            () = self.shared.demand.news() => {}
            () = self.upstream.closed() => self.connection_ended(),
            () = self.upstream.stirred() => {}
        }
    }

    /// The kubelet has gone, or will not have us: everything may differ from now on.
    fn connection_ended(&self) {
        tracing::info!("the connection to the kubelet has ended");
        self.shared.epoch.bump(crate::change::Kind::Socket);
    }

    /// One flight: what is wanted or due, one call after the other.
    async fn fly(&mut self, urgency: Urgency) {
        if let Err(failure) = self.connect().await {
            return self.connection_failed(Step::Connecting, &failure);
        }
        self.went_well(Step::Connecting);
        self.resume();
        if !self.take_budget(urgency).await {
            return;
        }
        let now = Instant::now();
        let due = self.schedule.next().0 <= now;
        let mut paid = true;
        if (due || self.wanted(Lane::List).is_some()) && self.list_gate.opens <= now {
            paid = false;
            let captured = self.capture_list().await;
            if !self.passed(captured, Step::List) {
                return;
            }
        }
        let changed = self.shared.epoch.allocatable() != self.allocatable_asked;
        // A timer of its own: on a busy node List is always captured before its own timer comes.
        let timer = self.allocatable_due <= now;
        if (changed || timer || self.wanted(Lane::Allocatable).is_some()) && self.allocatable_gate.opens <= now {
            self.pay(&mut paid, urgency).await;
            let captured = self.capture_allocatable().await;
            if captured.is_ok() {
                self.allocatable_due = now + self.shared.config.interval;
            }
            if !self.passed(captured, Step::Allocatable) {
                return;
            }
        }
        let asked_lately = self.shared.alpha_wanted(now);
        if (self.wanted(Lane::AlphaList).is_some() || (due && asked_lately)) && self.alpha_gate.opens <= now {
            self.pay(&mut paid, urgency).await;
            let captured = self.capture_alpha().await;
            self.passed(captured, Step::AlphaList);
        } else if !asked_lately {
            self.forget_alpha();
        }
    }

    async fn connect(&mut self) -> Result<(), Failure> {
        // Before the attempt: its verdict holds for whoever knows of no later change.
        let epoch = self.shared.epoch.now();
        self.doing(|| "connecting to the kubelet".to_owned());
        let before = self.upstream.connections();
        let connected = self.upstream.connect().await;
        if self.upstream.connections() != before {
            self.shared.stats.connections.add();
        }
        let reach = &self.shared.view.load().reach.clone();
        match (&connected, reach) {
            (Ok(()), Reach::Untried) => self.shared.publish(|view| view.reach = Reach::Up),
            (Ok(()), Reach::Down { since, .. }) => {
                if self.upstream.source() == Source::Kubelet {
                    tracing::info!(down_for = ?since.elapsed(), "the kubelet can be reached again");
                }
                self.shared.publish(|view| view.reach = Reach::Up);
            }
            (Err(Failure::Unreachable(why)), reach) => {
                let since = match reach {
                    Reach::Down { since, .. } => *since,
                    Reach::Up | Reach::Untried => {
                        tracing::warn!(%why, "the kubelet cannot be reached");
                        Instant::now()
                    }
                };
                let why: Arc<str> = why.as_str().into();
                self.shared.publish(|view| view.reach = Reach::Down { epoch, since, why });
            }
            (Ok(()), Reach::Up) | (Err(_), _) => {}
        }
        connected
    }

    /// Waits for the budget's leave; no leave where what was to be done has changed meanwhile.
    async fn take_budget(&self, urgency: Urgency) -> bool {
        let taken = self.budget.borrow_mut().take(urgency, Instant::now());
        let wait = match taken {
            Ok(()) => return true,
            Err(wait) => wait,
        };
        self.doing(|| "waiting for the upstream budget (--upstream-rate, --upstream-burst)".to_owned());
        tokio::select! {
            () = sleep(wait) => {}
            // A waiter may take what settling and timer may not.
            () = self.shared.demand.news(), if urgency != Urgency::Waiter => {}
        }
        false
    }

    /// Takes a further call of a flight that is under way; the first is paid for.
    async fn pay(&self, paid: &mut bool, urgency: Urgency) {
        if std::mem::take(paid) {
            return;
        }
        loop {
            // Who joins meanwhile would wait for this flight: it becomes theirs.
            let wanted = [Lane::List, Lane::Allocatable, Lane::AlphaList].into_iter().filter_map(|lane| self.wanted(lane)).max();
            let urgency = wanted.map_or(urgency, |wanted| wanted.max(urgency));
            let taken = self.budget.borrow_mut().take(urgency, Instant::now());
            let wait = match taken {
                Ok(()) => return,
                Err(wait) => wait,
            };
            tokio::select! {
                () = sleep(wait) => {}
                () = self.shared.demand.news() => {}
            }
        }
    }

    /// Makes a call; gives it up where the socket is replaced meanwhile, since nobody will answer any more.
    pub(super) async fn call(&self, index: usize, call: Call<'_>) -> Result<Reply, Failure> {
        let began = Instant::now();
        self.doing(|| format!("{} is under way at the kubelet", super::CALLS[index]));
        // A call beside List that hangs must not keep those who wait for a List.
        let out_of_patience = async {
            if call == Call::List {
                std::future::pending::<()>().await;
            }
            sleep(SIDE_PATIENCE).await;
            while self.wanted(Lane::List).is_none() {
                self.shared.demand.news().await;
            }
        };
        let reply = tokio::select! {
            reply = self.upstream.call(call) => reply,
            () = out_of_patience => Err(Failure::Late(began.elapsed())),
            () = self.replaced() => Err(Failure::Lost("the kubelet's socket was replaced during the call".to_owned())),
        };
        self.shared.called(index, &reply);
        tracing::debug!(call = super::CALLS[index], took = ?began.elapsed(), ok = reply.is_ok(), "asked the kubelet");
        reply
    }

    async fn replaced(&self) {
        loop {
            self.shared.epoch.bumped().await;
            if self.upstream.drop_if_replaced() {
                return;
            }
        }
    }

    /// Whether a step of a flight went well, so that the next may follow. A call's own failure shuts that call's gate alone: one that
    /// always fails must not keep the others from being made.
    fn passed(&mut self, captured: Result<(), Failure>, step: Step) -> bool {
        match captured {
            Ok(()) => {
                *self.gate_of(step) = Gate::open(Instant::now());
                self.gate.backoff.reset();
                self.went_well(step);
                true
            }
            Err(failure @ (Failure::Unreachable(_) | Failure::Lost(_) | Failure::RateLimited)) => {
                self.connection_failed(step, &failure);
                false
            }
            Err(failure) => {
                self.tell(step, &failure);
                self.gate_of(step).shut(Instant::now());
                true
            }
        }
    }

    const fn gate_of(&mut self, step: Step) -> &mut Gate {
        match step {
            Step::Connecting => &mut self.gate,
            Step::List => &mut self.list_gate,
            Step::Allocatable => &mut self.allocatable_gate,
            Step::AlphaList => &mut self.alpha_gate,
        }
    }

    fn connection_failed(&mut self, step: Step, failure: &Failure) {
        self.tell(step, failure);
        let now = Instant::now();
        let pause = self.gate.shut(now);
        self.schedule.put_off(now + pause);
        match failure {
            // Whoever knows of a later change than the attempt wants another one, and an attempt costs the kubelet nothing.
            Failure::Unreachable(_) => self.gate.opens = now + pause.min(DIAL_PAUSE),
            // It broke, often because the kubelet went away: the next attempt will tell.
            Failure::Lost(_) if self.upstream.drop_if_replaced() => self.gate.opens = now,
            _ => {}
        }
    }

    /// Says once what kind of kubelet this is.
    fn introduce(&self) {
        if let Some(answers) = self.shared.kubelets().news() {
            tracing::info!(answers, "the kubelet");
        }
    }

    /// Says once what went wrong.
    fn tell(&mut self, step: Step, failure: &Failure) {
        if !self.troubles.met(step, failure) {
            tracing::debug!(error = %failure, "asking the kubelet failed again");
        } else if !matches!(failure, Failure::Unreachable(_)) {
            tracing::warn!(error = %failure, "asking the kubelet failed; it is asked again");
        }
        self.shared.note(|activity| activity.last_error = Some(failure.to_string()));
    }

    fn went_well(&mut self, step: Step) {
        if self.troubles.over(step) {
            self.shared.note(|activity| activity.last_error = None);
        }
    }

    fn doing(&self, what: impl FnOnce() -> String) {
        self.shared.note(|activity| activity.doing = what());
    }
}

/// The refresher's end of what it shares with the answering side: made on any thread, taken to the refresher's.
#[derive(Debug)]
pub struct Channel {
    shared: Arc<Shared>,
    jobs: mpsc::Receiver<Job>,
}

/// The two ends: one answers, the other is for [`Refresher::new`].
#[must_use]
pub fn channel(config: Config, epoch: Arc<Epoch>) -> (Handle, Channel) {
    /// Gets that may be on their way to the refresher, which puts them in order at once; each holds two names.
    const JOBS: usize = 1024;
    let (gets, jobs) = mpsc::channel(JOBS);
    let shared = Arc::new(Shared::new(config, epoch, gets));
    (Handle { shared: shared.clone() }, Channel { shared, jobs })
}
