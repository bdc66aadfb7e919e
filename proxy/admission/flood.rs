//! Whether a client goes on calling although it is refused: refusals of one second, counted in one word.
//!
//! `tests/loom` compiles this file with loom's atomics.

use std::sync::atomic::Ordering::Relaxed;

use super::atomic::AtomicU64;

/// How long refusals are counted together, in milliseconds.
const WINDOW: u64 = 1_000;
/// Bits of the word for the count; the rest is the millisecond in which the window began, plus one.
const COUNT_BITS: u32 = 24;
const MOST: u64 = (1 << COUNT_BITS) - 1;

/// Refusals of late.
#[derive(Debug)]
pub(super) struct Flood {
    window: AtomicU64,
}

// === impl Flood ===

impl Flood {
    /// Nothing was refused yet.
    pub(super) fn new() -> Self {
        Self { window: AtomicU64::new(0) }
    }

    /// Counts a refusal; whether there were more than `bearable` within a second. Then the count begins anew.
    pub(super) fn refused(&self, bearable: u64, now: u64) -> bool {
        let now = now / 1_000_000 + 1;
        let mut word = self.window.load(Relaxed);
        loop {
            let (began, count) = (word >> COUNT_BITS, word & MOST);
            let (began, count) = if began == 0 || now.saturating_sub(began) >= WINDOW { (now, 1) } else { (began, count + 1) };
            let over = count > bearable.min(MOST - 1);
            let next = if over { 0 } else { (began << COUNT_BITS) | count };
            match self.window.compare_exchange_weak(word, next, Relaxed, Relaxed) {
                Ok(_) => return over,
                Err(other) => word = other,
            }
        }
    }

    /// Whether no refusal is remembered that could still count.
    pub(super) fn is_over(&self, now: u64) -> bool {
        let began = self.window.load(Relaxed) >> COUNT_BITS;
        began == 0 || (now / 1_000_000 + 1).saturating_sub(began) >= WINDOW
    }
}
