//! What is published, and whether it will do for a request. Pure.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::answer::Source;
use crate::grpc::Status;
use crate::snapshot::{Allocatable, PodList, PodName};

/// Something captured, and when.
#[derive(Clone, Debug)]
pub struct Part<T> {
    /// The reply.
    pub content: T,
    /// The epoch read before the capture began; zero, older than every epoch, where an earlier instance captured it.
    pub epoch: u64,
    /// When the capture began.
    pub begun: Instant,
}

/// Whether the source can be reached.
#[derive(Clone, Debug)]
pub enum Reach {
    /// Nobody has tried yet.
    Untried,
    /// It accepts connections.
    Up,
    /// Nobody listens at its socket.
    Down {
        /// The epoch read before the last attempt: for a request that knows of a later change this says nothing.
        epoch: u64,
        /// Since when.
        since: Instant,
        /// What the last attempt met.
        why: Arc<str>,
    },
}

/// The snapshot: immutable, published as a whole.
#[derive(Clone, Debug)]
pub struct View {
    /// `v1` List, and Get with it.
    pub list: Option<Part<Arc<PodList>>>,
    /// GetAllocatableResources, or the error that the kubelet has for it (an old kubelet, a feature that is off).
    pub allocatable: Option<Part<Result<Arc<Allocatable>, Status>>>,
    /// `v1alpha1` List, or the error of a kubelet that has it no more; only while somebody asks for it.
    pub alpha: Option<Part<Result<Arc<PodList>, Status>>>,
    /// Whether the source can be reached.
    pub reach: Reach,
    /// Whose words the list is.
    pub source: Source,
    /// Pods in the list of which the source knows a part alone: their devices are the kubelet's to tell, and it does not answer.
    pub unknown: Option<Arc<HashSet<PodName>>>,
}

/// What a request wants of an answer's age.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    /// The epoch when it arrived.
    pub epoch: u64,
    /// When it arrived.
    pub arrived: Instant,
    /// See [`crate::answer::Terms::max_age`].
    pub max_age: Option<Duration>,
}

/// What may be done with a part for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Answer with it.
    Fresh,
    /// Answer with it, marked: the source cannot be reached, and nothing is allocated while it is not there.
    Stale,
    /// It is too old to be the truth for, and there is no newer one to be had.
    Expired,
    /// A capture has to come first.
    Wait,
}

// === impl Part ===

impl<T> Part<T> {
    /// What an earlier instance has saved. It is given only while the source cannot be reached.
    pub const fn saved(content: T, begun: Instant) -> Self {
        Self { content, epoch: 0, begun }
    }

    /// Whether an earlier instance captured it.
    pub const fn is_saved(&self) -> bool {
        self.epoch == 0
    }

    /// The same capture with other content.
    pub fn map<U>(self, content: impl FnOnce(T) -> U) -> Part<U> {
        Part { content: content(self.content), epoch: self.epoch, begun: self.begun }
    }
}

// === impl View ===

impl View {
    /// Before the first capture.
    #[must_use]
    pub const fn empty() -> Self {
        Self { list: None, allocatable: None, alpha: None, reach: Reach::Untried, source: Source::Kubelet, unknown: None }
    }

    /// Whether this instance has captured List.
    #[must_use]
    pub fn has_capture(&self) -> bool {
        self.list.as_ref().is_some_and(|list| !list.is_saved())
    }
}

// === impl Need ===

impl Need {
    /// Judges a part.
    pub(super) fn judge<T>(&self, part: Option<&Part<T>>, reach: &Reach, now: Instant, max_stale: Duration) -> Verdict {
        let Some(part) = part else { return Verdict::Wait };
        match reach {
            // Whoever is content with its age need not wait for another look, either.
            Reach::Down { epoch, since, .. } if *epoch >= self.epoch || self.is_young_enough(part, now) => {
                // When the source was lost of which an earlier instance has saved something, nobody knows: it was there at that capture.
                let lost = if part.is_saved() { part.begun.min(*since) } else { *since };
                if now.saturating_duration_since(lost) <= max_stale { Verdict::Stale } else { Verdict::Expired }
            }
            // Where something changed since it was found unreachable, it may be back.
            Reach::Up | Reach::Untried if self.content_with(part, now) => Verdict::Fresh,
            Reach::Down { .. } | Reach::Up | Reach::Untried => Verdict::Wait,
        }
    }

    /// Whether a part from a source that can be reached is new enough.
    pub(super) fn content_with<T>(&self, part: &Part<T>, now: Instant) -> bool {
        if part.is_saved() {
            return false;
        }
        match self.max_age {
            None => part.epoch >= self.epoch,
            Some(_) => part.begun > self.arrived || self.is_young_enough(part, now),
        }
    }

    /// Whether the request named an age, and the part is younger.
    fn is_young_enough<T>(&self, part: &Part<T>, now: Instant) -> bool {
        self.max_age.is_some_and(|max_age| now.saturating_duration_since(part.begun) < max_age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_STALE: Duration = Duration::from_mins(5);

    fn judge(need: &Need, part: Option<&Part<()>>, reach: &Reach, now: Instant) -> Verdict {
        need.judge(part, reach, now, MAX_STALE)
    }

    fn need(epoch: u64, arrived: Instant) -> Need {
        Need { epoch, arrived, max_age: None }
    }

    fn down(epoch: u64, since: Instant) -> Reach {
        Reach::Down { epoch, since, why: "refused".into() }
    }

    #[test]
    fn a_capture_as_new_as_the_last_change_is_fresh_however_old_it_is() {
        let begun = Instant::now();
        let later = begun + Duration::from_secs(1_000);
        let part = Part { content: (), epoch: 7, begun };
        assert_eq!(judge(&need(7, later), Some(&part), &Reach::Up, later), Verdict::Fresh);
        assert_eq!(judge(&need(8, later), Some(&part), &Reach::Up, later), Verdict::Wait);
        assert_eq!(judge(&need(7, later), None, &Reach::Up, later), Verdict::Wait);
    }

    #[test]
    fn while_the_source_is_down_the_last_good_one_is_served_marked_and_not_for_ever() {
        let begun = Instant::now();
        let part = Part { content: (), epoch: 7, begun };
        let reach = down(9, begun);
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(judge(&need(9, at(1)), Some(&part), &reach, at(1)), Verdict::Stale);
        assert_eq!(judge(&need(7, at(1)), Some(&part), &reach, at(1)), Verdict::Stale, "marked although nothing changed");
        assert_eq!(judge(&need(9, at(301)), Some(&part), &reach, at(301)), Verdict::Expired);
        assert_eq!(judge(&need(9, at(1)), None, &reach, at(1)), Verdict::Wait, "with nothing to serve, it waits");
    }

    #[test]
    fn what_an_earlier_instance_saved_is_given_only_while_the_source_is_down_and_its_own_age_counts() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let part = Part::saved((), begun);
        for reach in [Reach::Untried, Reach::Up] {
            assert_eq!(judge(&need(1, at(1)), Some(&part), &reach, at(1)), Verdict::Wait);
            let content = Need { max_age: Some(Duration::from_hours(1)), ..need(1, at(1)) };
            assert_eq!(judge(&content, Some(&part), &reach, at(1)), Verdict::Wait, "with whatever age it is content");
        }
        let reach = down(1, at(200));
        assert_eq!(judge(&need(1, at(201)), Some(&part), &reach, at(201)), Verdict::Stale);
        assert_eq!(judge(&need(1, at(301)), Some(&part), &reach, at(301)), Verdict::Expired, "down for a hundred seconds only");
        assert_eq!(judge(&need(2, at(201)), Some(&part), &reach, at(201)), Verdict::Wait, "the source may be back");
    }

    #[test]
    fn a_change_after_the_source_was_found_down_asks_for_another_look() {
        let begun = Instant::now();
        let part = Part { content: (), epoch: 7, begun };
        assert_eq!(judge(&need(10, begun), Some(&part), &down(9, begun), begun), Verdict::Wait);
    }

    #[test]
    fn who_is_content_with_its_age_has_the_last_good_one_although_the_source_may_be_back() {
        let begun = Instant::now();
        let now = begun + Duration::from_secs(3);
        let part = Part { content: (), epoch: 7, begun };
        let with = |max_age| Need { epoch: 10, arrived: now, max_age: Some(Duration::from_secs(max_age)) };
        assert_eq!(judge(&with(5), Some(&part), &down(9, begun), now), Verdict::Stale);
        assert_eq!(judge(&with(2), Some(&part), &down(9, begun), now), Verdict::Wait);
    }

    #[test]
    fn a_max_age_is_about_age_alone_and_zero_forces_a_capture() {
        let begun = Instant::now() + Duration::from_secs(1);
        let now = begun + Duration::from_secs(3);
        let part = Part { content: (), epoch: 7, begun };
        let with = |max_age, arrived| Need { epoch: 99, arrived, max_age: Some(Duration::from_secs(max_age)) };
        assert_eq!(judge(&with(5, now), Some(&part), &Reach::Up, now), Verdict::Fresh);
        assert_eq!(judge(&with(2, now), Some(&part), &Reach::Up, now), Verdict::Wait);
        assert_eq!(judge(&with(0, now), Some(&part), &Reach::Up, now), Verdict::Wait);
        let earlier = begun - Duration::from_nanos(1);
        assert_eq!(judge(&with(0, begun), Some(&part), &Reach::Up, now), Verdict::Wait, "in doubt it began before");
        assert_eq!(judge(&with(0, earlier), Some(&part), &Reach::Up, now), Verdict::Fresh, "begun after it arrived");
    }
}
