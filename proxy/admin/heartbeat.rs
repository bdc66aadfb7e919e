//! Signs of life: threads touch a word, `/healthz` reads it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Every thread that promised a sign of life. Clones share one list.
#[derive(Clone, Debug)]
pub struct Heartbeats {
    /// What the words count from.
    started: Instant,
    promised: Arc<Mutex<Vec<Promise>>>,
}

/// One thread's sign of life. Dropping it ends the promise, unless a panic drops it: then the thread counts as late for ever.
#[derive(Debug)]
pub struct Heartbeat {
    started: Instant,
    /// Milliseconds since `started`, or one of the two words below.
    last: Arc<AtomicU64>,
}

/// A thread that has given no sign of life for longer than it promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Late {
    /// The thread.
    pub name: String,
    /// The time since its last sign; `None`: it panicked.
    pub silent: Option<Duration>,
    /// The longest silence that it promised.
    pub bound: Duration,
}

#[derive(Debug)]
struct Promise {
    name: String,
    bound: Duration,
    last: Arc<AtomicU64>,
}

/// The thread ended as it should.
const ENDED: u64 = u64::MAX;
/// The thread panicked.
const PANICKED: u64 = u64::MAX - 1;

// === impl Heartbeats ===

impl Heartbeats {
    /// No promises yet.
    pub fn new(now: Instant) -> Self {
        Self { started: now, promised: Arc::default() }
    }

    /// Promises a sign of life from `name` at least every `bound`, the first one now.
    pub fn promise(&self, name: impl Into<String>, bound: Duration, now: Instant) -> Heartbeat {
        let beat = Heartbeat { started: self.started, last: Arc::default() };
        beat.touch(now);
        let promise = Promise { name: name.into(), bound, last: Arc::clone(&beat.last) };
        self.promised.lock().unwrap_or_else(PoisonError::into_inner).push(promise);
        beat
    }

    /// Who is late at `now`.
    pub fn late(&self, now: Instant) -> Vec<Late> {
        let mut promised = self.promised.lock().unwrap_or_else(PoisonError::into_inner);
        promised.retain(|promise| promise.last.load(Ordering::Relaxed) != ENDED);
        promised.iter().filter_map(|promise| promise.late(now.saturating_duration_since(self.started))).collect()
    }
}

// === impl Promise ===

impl Promise {
    fn late(&self, now: Duration) -> Option<Late> {
        let silent = match self.last.load(Ordering::Relaxed) {
            ENDED => return None,
            PANICKED => None,
            last => match now.saturating_sub(Duration::from_millis(last)) {
                silent if silent <= self.bound => return None,
                silent => Some(silent),
            },
        };
        Some(Late { name: self.name.clone(), silent, bound: self.bound })
    }
}

// === impl Heartbeat ===

impl Heartbeat {
    /// Gives a sign of life.
    pub fn touch(&self, now: Instant) {
        let millis = now.saturating_duration_since(self.started).as_millis();
        self.last.store(u64::try_from(millis).unwrap_or(PANICKED - 1), Ordering::Relaxed);
    }

    /// Touches every `period` for as long as the runtime that runs this turns. Never returns; dropping it ends the promise.
    pub async fn beat(self, period: Duration) {
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.touch(Instant::now());
        }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        let word = if std::thread::panicking() { PANICKED } else { ENDED };
        self.last.store(word, Ordering::Relaxed);
    }
}

// === impl Late ===

impl std::fmt::Display for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.silent {
            Some(silent) => {
                write!(
                    f,
                    "{}: no sign of life for {:.1} s, promised every {:.1} s",
                    self.name,
                    silent.as_secs_f64(),
                    self.bound.as_secs_f64()
                )
            }
            None => write!(f, "{}: panicked", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_thread_is_late_past_its_own_bound_and_no_more_once_it_touches() {
        let start = Instant::now();
        let beats = Heartbeats::new(start);
        let quick = beats.promise("worker 0", 2 * SECOND, start);
        let _slow = beats.promise("refresher", 10 * SECOND, start);
        assert_eq!(beats.late(start + 2 * SECOND), []);
        let late = beats.late(start + 3 * SECOND);
        assert_eq!(late, [Late { name: "worker 0".into(), silent: Some(3 * SECOND), bound: 2 * SECOND }]);
        assert_eq!(late[0].to_string(), "worker 0: no sign of life for 3.0 s, promised every 2.0 s");
        quick.touch(start + 3 * SECOND);
        assert_eq!(beats.late(start + 3 * SECOND), []);
    }

    #[test]
    fn ending_well_ends_the_promise_and_a_panic_does_not() {
        let start = Instant::now();
        let beats = Heartbeats::new(start);
        drop(beats.promise("done", SECOND, start));
        let beat = beats.promise("broken", SECOND, start);
        let ended = std::thread::spawn(move || {
            let _beat = beat;
            panic!("on purpose");
        });
        assert!(ended.join().is_err());
        let late: Vec<_> = beats.late(start + 100 * SECOND).iter().map(ToString::to_string).collect();
        assert_eq!(late, ["broken: panicked"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_beating_task_is_never_late_and_its_end_ends_the_promise() {
        let beats = Heartbeats::new(Instant::now());
        let beat = beats.promise("worker", 2 * SECOND, Instant::now());
        let task = tokio::spawn(beat.beat(SECOND));
        for _ in 0..20 {
            tokio::time::sleep(SECOND).await;
            assert_eq!(beats.late(Instant::now()), []);
        }
        task.abort();
        assert!(task.await.is_err());
        assert_eq!(beats.late(Instant::now() + 100 * SECOND), []);
    }
}
