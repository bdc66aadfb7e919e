//! What survives a restart of ours: taken over at the start, handed over after each capture.

use bytes::Bytes;

use super::refresher::Refresher;
use super::view::Part;
use crate::answer::Source;
use crate::keep::{Keeper, Kept, Offer, Saved};
use crate::source::{Call, Upstream};

impl<U: Upstream> Refresher<U> {
    /// Has what is published saved from now on, and publishes what an earlier instance has saved. That is given to clients only while
    /// the source cannot be reached, and is what the first reply is completed by: the kubelet may have restarted while we were away.
    #[must_use]
    pub fn keeping(mut self, keeper: Option<Keeper>, saved: Option<Saved>) -> Self {
        self.keeper = keeper;
        // The host is as it is now: what a kubelet said once is not what it says.
        let saved = saved.filter(|_| self.upstream.source() == Source::Kubelet);
        let Some(Saved { list, allocatable, alpha, stamps, server }) = saved else { return self };
        self.list.presume_restart();
        if alpha.is_some() {
            self.alpha.presume_restart();
        }
        // As if it had been asked over a connection that is no more.
        self.allocatable_connection = u64::MAX;
        self.upstream.remember(Call::List, list.content.message_bytes());
        if let Some(alpha) = &alpha {
            self.upstream.remember(Call::AlphaList, alpha.content.message_bytes());
        }
        if let Some(allocatable) = &allocatable {
            self.upstream.remember(Call::Allocatable, Bytes::copy_from_slice(allocatable.content.message()));
        }
        self.stamps = stamps;
        self.saved_server = server;
        self.shared.publish(|view| {
            view.list = Some(part(list));
            view.allocatable = allocatable.map(|kept| part(kept).map(Ok));
            view.alpha = alpha.map(|kept| part(kept).map(Ok));
        });
        self
    }

    /// Where the kubelet of the first connection is the one that the saved replies came from, it has not restarted meanwhile: what it
    /// does not tell now is gone, and nothing is to be completed.
    pub(super) fn resume(&mut self) {
        let Some(saved) = self.saved_server.take() else { return };
        if self.upstream.server() != Some(saved) {
            return;
        }
        let connection = self.upstream.connections();
        self.list.resume(connection);
        self.alpha.resume(connection);
        self.allocatable_connection = connection;
    }

    /// Has what is published saved: after each capture.
    pub(super) fn save(&self) {
        // What the host says can be had again at any time, and must not be taken for a kubelet's word.
        let Some(keeper) = self.keeper.as_ref().filter(|_| self.upstream.source() == Source::Kubelet) else { return };
        let view = self.shared.view.load();
        // Nothing is confirmed before a first capture of our own.
        let Some(list) = view.list.as_ref().filter(|list| !list.is_saved()) else { return };
        keeper.offer(Offer {
            list: list.content.clone(),
            // The other two may be those of before for a while yet: their stamps say so.
            allocatable: view.allocatable.as_ref().and_then(|part| part.content.as_ref().ok().cloned()),
            alpha: view.alpha.as_ref().and_then(|part| part.content.as_ref().ok().cloned()),
            stamps: self.stamps,
            // A Get may have made another connection since.
            server: self.upstream.server().filter(|_| self.has_settled() && self.list.connection() == self.upstream.connections()),
        });
    }

    /// Whether the replies are whole without what was kept from before a restart.
    const fn has_settled(&self) -> bool {
        !self.list.keeps_pods() && !self.alpha.keeps_pods() && self.grace.is_none()
    }
}

fn part<T>(kept: Kept<T>) -> Part<T> {
    Part::saved(kept.content, kept.begun)
}
