//! After a kubelet restart: what the new kubelet does not tell yet is kept while it is still true.
//!
//! A kubelet that has just started knows no pods, then only static ones, until it has heard from the API server; its device plugins
//! register again when they like. A short list served as the truth would have devices given away twice.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::change::Settled;
use crate::kubepods::PodUid;
use crate::snapshot::{Allocatable, Malformed, PodList, PodName, merge, merge_allocatable};

/// How long devices that the restarted kubelet does not offer again are kept: the kubelet's own grace for plugins.
pub(super) const DEVICE_GRACE: Duration = Duration::from_mins(5);

/// The pods of before a restart on which the restarted kubelet has not said its word.
#[derive(Debug)]
pub(super) struct Restart {
    base: Arc<PodList>,
    unconfirmed: HashMap<PodName, HashSet<PodUid>>,
    /// When the kubelet before was asked last.
    before: Option<Instant>,
    at: Instant,
}

/// The devices of before a restart.
#[derive(Debug)]
pub(super) struct DeviceGrace {
    base: Arc<Allocatable>,
    until: Instant,
}

// === impl Restart ===

impl Restart {
    /// A restart found at `at`; `base` is what was published last, `uids` the pods' uids as far as they can be known, `before` when the
    /// kubelet before was asked last.
    #[must_use]
    pub(super) fn new(base: Arc<PodList>, uids: &HashMap<PodName, Vec<PodUid>>, before: Option<Instant>, at: Instant) -> Self {
        let of = |name: &PodName| uids.get(name).into_iter().flatten().copied().collect();
        let unconfirmed = base.pods().map(|pod| pod.to_name()).map(|name| (name.clone(), of(&name))).collect();
        Self { base, unconfirmed, before, at }
    }

    /// Whether a reply that began at `begun` is all that the restarted kubelet has to say: it had said before, over a stream opened
    /// since the restart, that it knows all its pods.
    pub(super) fn is_answered(&self, settled: Settled, begun: Instant) -> bool {
        self.before.is_some_and(|before| settled.opened > before) && begun > settled.at
    }

    /// The uids that matter for what is to be decided.
    pub(super) fn uids(&self) -> HashSet<PodUid> {
        self.unconfirmed.values().flatten().copied().collect()
    }

    /// Adds to a reply of the restarted kubelet the pods that it lost and that still live: those with a process in their cgroup or,
    /// where that cannot be seen, all of them until `settle` after the restart. A pod that is once confirmed or dropped is not
    /// brought back. `None`: there is nothing to add.
    pub(super) fn complete(
        &mut self,
        reply: &PodList,
        living: Option<&HashSet<PodUid>>,
        now: Instant,
        settle: Duration,
    ) -> Option<PodList> {
        for pod in reply.pods() {
            self.unconfirmed.remove(&pod.to_name());
        }
        let in_time = now.saturating_duration_since(self.at) < settle;
        self.unconfirmed.retain(|_, uids| match living {
            Some(living) if !uids.is_empty() => uids.iter().any(|uid| living.contains(uid)),
            _ => in_time,
        });
        if self.unconfirmed.is_empty() {
            return None;
        }
        match self.merge(reply) {
            Ok(list) => Some(list),
            Err(error) => {
                tracing::error!(%error, "cannot complete the list after the kubelet's restart; it is served as the kubelet has it");
                self.unconfirmed.clear();
                None
            }
        }
    }

    fn merge(&mut self, reply: &PodList) -> Result<PodList, Malformed> {
        let merged = merge(&self.base, PodList::build(reply.message())?, |pod| self.unconfirmed.contains_key(&pod.to_name()))?;
        for conflict in &merged.conflicts {
            let PodName { namespace, name } = &conflict.pod;
            tracing::info!(%namespace, %name, over = %conflict.over, "a pod from before the kubelet's restart is gone: what it held has another owner");
            self.unconfirmed.remove(&conflict.pod);
        }
        Ok(merged.list)
    }

    /// Nothing more to keep.
    pub(super) fn is_over(&self) -> bool {
        self.unconfirmed.is_empty()
    }

    /// The pods that are kept, for people.
    pub(super) fn kept(&self) -> Vec<String> {
        let mut kept: Vec<String> = self.unconfirmed.keys().map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect();
        kept.sort_unstable();
        kept
    }
}

// === impl DeviceGrace ===

impl DeviceGrace {
    /// A restart found at `at`; `base` is what was published last.
    #[must_use]
    pub(super) fn new(base: Arc<Allocatable>, at: Instant) -> Self {
        Self { base, until: at + DEVICE_GRACE }
    }

    /// Adds the devices whose plugin has not come back; `None` once the grace has ended, or nothing is missing.
    pub(super) fn complete(&self, reply: &Allocatable, now: Instant) -> Option<Allocatable> {
        if now >= self.until {
            return None;
        }
        let reply = Allocatable::build(reply.message());
        // A plugin tells all its devices at once: what it does not tell, once it is back, is ill or gone.
        match reply.and_then(|reply| merge_allocatable(&self.base, reply, |lost| !lost.resource_is_back)) {
            Ok(merged) => (merged.kept > 0).then_some(merged.allocatable),
            Err(error) => {
                tracing::error!(%error, "cannot complete the allocatable devices after the kubelet's restart");
                None
            }
        }
    }
}
