//! From a reply of the kubelet to what is published: completed after a restart, the old bytes kept where nothing changed.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::restart::Restart;
use super::view::Part;
use crate::change::Settled;
use crate::kubepods::{Kubepods, PodUid};
use crate::snapshot::{Malformed, PodList};

/// By what a restarted kubelet's silence about a pod is judged.
#[derive(Debug)]
pub(super) struct Patience<'a> {
    /// Where the pods' cgroups are seen.
    pub(super) kubepods: &'a Kubepods,
    /// How long a pod is kept whose cgroup cannot be seen.
    pub(super) settle: Duration,
    /// The kubelet's own word that it knows all its pods.
    pub(super) settled: Option<Settled>,
}

/// One List method (`v1` or `v1alpha1`) through the kubelet's restarts.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// The connection that the last reply came over; zero before the first.
    connection: u64,
    restart: Option<Restart>,
    /// The last reply, before it was completed.
    reply: Option<Part<Arc<PodList>>>,
}

// === impl Lane ===

impl Lane {
    /// Takes in a reply that came over the connection of this number. `published` is what was published last. Says what to publish, and
    /// whether a restart was found.
    pub(super) async fn take(
        &mut self,
        reply: Part<Bytes>,
        connection: u64,
        published: Option<&Arc<PodList>>,
        patience: &Patience<'_>,
    ) -> Result<(Part<Arc<PodList>>, bool), Malformed> {
        let list = Arc::new(PodList::build(&reply.content)?);
        let restarted = self.connection != 0 && self.connection != connection;
        if let Some(published) = published.filter(|_| restarted) {
            // Looked up at once: the log directories of pods that are gone are removed some time later.
            let uids = off_thread(patience.kubepods, Kubepods::uids).await.unwrap_or_default();
            let before = self.reply.as_ref().map(|reply| reply.begun);
            self.restart = Some(Restart::new(published.clone(), &uids, before, Instant::now()));
        }
        self.connection = connection;
        let reply = Part { content: list, epoch: reply.epoch, begun: reply.begun };
        self.reply = Some(reply.clone());
        let content = self.complete(&reply, patience).await;
        Ok((Part { content: keep_old_bytes(published, content), ..reply }, restarted))
    }

    /// The next reply is to be taken as the first one after a restart: of the kubelet, or of ours, which may have missed one of its.
    pub(super) const fn presume_restart(&mut self) {
        self.connection = u64::MAX;
    }

    /// The next reply comes over this connection, and from the server that what is published came from.
    pub(super) const fn resume(&mut self, connection: u64) {
        self.connection = connection;
    }

    /// While pods are kept after a restart: looks whether they still live; what to publish where one does not.
    pub(super) async fn recheck(
        &mut self,
        published: Option<&Arc<PodList>>,
        patience: &Patience<'_>,
    ) -> Option<Part<Arc<PodList>>> {
        let kept = self.kept().len();
        let reply = self.reply.clone()?;
        let content = self.complete(&reply, patience).await;
        (self.kept().len() != kept).then(|| Part { content: keep_old_bytes(published, content), ..reply })
    }

    /// The connection that the last reply came over; zero before the first.
    pub(super) const fn connection(&self) -> u64 {
        self.connection
    }

    /// Whether pods are kept that the kubelet does not tell.
    pub(super) const fn keeps_pods(&self) -> bool {
        self.restart.is_some()
    }

    /// Those pods, for people.
    pub(super) fn kept(&self) -> Vec<String> {
        self.restart.as_ref().map(Restart::kept).unwrap_or_default()
    }

    async fn complete(&mut self, reply: &Part<Arc<PodList>>, patience: &Patience<'_>) -> Arc<PodList> {
        let Some(restart) = &mut self.restart else { return reply.content.clone() };
        if patience.settled.is_some_and(|settled| restart.is_answered(settled, reply.begun)) {
            self.restart = None;
            return reply.content.clone();
        }
        let uids = restart.uids();
        let living: Option<HashSet<PodUid>> = off_thread(patience.kubepods, move |kubepods| kubepods.living(&uids)).await.flatten();
        let completed = restart.complete(&reply.content, living.as_ref(), Instant::now(), patience.settle);
        if restart.is_over() {
            self.restart = None;
        }
        completed.map_or_else(|| reply.content.clone(), Arc::new)
    }
}

/// The same content in another order keeps the old bytes: nobody is told of a change that was none.
fn keep_old_bytes(published: Option<&Arc<PodList>>, new: Arc<PodList>) -> Arc<PodList> {
    match published {
        Some(old) if old.digest() == new.digest() => old.clone(),
        _ => new,
    }
}

/// Directory walks block: not on the refresher's thread, which has calls under way.
async fn off_thread<T: Send + 'static>(kubepods: &Kubepods, look: impl FnOnce(&Kubepods) -> T + Send + 'static) -> Option<T> {
    let kubepods = kubepods.clone();
    tokio::task::spawn_blocking(move || look(&kubepods)).await.ok()
}
