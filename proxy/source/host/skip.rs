//! What was passed over, and why: counted always, named for the first few.

use std::fmt;

/// Passed-over things of one kind that are named; more are counted only.
const NAMED: usize = 8;

/// Why something was passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A cgroup that is neither pod, container nor monitor.
    Stray,
    /// A pod whose name is told nowhere yet.
    PodWithoutName,
    /// A pod with nothing in it: not begun, or left over.
    EmptyPod,
    /// A pod all of whose containers are without a name.
    PodWithoutContainers,
    /// A container with processes whose name is told nowhere.
    ContainerWithoutName,
    /// A container's cgroup without processes and without a bundle: left over.
    LeftOver,
    /// A bundle that cannot be read, is too long, is not JSON, or says nothing.
    BadBundle,
    /// A bundle that belongs to another pod than its cgroup lies in.
    ForeignBundle,
    /// A cpuset that cannot be read, or is no list, or out of range.
    BadCpuset,
    /// A directory that cannot be read.
    Unreadable,
    /// A name with odd bytes.
    OddName,
    /// Something of the machine's own: a memory node, a setting.
    BadNode,
    /// A CDI specification that cannot be used.
    BadCdi,
}

/// One thing that was passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// Why.
    pub why: Why,
    /// The path of what it was.
    pub what: String,
    /// What was wrong with it, for people; may be empty.
    pub detail: String,
}

/// All that was passed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    counts: [u64; Why::ALL.len()],
    named: Vec<Skip>,
}

// === impl Why ===

impl Why {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Stray,
        Self::PodWithoutName,
        Self::EmptyPod,
        Self::PodWithoutContainers,
        Self::ContainerWithoutName,
        Self::LeftOver,
        Self::BadBundle,
        Self::ForeignBundle,
        Self::BadCpuset,
        Self::Unreadable,
        Self::OddName,
        Self::BadNode,
        Self::BadCdi,
    ];

    /// As a metric's label and in logs.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Stray => "stray_cgroup",
            Self::PodWithoutName => "pod_without_name",
            Self::EmptyPod => "empty_pod",
            Self::PodWithoutContainers => "pod_without_containers",
            Self::ContainerWithoutName => "container_without_name",
            Self::LeftOver => "left_over",
            Self::BadBundle => "bad_bundle",
            Self::ForeignBundle => "foreign_bundle",
            Self::BadCpuset => "bad_cpuset",
            Self::Unreadable => "unreadable",
            Self::OddName => "odd_name",
            Self::BadNode => "bad_node",
            Self::BadCdi => "bad_cdi",
        }
    }
}

// === impl Skipped ===

impl Skipped {
    /// Notes one.
    pub fn add(&mut self, why: Why, what: impl Into<String>, detail: impl fmt::Display) {
        self.counts[why as usize] += 1;
        if self.room(why) {
            self.named.push(Skip { why, what: what.into(), detail: detail.to_string() });
        }
    }

    /// Adds all of another.
    pub fn add_all(&mut self, other: &Self) {
        for (own, other) in self.counts.iter_mut().zip(other.counts) {
            *own += other;
        }
        for skip in &other.named {
            if self.room(skip.why) {
                self.named.push(skip.clone());
            }
        }
    }

    fn room(&self, why: Why) -> bool {
        self.named.iter().filter(|skip| skip.why == why).count() < NAMED
    }

    /// How many were passed over for this reason.
    #[must_use]
    pub const fn count(&self, why: Why) -> u64 {
        self.counts[why as usize]
    }

    /// How many in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The first few of each kind.
    #[must_use]
    pub fn named(&self) -> &[Skip] {
        &self.named
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_counted_and_the_first_of_each_kind_are_named() {
        let mut skipped = Skipped::default();
        for at in 0..10_000 {
            skipped.add(Why::Stray, format!("/stray{at}"), "");
        }
        let mut other = Skipped::default();
        other.add(Why::BadBundle, "/c", "not JSON");
        skipped.add_all(&other);
        assert_eq!((skipped.count(Why::Stray), skipped.count(Why::BadBundle), skipped.total()), (10_000, 1, 10_001));
        assert_eq!(skipped.named().len(), NAMED + 1);
    }

    #[test]
    fn every_reason_has_a_label_of_its_own() {
        let labels: std::collections::HashSet<_> = Why::ALL.into_iter().map(Why::label).collect();
        assert_eq!(labels.len(), Why::ALL.len());
        assert!(Why::ALL.into_iter().enumerate().all(|(at, why)| why as usize == at));
    }
}
