//! The three captures of a flight: from a call to a publication.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;
use tokio::time::Instant;

use super::Config;
use super::capture::Patience;
use super::refresher::Refresher;
use super::restart::DeviceGrace;
use super::view::{Part, View};
use crate::grpc::{Code, Status};
use crate::keep::Stamp;
use crate::proto::v1;
use crate::snapshot::{Allocatable, PodList};
use crate::source::{Call, Failure, Reply, Upstream};

/// What kubelets say that have no GetAllocatableResources (KEP-2403); up to 1.26 with "Pod Resources".
const DISABLED: [&str; 2] =
    ["PodResources API GetAllocatableResources disabled", "Pod Resources API GetAllocatableResources disabled"];

impl<U: Upstream> Refresher<U> {
    pub(super) async fn capture_list(&mut self) -> Result<(), Failure> {
        let (epoch, begun, stamp) = (self.shared.epoch.now(), Instant::now(), Stamp::now());
        let allocatable_count = self.shared.epoch.allocatable();
        let Reply { message, connection } = self.call(0, Call::List).await?;
        let published = self.shared.view.load_full();
        let old = published.list.as_ref().map(|part| &part.content);
        let source = self.upstream.source();
        let reply = Part { content: message, epoch, begun };
        let shared = self.shared.clone();
        let patience = self.patience(&shared.config);
        let taken = self.list.take(reply, connection, old, &patience).await;
        let (part, restarted) = taken.map_err(|error| self.malformed("List", &error))?;
        let same = old.is_some_and(|old| Arc::ptr_eq(old, &part.content));
        self.count_change(same);
        let switched = published.list.is_some() && published.source != source;
        if switched {
            tracing::info!(source = source.name(), pods_kept = self.list.kept().len(), "first List of another source");
        } else if restarted && published.list.as_ref().is_some_and(Part::is_saved) {
            tracing::info!(
                pods_kept = self.list.kept().len(),
                "the kubelet may have restarted too: its reply is completed by what was saved"
            );
        } else if restarted {
            self.shared.stats.restarts.add();
            tracing::info!(pods_kept = self.list.kept().len(), "the kubelet has restarted");
            self.allocatable_asked = 0;
            self.shared.kubelets().restarted();
        }
        if !same {
            self.shared.kubelets().look(|| v1::ListPodResourcesResponse::decode(part.content.message()).ok());
        }
        // Nothing that GetAllocatableResources may show has changed since it was asked: it is as fresh as the list.
        let renewed = allocatable_count == self.allocatable_asked;
        let unknown = self.upstream.unknown();
        self.upstream.remember(Call::List, part.content.message_bytes());
        self.shared.publish(|view| {
            view.list = Some(part);
            view.source = source;
            view.unknown = unknown;
            if renewed && let Some(allocatable) = view.allocatable.as_mut().filter(|part| !part.is_saved()) {
                allocatable.epoch = epoch;
            }
        });
        self.stamps.list = stamp;
        self.save();
        self.note_kept();
        self.schedule.captured(begun);
        Ok(())
    }

    pub(super) async fn capture_allocatable(&mut self) -> Result<(), Failure> {
        let (epoch, begun, stamp) = (self.shared.epoch.now(), Instant::now(), Stamp::now());
        let count = self.shared.epoch.allocatable();
        let reply = self.call(1, Call::Allocatable).await;
        if let Ok(Reply { connection, .. }) = &reply {
            self.begin_grace(*connection, begun);
        }
        let content = match reply {
            Ok(reply) => {
                let reply =
                    Allocatable::build(&reply.message).map_err(|error| self.malformed("GetAllocatableResources", &error))?;
                Ok(Arc::new(self.complete(reply, begun)))
            }
            // An old kubelet, or one with the feature off: its answer is this error.
            Err(Failure::Answered(status)) if is_off(&status) => Err(status),
            Err(failure) => return Err(failure),
        };
        self.allocatable_asked = count;
        self.shared.publish(|view| {
            let content = match (&view.allocatable, content) {
                (Some(Part { content: Ok(old), .. }), Ok(new)) if old.digest() == new.digest() => Ok(old.clone()),
                (_, content) => content,
            };
            view.allocatable = Some(Part { content, epoch, begun });
        });
        if let Some(Part { content: Ok(allocatable), .. }) = &self.shared.view.load().allocatable {
            self.upstream.remember(Call::Allocatable, Bytes::copy_from_slice(allocatable.message()));
        }
        self.stamps.allocatable = stamp;
        self.save();
        Ok(())
    }

    /// Another connection than before means another kubelet, whose plugins have yet to register. List may not have been asked of it so far.
    fn begin_grace(&mut self, connection: u64, now: Instant) {
        if self.allocatable_connection != 0 && self.allocatable_connection != connection {
            let published = self.shared.view.load();
            let base = published.allocatable.as_ref().and_then(|part| part.content.clone().ok());
            self.grace = base.map(|base| DeviceGrace::new(base, now));
        }
        self.allocatable_connection = connection;
    }

    fn complete(&mut self, reply: Allocatable, now: Instant) -> Allocatable {
        let Some(grace) = &self.grace else { return reply };
        let completed = grace.complete(&reply, now);
        if completed.is_none() {
            self.grace = None;
        }
        completed.unwrap_or(reply)
    }

    pub(super) async fn capture_alpha(&mut self) -> Result<(), Failure> {
        let (epoch, begun, stamp) = (self.shared.epoch.now(), Instant::now(), Stamp::now());
        let Reply { message, connection } = match self.call(3, Call::AlphaList).await {
            // A kubelet that has v1alpha1 no more: its answer is this error.
            Err(Failure::Answered(status)) if status.code == Code::Unimplemented => {
                self.shared.publish(|view| view.alpha = Some(Part { content: Err(status), epoch, begun }));
                return Ok(());
            }
            reply => reply?,
        };
        let published = self.shared.view.load_full();
        let mut base = alpha_list(&published).cloned().or_else(|| self.alpha_before.clone());
        if base.is_none() && self.list.keeps_pods() {
            // Nobody has asked before, and the kubelet does not tell all pods yet: what `v1` has kept is kept here too. Its records read
            // as `v1alpha1` ones with fields that are unknown there.
            base = published.list.as_ref().map(|part| part.content.clone());
            self.alpha.presume_restart();
        }
        let shared = self.shared.clone();
        let patience = self.patience(&shared.config);
        let reply = Part { content: message, epoch, begun };
        let taken = self.alpha.take(reply, connection, base.as_ref(), &patience).await;
        let (part, _) = taken.map_err(|error| self.malformed("v1alpha1 List", &error))?;
        self.upstream.remember(Call::AlphaList, part.content.message_bytes());
        self.shared.publish(|view| view.alpha = Some(part.map(Ok)));
        self.stamps.alpha = stamp;
        self.save();
        Ok(())
    }

    pub(super) fn forget_alpha(&mut self) {
        let view = self.shared.view.load_full();
        if view.alpha.is_some() {
            self.alpha_before = alpha_list(&view).cloned();
            self.shared.publish(|view| view.alpha = None);
        }
    }

    /// Looks whether the pods that are kept after a restart still live.
    pub(super) async fn recheck(&mut self) {
        let shared = self.shared.clone();
        let patience = self.patience(&shared.config);
        let view = self.shared.view.load_full();
        let list = view.list.as_ref().map(|part| &part.content);
        let list = self.list.recheck(list, &patience).await;
        let alpha = self.alpha.recheck(alpha_list(&view), &patience).await.map(|part| part.map(Ok));
        if list.is_some() || alpha.is_some() {
            self.shared.publish(|view| {
                view.list = list.or(view.list.take());
                view.alpha = alpha.or(view.alpha.take());
            });
            self.save();
            self.note_kept();
        }
    }

    fn patience<'a>(&self, config: &'a Config) -> Patience<'a> {
        let settled = self.settled.as_ref().and_then(|settled| *settled.borrow());
        Patience { kubepods: &config.kubepods, settle: config.restart_settle, settled }
    }

    fn malformed(&self, call: &str, error: &crate::snapshot::Malformed) -> Failure {
        self.shared.stats.malformed.add();
        Failure::Broken(format!("the kubelet answered {call} with a reply that does not parse ({error}); it is not published"))
    }

    fn count_change(&self, same: bool) {
        let stats = &self.shared.stats;
        if same { stats.unchanged.add() } else { stats.changed.add() }
    }

    fn note_kept(&self) {
        let kept = self.list.kept();
        self.shared.note(|activity| activity.kept = kept);
    }
}

/// The `v1alpha1` list that is published, if one is.
fn alpha_list(view: &View) -> Option<&Arc<PodList>> {
    view.alpha.as_ref().and_then(|part| part.content.as_ref().ok())
}

/// Whether an error says that the kubelet does not have GetAllocatableResources, rather than that it failed.
fn is_off(status: &Status) -> bool {
    status.code == Code::Unimplemented || (status.code == Code::Unknown && DISABLED.contains(&&*status.message))
}
