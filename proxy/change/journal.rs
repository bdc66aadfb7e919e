//! Which cgroups have changed, kept until somebody asks.

use crate::source::host::Change;

/// Changes that wait to be asked for; with more, it is not told which they were.
const MOST: usize = 1024;

/// What [`super::Source::changes`] is to tell next.
#[derive(Debug)]
pub(super) struct Journal {
    changes: Vec<Change>,
    /// There are changes that are not among them.
    pub(super) incomplete: bool,
}

// === impl Journal ===

impl Journal {
    pub(super) fn push(&mut self, change: Change) {
        if self.changes.len() < MOST {
            self.changes.push(change);
        } else {
            self.incomplete = true;
        }
    }

    /// All changes since the last call; `None` where some are not known.
    pub(super) fn take(&mut self) -> Option<Vec<Change>> {
        let taken = std::mem::replace(self, Self { changes: Vec::new(), incomplete: false });
        (!taken.incomplete).then_some(taken.changes)
    }
}

impl Default for Journal {
    /// What was there before it was not seen.
    fn default() -> Self {
        Self { changes: Vec::new(), incomplete: true }
    }
}
