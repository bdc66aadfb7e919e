//! When to capture although nobody waits.
//!
//! The kubelet lets go of what a pod held *after* the kernel's event, and some changes show no event at all: so a burst of changes
//! is followed by captures at once, 0.25 s, 1 s and 3 s after its first event, and a slow timer looks every few seconds.

use std::time::Duration;

use tokio::time::Instant;

use super::budget::Urgency;

/// After a burst's first event, whatever comes later in the burst.
const SETTLING: [Duration; 4] = [Duration::ZERO, Duration::from_millis(250), Duration::from_secs(1), Duration::from_secs(3)];

/// What is due and when.
#[derive(Debug)]
pub(super) struct Schedule {
    interval: Duration,
    timer: Instant,
    burst: Option<Burst>,
}

#[derive(Debug)]
struct Burst {
    began: Instant,
    /// Index into [`SETTLING`] of the next capture.
    next: usize,
    /// Something changed after the first event: when this burst has settled, another begins.
    more: bool,
}

// === impl Schedule ===

impl Schedule {
    /// The first timer is due at once.
    #[must_use]
    pub(super) const fn new(interval: Duration, now: Instant) -> Self {
        Self { interval, timer: now, burst: None }
    }

    /// Something changed.
    pub(super) fn changed(&mut self, now: Instant) {
        match &mut self.burst {
            Some(burst) => burst.more = true,
            None => self.burst = Some(Burst { began: now, next: 0, more: false }),
        }
    }

    /// What could not be captured may be captured again: at once.
    pub(super) const fn hurry(&mut self, now: Instant) {
        self.timer = now;
        self.burst = None;
    }

    /// When the next capture is due, and how urgent it is then.
    pub(super) fn next(&self) -> (Instant, Urgency) {
        match self.burst.as_ref().map(Burst::due) {
            Some(due) if due <= self.timer => (due, Urgency::Settling),
            _ => (self.timer, Urgency::Timer),
        }
    }

    /// A capture began at `begun`, for whatever reason: all that was due by then is done.
    pub(super) fn captured(&mut self, begun: Instant) {
        self.timer = begun + self.interval;
        while let Some(burst) = &mut self.burst
            && burst.due() <= begun
        {
            burst.next += 1;
            if burst.next == SETTLING.len() {
                self.burst = burst.more.then_some(Burst { began: begun, next: 1, more: false });
            }
        }
    }

    /// Nothing can be captured now: look again at `then`.
    pub(super) fn put_off(&mut self, then: Instant) {
        self.timer = then;
        if let Some(burst) = &mut self.burst
            && burst.due() < then
        {
            burst.began = then.checked_sub(SETTLING[burst.next]).unwrap_or(then);
        }
    }
}

// === impl Burst ===

impl Burst {
    fn due(&self) -> Instant {
        self.began + SETTLING[self.next]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(10);

    /// Captures as they fall due until `end`, with changes at these milliseconds; when each capture was, in milliseconds.
    fn captures(changes: &[u64], end: u64) -> Vec<u64> {
        let start = Instant::now();
        let mut schedule = Schedule::new(INTERVAL, start);
        schedule.captured(start);
        let mut changes = changes.iter().copied().peekable();
        let mut seen = Vec::new();
        loop {
            let (due, _) = schedule.next();
            let due = u64::try_from((due - start).as_millis()).unwrap();
            if let Some(change) = changes.next_if(|change| *change <= due) {
                schedule.changed(start + Duration::from_millis(change));
                continue;
            }
            if due > end {
                return seen;
            }
            schedule.captured(start + Duration::from_millis(due));
            seen.push(due);
        }
    }

    #[test]
    fn a_quiet_node_is_looked_at_by_the_timer_alone() {
        assert_eq!(captures(&[], 35_000), [10_000, 20_000, 30_000]);
    }

    #[test]
    fn a_change_is_captured_at_once_and_three_times_after() {
        assert_eq!(captures(&[500], 12_000), [500, 750, 1_500, 3_500]);
    }

    #[test]
    fn later_changes_never_push_a_settling_capture_back_and_are_settled_themselves() {
        let changes: Vec<u64> = (500..3_400).step_by(100).collect();
        assert_eq!(captures(&changes, 8_000), [500, 750, 1_500, 3_500, 3_750, 4_500, 6_500]);
    }

    #[test]
    fn one_late_capture_does_for_all_that_was_due() {
        let start = Instant::now();
        let mut schedule = Schedule::new(INTERVAL, start);
        schedule.changed(start);
        schedule.captured(start + Duration::from_millis(1_200));
        assert_eq!(schedule.next(), (start + Duration::from_secs(3), Urgency::Settling));
    }

    #[test]
    fn put_off_captures_come_when_they_were_put_off_to() {
        let start = Instant::now();
        let mut schedule = Schedule::new(INTERVAL, start);
        schedule.changed(start);
        let then = start + Duration::from_secs(2);
        schedule.put_off(then);
        assert_eq!(schedule.next(), (then, Urgency::Settling));
    }
}
