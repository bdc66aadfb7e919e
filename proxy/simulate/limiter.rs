//! The kubelet's one rate limiter, for both API versions, all methods and all clients: a token bucket that never makes anyone wait.

use tokio::time::Instant;

/// Calls per second, and how many at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Tokens that come back each second.
    pub per_second: f64,
    /// Tokens that there can be.
    pub burst: u32,
}

/// A token bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limiter {
    rate: Rate,
    tokens: f64,
    last: Instant,
}

// === impl Rate ===

impl Rate {
    /// The kubelet's own: 100/s, burst 10 (`podresources.DefaultQPS`, `DefaultBurstTokens`).
    pub const KUBELET: Self = Self { per_second: 100.0, burst: 10 };
}

// === impl Limiter ===

impl Limiter {
    /// A full bucket.
    pub(super) fn new(rate: Rate, now: Instant) -> Self {
        Self { rate, tokens: f64::from(rate.burst), last: now }
    }

    /// Takes a token if there is one.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let back = now.saturating_duration_since(self.last).as_secs_f64() * self.rate.per_second;
        self.last = self.last.max(now);
        self.tokens = (self.tokens + back).min(f64::from(self.rate.burst));
        let granted = self.tokens >= 1.0;
        if granted {
            self.tokens -= 1.0;
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_burst_is_granted_and_then_one_call_each_ten_milliseconds() {
        let start = Instant::now();
        let mut limiter = Limiter::new(Rate::KUBELET, start);
        assert_eq!((0..50).filter(|_| limiter.take(start)).count(), 10);
        assert!(!limiter.take(start + Duration::from_millis(9)));
        assert!(limiter.take(start + Duration::from_millis(11)));
        assert!(!limiter.take(start + Duration::from_millis(12)));
    }

    #[tokio::test]
    async fn a_long_rest_fills_the_bucket_no_further_than_its_burst() {
        let start = Instant::now();
        let mut limiter = Limiter::new(Rate::KUBELET, start);
        let later = start + Duration::from_hours(1);
        assert_eq!((0..50).filter(|_| limiter.take(later)).count(), 10);
    }
}
