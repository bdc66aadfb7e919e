//! What the refresher counts, and the figures of what is served.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::DescriptorEncoder;

use super::serving::{METHODS, add, load};
use super::{Collector, Method, counter, counters, gauge};

/// The refresher's counters. The one who writes holds an `Arc`.
#[derive(Debug, Default)]
pub struct Refreshing {
    /// Calls to the source, by method and [`Outcome`]. No client names these, so there is no "other" method among them.
    calls: [[AtomicU64; OUTCOMES.len()]; METHODS.len() - 1],
    captures: AtomicU64,
    published: AtomicU64,
    waits: AtomicU64,
    waits_expired: AtomicU64,
}

/// How a call to the source ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With a reply that could be used.
    Ok,
    /// The source's own rate limit.
    RateLimited,
    /// Nobody answered: connection refused, broken, no socket.
    Unreachable,
    /// No answer in time.
    Timeout,
    /// A reply that was cut off or does not parse.
    Unusable,
    /// Any other status.
    Error,
}

/// Figures that are read, not counted, at each scrape.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Changes seen so far.
    pub epoch: u64,
    /// Whether the source can be reached.
    pub source_up: bool,
    /// What is served; `None` before the first capture.
    pub snapshot: Option<SnapshotGauges>,
}

/// Figures of what is served.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SnapshotGauges {
    /// The epoch before which its capture did not begin.
    pub epoch: u64,
    /// Since its capture began.
    pub age: Duration,
    /// Pods in List.
    pub pods: u64,
    /// Length of the List message.
    pub list_bytes: u64,
    /// Length of the `GetAllocatableResources` message, 0 without one.
    pub allocatable_bytes: u64,
}

struct RefreshingCollector<F> {
    counts: Arc<Refreshing>,
    gauges: F,
}

/// Label `result`, in the order of [`Outcome`].
const OUTCOMES: [&str; 6] = ["ok", "rate_limited", "unreachable", "timeout", "unusable", "error"];

// === impl Refreshing ===

impl Refreshing {
    /// Counts a call to the source.
    pub fn called(&self, method: Method, outcome: Outcome) {
        if let Some(outcomes) = self.calls.get(method as usize) {
            add(&outcomes[outcome as usize]);
        }
    }

    /// Counts a capture, whether or not anything had changed.
    pub fn captured(&self) {
        add(&self.captures);
    }

    /// Counts a capture whose content was new and was published.
    pub fn published(&self) {
        add(&self.published);
    }

    /// Counts a request that could not be answered at once.
    pub fn waited(&self) {
        add(&self.waits);
    }

    /// Counts a wait that ended at its deadline.
    pub fn wait_expired(&self) {
        add(&self.waits_expired);
    }

    /// Calls so far: all, refused by the source's rate limit, failed in another way.
    pub fn upstream_calls(&self) -> (u64, u64, u64) {
        let by = |outcome: Outcome| self.calls.iter().map(|outcomes| load(&outcomes[outcome as usize])).sum::<u64>();
        let (all, refused) = (self.calls.iter().flatten().map(load).sum::<u64>(), by(Outcome::RateLimited));
        (all, refused, all.saturating_sub(by(Outcome::Ok) + refused))
    }

    /// Publishes these counters, and the gauges as `gauges` finds them at each scrape.
    pub fn collector(self: &Arc<Self>, gauges: impl Fn() -> Gauges + Send + Sync + 'static) -> Box<dyn Collector> {
        Box::new(RefreshingCollector { counts: Arc::clone(self), gauges })
    }
}

// === impl RefreshingCollector ===

impl<F: Fn() -> Gauges + Send + Sync + 'static> Collector for RefreshingCollector<F> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (e, counts) = (&mut encoder, &self.counts);
        let calls = METHODS.iter().zip(&counts.calls).flat_map(|((api, method), outcomes)| {
            OUTCOMES
                .iter()
                .zip(outcomes)
                .map(move |(result, n)| ([("api", *api), ("method", *method), ("result", *result)], load(n)))
        });
        counters(e, "upstream_calls", "Calls to the source", calls)?;
        counter(e, "captures", "Captures of the source's state", load(&counts.captures))?;
        counter(e, "changes_published", "Captures whose content was new", load(&counts.published))?;
        counter(e, "waits", "Requests that waited for a capture", load(&counts.waits))?;
        counter(e, "waits_expired", "Requests whose deadline came before a capture that would do", load(&counts.waits_expired))?;

        let Gauges { epoch, source_up, snapshot } = (self.gauges)();
        gauge(e, "epoch", "Changes seen so far", Some(epoch))?;
        gauge(e, "source_up", "Whether the source can be reached", Some(u64::from(source_up)))?;
        gauge(e, "snapshot_epoch", "The epoch before which the snapshot's capture did not begin", snapshot.map(|s| s.epoch))?;
        gauge(e, "snapshot_age_seconds", "Since the snapshot's capture began", snapshot.map(|s| s.age.as_secs_f64()))?;
        gauge(e, "snapshot_pods", "Pods in the snapshot", snapshot.map(|s| s.pods))?;
        gauge(e, "snapshot_list_bytes", "Length of the List message", snapshot.map(|s| s.list_bytes))?;
        gauge(e, "snapshot_allocatable_bytes", "Length of the allocatable message", snapshot.map(|s| s.allocatable_bytes))
    }
}

impl<F> fmt::Debug for RefreshingCollector<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RefreshingCollector").field("counts", &self.counts).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::metrics::{Format, Metrics};

    #[test]
    fn what_the_refresher_counts_and_what_is_served_are_told() {
        let counts = Arc::<Refreshing>::default();
        counts.called(Method::List, Outcome::Ok);
        counts.called(Method::List, Outcome::RateLimited);
        counts.called(Method::AlphaList, Outcome::Error);
        counts.called(Method::Other, Outcome::Ok);
        counts.captured();
        counts.captured();
        counts.published();
        counts.waited();
        counts.wait_expired();
        assert_eq!(counts.upstream_calls(), (3, 1, 1));

        let snapshot =
            SnapshotGauges { epoch: 7, age: Duration::from_millis(1500), pods: 110, list_bytes: 9000, allocatable_bytes: 0 };
        let mut metrics = Metrics::new();
        metrics.register(counts.collector(move || Gauges { epoch: 8, source_up: true, snapshot: Some(snapshot) }));
        let scrape = metrics.encode(Format::Prometheus).unwrap();
        for line in [
            r#"upstream_calls_total{api="v1",method="List",result="rate_limited"} 1"#,
            r#"upstream_calls_total{api="v1alpha1",method="List",result="error"} 1"#,
            r#"upstream_calls_total{api="v1",method="Get",result="ok"} 0"#,
            "captures_total 2",
            "changes_published_total 1",
            "waits_total 1",
            "waits_expired_total 1",
            "epoch 8",
            "source_up 1",
            "snapshot_epoch 7",
            "snapshot_age_seconds 1.5",
            "snapshot_pods 110",
            "snapshot_list_bytes 9000",
            "snapshot_allocatable_bytes 0",
        ] {
            let line = format!("podresources_proxy_{line}");
            assert!(scrape.lines().any(|other| other == line), "no {line} in\n{scrape}");
        }
    }

    #[test]
    fn before_the_first_capture_the_snapshot_has_no_figures() {
        let mut metrics = Metrics::new();
        metrics.register(Arc::<Refreshing>::default().collector(Gauges::default));
        let scrape = metrics.encode(Format::Prometheus).unwrap();
        assert!(scrape.contains("# TYPE podresources_proxy_snapshot_pods gauge\n"));
        assert!(!scrape.contains("\npodresources_proxy_snapshot_pods "), "{scrape}");
    }
}
