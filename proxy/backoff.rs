//! How long to leave a kubelet alone that has just failed.

use std::time::Duration;

/// The first pause; each further failure doubles it.
const FIRST: Duration = Duration::from_millis(50);
/// The longest pause: a kubelet that comes back is seen by inotify at once, or after this.
const LONGEST: Duration = Duration::from_secs(5);

/// Exponential, with jitter, so that many nodes that lost their kubelets together do not come back together.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

// === impl Backoff ===

impl Backoff {
    /// Another failure: the pause before the next attempt. `jitter` is between 0 and 1.
    pub(crate) fn failed(&mut self, jitter: f64) -> Duration {
        let pause = FIRST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        pause.mul_f64(0.75 + 0.25 * jitter.clamp(0.0, 1.0))
    }

    /// It works again.
    pub(crate) const fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_anew_after_a_success() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u128> = (0..9).map(|_| backoff.failed(1.0).as_millis()).collect();
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        backoff.reset();
        assert_eq!(backoff.failed(0.0), FIRST.mul_f64(0.75));
    }

    #[test]
    fn it_may_fail_for_ever() {
        let mut backoff = Backoff { failures: u32::MAX };
        assert_eq!(backoff.failed(1.0), LONGEST);
    }
}
