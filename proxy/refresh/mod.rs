//! Decides what is captured when, publishes it, and answers from it.
//!
//! One thread captures ([`Refresher`]); any number answer ([`Handle`]). They share an `ArcSwap` that only the refresher stores to, a
//! `Demand` that tells it who waits, and a channel of Gets to be forwarded.

mod abilities;
mod budget;
mod capture;
mod demand;
mod flight;
mod gate;
mod gets;
mod handle;
mod refresher;
mod restart;
mod saving;
mod schedule;
mod stats;
mod trouble;
mod view;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::change::Epoch;
use crate::kubepods::Kubepods;
use crate::source::{Failure, Reply};

pub use handle::Handle;
pub use refresher::{Channel, Refresher, channel};
pub use stats::{CALLS, Counter, RESULTS, Stats};
pub use view::{Part, Reach, View};

/// How long `v1alpha1` List is kept fresh after somebody asked for it. Its callers ask every few seconds or once for each new pod.
const ALPHA_KEPT: Duration = Duration::from_mins(1);

/// How the kubelet is asked and how long its word holds.
#[derive(Clone, Debug)]
pub struct Config {
    /// Calls to the kubelet per second, in the long run.
    pub upstream_rate: f64,
    /// Calls to the kubelet at once.
    pub upstream_burst: u32,
    /// How long the last good answer is given while the kubelet cannot be reached.
    pub max_stale: Duration,
    /// Another source stands in after `max_stale`: who comes then waits for it.
    pub failover: bool,
    /// How long after a kubelet restart a pod that it lost is kept, where its cgroup cannot be seen.
    pub restart_settle: Duration,
    /// How often to look when no event asks for it.
    pub interval: Duration,
    /// Where the node's pods are seen.
    pub kubepods: Kubepods,
}

/// What the refresher's thread and the answering threads share.
#[derive(Debug)]
struct Shared {
    config: Config,
    epoch: Arc<Epoch>,
    view: ArcSwap<View>,
    /// Moves with each publication.
    published: watch::Sender<()>,
    demand: demand::Demand,
    gets: mpsc::Sender<gets::Job>,
    stats: Stats,
    started: Instant,
    /// When `v1alpha1` List was asked for last, in milliseconds since `started`; zero: never.
    alpha_asked: AtomicU64,
    /// What the refresher does right now and what went wrong last, for whoever waited in vain.
    activity: Mutex<Activity>,
    /// What the kubelet has shown that it can do.
    kubelets: Mutex<abilities::Kubelets>,
}

/// What the refresher is at.
#[derive(Clone, Debug, Default)]
struct Activity {
    doing: String,
    last_error: Option<String>,
    kept: Vec<String>,
}

// === impl Shared ===

impl Shared {
    fn new(config: Config, epoch: Arc<Epoch>, gets: mpsc::Sender<gets::Job>) -> Self {
        Self {
            config,
            epoch,
            view: ArcSwap::from_pointee(View::empty()),
            published: watch::channel(()).0,
            demand: demand::Demand::default(),
            gets,
            stats: Stats::default(),
            started: Instant::now(),
            alpha_asked: AtomicU64::new(0),
            activity: Mutex::default(),
            kubelets: Mutex::default(),
        }
    }

    /// Publishes what `change` makes of the view in force. Only the refresher's thread may call it.
    fn publish(&self, change: impl FnOnce(&mut View)) {
        let mut view = View::clone(&self.view.load());
        change(&mut view);
        self.view.store(Arc::new(view));
        self.published.send_replace(());
    }

    fn alpha_asked(&self, now: Instant) {
        let millis = u64::try_from(now.saturating_duration_since(self.started).as_millis()).unwrap_or(u64::MAX);
        self.alpha_asked.store(millis.max(1), Ordering::Relaxed);
    }

    /// Whether somebody asked for `v1alpha1` List lately.
    fn alpha_wanted(&self, now: Instant) -> bool {
        let asked = self.alpha_asked.load(Ordering::Relaxed);
        asked > 0 && now < self.started + Duration::from_millis(asked) + ALPHA_KEPT
    }

    /// A call to the kubelet has ended. `call` is an index into [`CALLS`].
    fn called(&self, call: usize, result: &Result<Reply, Failure>) {
        self.stats.called(call, result);
        self.kubelets().learn(call, result);
    }

    fn kubelets(&self) -> MutexGuard<'_, abilities::Kubelets> {
        self.kubelets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn activity(&self) -> Activity {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, change: impl FnOnce(&mut Activity)) {
        change(&mut self.activity.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;
