//! The time between the sight of a new directory and its being watched, in which changes there go unseen.

use std::sync::atomic::{AtomicU64, Ordering};

/// Open while something is to be looked at again. Whoever asks for the epoch meanwhile counts one change for safety's sake; the look
/// itself, which walks directories, is left to the thread that watches.
#[derive(Debug, Default)]
pub(super) struct Gap {
    wanted: AtomicU64,
    done: AtomicU64,
}

// === impl Gap ===

impl Gap {
    /// Something is to be looked at (again).
    pub(super) fn open(&self) {
        self.wanted.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn is_open(&self) -> bool {
        self.wanted.load(Ordering::SeqCst) != self.done.load(Ordering::SeqCst)
    }

    /// What a look that begins now will have seen. `None`: there is nothing to look at.
    pub(super) fn begin(&self) -> Option<u64> {
        let wanted = self.wanted.load(Ordering::SeqCst);
        (wanted != self.done.load(Ordering::SeqCst)).then_some(wanted)
    }

    /// The look is over. Where it found something that was not watched, a change must have been counted before this call. Stays open
    /// where more was seen meanwhile.
    pub(super) fn close(&self, begun: u64) {
        self.done.store(begun, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_seen_during_a_look_keeps_the_gap_open() {
        let gap = Gap::default();
        assert_eq!(gap.begin(), None);
        gap.open();
        let begun = gap.begin().unwrap();
        gap.open();
        gap.close(begun);
        assert!(gap.is_open());
        gap.close(gap.begin().unwrap());
        assert!(!gap.is_open());
    }
}
