//! Sources that do nothing by themselves: the timer, and those that cannot be had.

use super::epoch::Epoch;
use super::source::{PartReport, Source, State};

/// A source that is one word in a report.
#[derive(Clone, Debug)]
pub(super) struct Plain {
    name: &'static str,
    part: PartReport,
}

// === impl Plain ===

impl Plain {
    /// The refresher's own timer: it captures and does not count.
    pub(super) fn timer() -> Self {
        Self::new("timer", "timer", State::Attached)
    }

    /// A source that is chosen and cannot be had.
    pub(super) fn new(name: &'static str, part: &str, state: State) -> Self {
        Self { name, part: PartReport { name: part.to_owned(), state, events: 0, losses: 0 } }
    }
}

impl Source for Plain {
    fn name(&self) -> &'static str {
        self.name
    }

    fn parts(&self) -> Vec<PartReport> {
        vec![self.part.clone()]
    }

    fn mend(&self, _: &Epoch) {}
}
