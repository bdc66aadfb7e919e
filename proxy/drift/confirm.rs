//! Which findings last: one that is there at every look for long enough. Pure.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::{Finding, Kind};

/// Findings through several looks.
#[derive(Debug, Default)]
pub struct Confirmation {
    /// In place of each kind's own patience.
    patience: Option<Duration>,
    seen: HashMap<Finding, Seen>,
}

/// What a look brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// Confirmed now.
    pub begun: Vec<Finding>,
    /// They were confirmed, and are no more.
    pub ended: Vec<Finding>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    first: Instant,
    confirmed: bool,
}

// === impl Confirmation ===

impl Confirmation {
    /// With another patience than each kind's own.
    #[must_use]
    pub fn with_patience(patience: Option<Duration>) -> Self {
        Self { patience, ..Self::default() }
    }

    /// Takes in the findings of a look. At its first look nothing is ever confirmed.
    pub fn look(&mut self, now: Instant, findings: Vec<Finding>) -> News {
        let mut before = std::mem::take(&mut self.seen);
        let mut news = News::default();
        for finding in findings {
            let seen = match before.remove(&finding) {
                None => Seen { first: now, confirmed: false },
                Some(Seen { first, confirmed }) => {
                    let lasts = now.saturating_duration_since(first) >= self.patience_of(finding.kind);
                    if lasts && !confirmed {
                        news.begun.push(finding.clone());
                    }
                    Seen { first, confirmed: confirmed || lasts }
                }
            };
            self.seen.insert(finding, seen);
        }
        news.ended.extend(before.into_iter().filter(|(_, seen)| seen.confirmed).map(|(finding, _)| finding));
        news.begun.sort();
        news.ended.sort();
        news
    }

    /// What is confirmed, in order.
    #[must_use]
    pub fn confirmed(&self) -> Vec<Finding> {
        let confirmed = self.seen.iter().filter(|(_, seen)| seen.confirmed);
        let mut confirmed: Vec<Finding> = confirmed.map(|(finding, _)| finding.clone()).collect();
        confirmed.sort();
        confirmed
    }

    /// When the first of those that are not confirmed yet will be, if they last.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        let open = self.seen.iter().filter(|(_, seen)| !seen.confirmed);
        open.map(|(finding, seen)| seen.first + self.patience_of(finding.kind)).min()
    }

    fn patience_of(&self, kind: Kind) -> Duration {
        self.patience.unwrap_or_else(|| kind.patience())
    }
}
