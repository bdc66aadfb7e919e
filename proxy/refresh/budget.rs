//! How often the kubelet may be asked: a token bucket that counts calls.
//!
//! The kubelet grants 100 calls/s, burst 10, to everybody together; others may still go there directly, so we take a part.

use std::time::Duration;

use tokio::time::Instant;

/// What a call is for. Whoever is less urgent leaves tokens for those who are more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    /// Nobody asked: the slow look at what no event shows.
    Timer,
    /// Nobody asked: the kubelet lets go of things a while after the event.
    Settling,
    /// A client waits for one pod that no list has.
    Forward,
    /// A client wants a capture although nothing is known to have changed.
    Forced,
    /// Clients wait for a capture after a change.
    Waiter,
}

/// A token bucket in whole calls.
#[derive(Debug)]
pub(super) struct Budget {
    per_second: f64,
    burst: f64,
    tokens: f64,
    as_of: Instant,
    /// Of forced captures and forwarded Gets, which a client can ask for without end: what went last.
    last: Option<Urgency>,
    /// What waits while the other of the two went before it, and until when that is kept in mind.
    owed: Option<(Urgency, Instant)>,
}

/// How much later than told somebody may come whose turn it is.
const GRACE: Duration = Duration::from_millis(5);

// === impl Urgency ===

impl Urgency {
    /// Tokens that must be left for the more urgent.
    const fn leaves(self) -> f64 {
        match self {
            Self::Waiter => 0.0,
            Self::Settling | Self::Forward | Self::Forced => 1.0,
            Self::Timer => 2.0,
        }
    }

    /// Whether clients can ask for it without end: then it has to take turns.
    const fn takes_turns(self) -> bool {
        matches!(self, Self::Forward | Self::Forced)
    }
}

// === impl Budget ===

impl Budget {
    /// A full bucket. `per_second` is more than zero, `burst` at least one.
    #[must_use]
    pub(super) fn new(per_second: f64, burst: u32, now: Instant) -> Self {
        let burst = f64::from(burst.max(1));
        Self { per_second: per_second.max(f64::MIN_POSITIVE), burst, tokens: burst, as_of: now, last: None, owed: None }
    }

    /// Takes one call, or says how long to wait before it may be had.
    pub(super) fn take(&mut self, urgency: Urgency, now: Instant) -> Result<(), Duration> {
        self.refill(now);
        if let Some((owed, until)) = self.owed.filter(|(owed, until)| urgency.takes_turns() && *owed != urgency && *until > now) {
            debug_assert!(owed.takes_turns());
            return Err(until - now);
        }
        // Where the bucket cannot hold what would have to be left, a full bucket is enough.
        let needed = (1.0 + urgency.leaves()).min(self.burst);
        // A hair of tolerance: refilling adds up rounding errors, and a wait that comes out as zero must end.
        if self.tokens + 1e-9 >= needed {
            self.tokens -= 1.0;
            if urgency.takes_turns() {
                self.last = Some(urgency);
                self.owed = None;
            }
            return Ok(());
        }
        let wait = (needed - self.tokens) / self.per_second;
        // A timer has whole milliseconds: round up, so that one wait is enough.
        let wait = Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX).saturating_add(Duration::from_millis(1));
        if urgency.takes_turns() && self.last.is_some_and(|last| last != urgency) {
            // It comes back after its wait, if it still wants to.
            self.owed = now.checked_add(wait.saturating_add(GRACE)).map(|until| (urgency, until));
        }
        Err(wait)
    }

    fn refill(&mut self, now: Instant) {
        let gone = now.saturating_duration_since(self.as_of);
        self.tokens = (self.tokens + gone.as_secs_f64() * self.per_second).min(self.burst);
        self.as_of = now;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_timer_leaves_tokens_for_settling_and_settling_for_waiters() {
        let now = Instant::now();
        let mut budget = Budget::new(1.0, 4, now);
        for _ in 0..2 {
            assert_eq!(budget.take(Urgency::Timer, now), Ok(()));
        }
        assert!(budget.take(Urgency::Timer, now).is_err());
        assert_eq!(budget.take(Urgency::Settling, now), Ok(()));
        assert!(budget.take(Urgency::Settling, now).is_err());
        assert_eq!(budget.take(Urgency::Waiter, now), Ok(()));
        assert!(budget.take(Urgency::Waiter, now).is_err());
    }

    #[test]
    fn a_burst_of_one_serves_every_urgency() {
        let now = Instant::now();
        for urgency in [Urgency::Timer, Urgency::Settling, Urgency::Waiter] {
            assert_eq!(Budget::new(1.0, 1, now).take(urgency, now), Ok(()));
        }
    }

    /// Calls of each of the two kinds within ten seconds, where both always want more.
    fn turns(burst: u32) -> [u32; 2] {
        let start = Instant::now();
        let mut budget = Budget::new(20.0, burst, start);
        let kinds = [Urgency::Forward, Urgency::Forced];
        let (mut due, mut taken) = ([start; 2], [0; 2]);
        while let Some(at) = (0..2).min_by_key(|at| due[*at]).filter(|at| due[*at] < start + Duration::from_secs(10)) {
            match budget.take(kinds[at], due[at]) {
                Ok(()) => taken[at] += 1,
                Err(wait) => due[at] += wait,
            }
        }
        taken
    }

    #[test]
    fn forced_captures_and_forwarded_gets_take_turns() {
        for burst in [1, 2, 4, 10] {
            let [forward, forced] = turns(burst);
            assert!(forward.abs_diff(forced) <= burst + 1, "burst {burst}: {forward} Gets, {forced} captures");
            assert!(forward + forced >= 150, "burst {burst}: the budget is not used: {forward} Gets, {forced} captures");
        }
    }

    #[test]
    fn a_turn_that_nobody_takes_is_lost_after_its_time() {
        let now = Instant::now();
        let mut budget = Budget::new(1.0, 1, now);
        assert_eq!(budget.take(Urgency::Forward, now), Ok(()));
        let wait = budget.take(Urgency::Forced, now).unwrap_err();
        assert!(budget.take(Urgency::Forward, now + wait).is_err(), "it is the other's turn");
        assert_eq!(budget.take(Urgency::Forward, now + wait + GRACE), Ok(()));
    }

    proptest! {
        #[test]
        fn no_window_sees_more_calls_than_rate_and_burst_allow(steps in prop::collection::vec((0u64..200, 0u8..3), 1..200), rate in 1u32..50, burst in 1u32..10) {
            let start = Instant::now();
            let mut now = start;
            let mut budget = Budget::new(f64::from(rate), burst, start);
            let mut taken = 0u32;
            for (wait, urgency) in steps {
                now += Duration::from_millis(wait);
                let urgency = [Urgency::Timer, Urgency::Settling, Urgency::Waiter][usize::from(urgency)];
                if budget.take(urgency, now).is_ok() {
                    taken += 1;
                }
                let most = f64::from(burst) + (now - start).as_secs_f64() * f64::from(rate) + 1e-6;
                prop_assert!(f64::from(taken) <= most, "{taken} calls where {most} may be");
            }
        }

        #[test]
        fn the_wait_that_is_told_is_enough(rate in 0.1f64..1000.0, burst in 1u32..10) {
            let mut now = Instant::now();
            let mut budget = Budget::new(rate, burst, now);
            for _ in 0..30 {
                if let Err(wait) = budget.take(Urgency::Settling, now) {
                    now += wait;
                    prop_assert_eq!(budget.take(Urgency::Settling, now), Ok(()));
                }
            }
        }
    }
}
