//! In the running proxy: the kubelet's view against the host's, after what has changed, and now and then.
//!
//! The kubelet is not asked for it: what is published is compared, once nothing has changed since. The host is read off this thread.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::DescriptorEncoder;
use prost::Message as _;
use tokio::time::{Instant, sleep, sleep_until};

use crate::admin::metrics::{Collector, counter, gauges};
use crate::admin::status;
use crate::answer::Source;
use crate::drift::{Confirmation, Finding, Kind, News, Told, compare};
use crate::kubepods::Kubepods;
use crate::proto::v1;
use crate::refresh::{Handle, Reach, View};
use crate::source::Host;

/// Between two comparisons, whatever changes.
const LEAST: Duration = Duration::from_secs(2);

/// How often to look whether what is published has settled.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Findings of one comparison that get a log line each; the rest is counted.
const LINES: usize = 8;

/// What was found so far. A clone shares everything.
#[derive(Clone, Debug, Default)]
pub(super) struct Drift(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    comparisons: u64,
    findings: Vec<Finding>,
}

/// What is compared, and how often.
#[derive(Clone, Debug)]
pub(super) struct Check {
    pub(super) handle: Handle,
    pub(super) host: Host,
    pub(super) kubepods: Kubepods,
    /// With nothing changed.
    pub(super) every: Duration,
}

// === impl Drift ===

impl Drift {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares for ever.
    pub(super) async fn watch(&self, check: Check) {
        let mut confirmation = Confirmation::default();
        let mut compared = 0;
        let mut at = Instant::now();
        loop {
            sleep(LOOK_EVERY).await;
            let now = Instant::now();
            let changed = check.handle.epoch() != compared || confirmation.due().is_some();
            if now < at + if changed { LEAST } else { check.every } {
                continue;
            }
            let view = check.handle.view();
            let Some(epoch) = settled(&view, check.handle.epoch()) else { continue };
            at = now;
            let (host, kubepods) = (check.host.clone(), check.kubepods.clone());
            // Who writes a cpuset meanwhile is seen by the next look.
            let findings = tokio::task::spawn_blocking(move || find(&view, &host, &kubepods)).await.ok().flatten();
            let Some(findings) = findings else { continue };
            if check.handle.epoch() != epoch {
                // One side is newer than the other.
                continue;
            }
            compared = epoch;
            tell(&confirmation.look(Instant::now(), findings));
            self.note(confirmation.confirmed());
            if let Some(due) = confirmation.due() {
                sleep_until(due.min(Instant::now() + LEAST)).await;
            }
        }
    }

    fn note(&self, findings: Vec<Finding>) {
        let mut state = self.state();
        state.comparisons += 1;
        state.findings = findings;
    }

    /// The section of `/status`.
    pub(super) fn status(&self) -> status::Drift {
        let state = self.state();
        let said = |finding: &Finding| format!("{}: {}: {}", finding.kind.name(), finding.whose(), finding.detail);
        status::Drift { comparisons: state.comparisons, findings: state.findings.iter().map(said).collect() }
    }
}

impl Collector for Drift {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (e, state) = (&mut encoder, self.state());
        let count = |kind| state.findings.iter().filter(|finding| finding.kind == kind).count() as u64;
        let kinds = Kind::ALL.into_iter().filter(|_| state.comparisons > 0).map(|kind| ([("kind", kind.name())], count(kind)));
        gauges(e, "drift", "What the kubelet and the host disagree on now, by kind", kinds)?;
        counter(e, "drift_comparisons", "Comparisons of the kubelet's view with the host's", state.comparisons)
    }
}

/// The epoch of what is published, where it is the kubelet's word and nothing has changed since.
fn settled(view: &View, epoch: u64) -> Option<u64> {
    let list = view.list.as_ref().filter(|list| !list.is_saved() && list.epoch == epoch)?;
    (view.source == Source::Kubelet && matches!(view.reach, Reach::Up)).then_some(list.epoch)
}

/// Blocks. `None`: one side cannot be read.
fn find(view: &View, host: &Host, kubepods: &Kubepods) -> Option<Vec<Finding>> {
    let list = v1::ListPodResourcesResponse::decode(view.list.as_ref()?.content.message()).ok()?;
    let allocatable = view.allocatable.as_ref().and_then(|part| part.content.as_ref().ok());
    let allocatable = allocatable.and_then(|reply| v1::AllocatableResourcesResponse::decode(reply.message()).ok());
    let seen = host.look(true).ok()?;
    Some(compare(&Told::new(list, allocatable.as_ref()), &seen, &kubepods.names()))
}

fn tell(news: &News) {
    for finding in news.begun.iter().take(LINES) {
        let (kind, of, cgroup) = (finding.kind.name(), finding.whose(), finding.cgroup.as_deref().unwrap_or_default());
        tracing::warn!(kind, of, cgroup, detail = finding.detail, "drift: the kubelet and the host disagree");
    }
    for finding in news.ended.iter().take(LINES) {
        tracing::info!(kind = finding.kind.name(), of = finding.whose(), "drift is over");
    }
    let more = (news.begun.len().saturating_sub(LINES), news.ended.len().saturating_sub(LINES));
    if more != (0, 0) {
        tracing::warn!(begun = more.0, ended = more.1, "more drift than is named here: podresources-proxy check");
    }
}
