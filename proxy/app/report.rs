//! What the admin server tells: status, metrics, readiness.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, timeout};

use super::clients::{Admission, Clientele};
use super::drift::Drift;
use super::{Config, host, metrics, sources};
use crate::admin::status::{Freshness, Rights, Saved, Snapshot, Source, Status, Timestamp, Upstream};
use crate::admin::{Heartbeats, Latch, LogLevel, Metrics, Parts, Readiness};
use crate::change::Sources;
use crate::keep;
use crate::refresh::{CALLS, Handle, Reach};
use crate::rights;
use crate::source::Host;
use crate::source::failover::{Board, Wish};
use crate::{answer, config};

/// Has a view of everything, and changes nothing.
#[derive(Clone, Debug)]
pub(super) struct Reporter {
    pub(super) config: Arc<Config>,
    pub(super) handle: Handle,
    pub(super) host: Host,
    pub(super) board: Board,
    pub(super) drift: Drift,
    pub(super) sources: Sources,
    pub(super) clients: Clientele,
    pub(super) readiness: Readiness,
    pub(super) keep: Arc<keep::Report>,
    pub(super) rights: rights::Rights,
    pub(super) started: Instant,
}

// === impl Reporter ===

impl Reporter {
    pub(super) fn parts(self, heartbeats: Heartbeats, log_level: LogLevel) -> Parts {
        let mut metrics = Metrics::new();
        metrics.register(Box::new(metrics::Serving(self.clients.serving.clone())));
        metrics.register(Box::new(Admission(self.clients.table.clone())));
        metrics.register(Box::new(metrics::Refreshing(self.handle.clone())));
        metrics.register(Box::new(host::Metrics(self.host.clone())));
        if self.config.drift_check.is_some() {
            metrics.register(Box::new(self.drift.clone()));
        }
        metrics.register(Box::new(sources::Changes(self.sources.clone())));
        metrics.register(Box::new(metrics::Keeping(self.keep.clone())));
        metrics.register(Box::new(metrics::Peers(self.clients.resolver.clone())));
        metrics.register(Box::new(metrics::Rules(self.clients.rules.clone())));
        let (board, switching) = (self.board.clone(), self.clone());
        let (readiness, rules, clients) = (self.readiness.clone(), self.clients.rules.clone(), self.clients.clone());
        Parts {
            readiness,
            heartbeats,
            metrics,
            log_level,
            status: Box::new(move || self.status()),
            clients: Box::new(move || clients.all()),
            config: Box::new(move || rules.shown()),
            source: Box::new(move |wish| switching.switch_source(&board, wish)),
        }
    }

    fn status(&self) -> Status {
        let view = self.handle.view();
        let now = Instant::now();
        let list = view.list.as_ref();
        let stale = matches!(view.reach, Reach::Down { .. });
        let since = match &view.reach {
            Reach::Down { since, .. } => Some(at(*since, now)),
            Reach::Up | Reach::Untried => None,
        };
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            instance: format!("{:08x}", self.config.serve.serving.instance),
            uptime_s: self.started.elapsed().as_secs_f64(),
            mode: "cache".to_owned(),
            source: Source {
                kind: self.source().name().to_owned(),
                socket: self.config.kubelet.socket.display().to_string(),
                reachable: matches!(view.reach, Reach::Up),
                since,
                answers: self.handle.kubelet_answers(),
                last_error: self.handle.last_error(),
            },
            freshness: Freshness {
                epoch: self.handle.epoch(),
                snapshot_epoch: list.map_or(0, |part| part.epoch),
                age_s: list.map(|part| now.saturating_duration_since(part.begun).as_secs_f64()),
                stale,
            },
            drift: self.config.drift_check.map(|_| self.drift.status()),
            host: self.host.view().as_deref().map(host::status),
            change_sources: sources::status(&self.sources, &humantime::format_duration(self.config.refresh.interval).to_string()),
            snapshot: list.map(|part| Snapshot {
                pods: part.content.len() as u64,
                list_bytes: part.content.message().len() as u64,
                allocatable_bytes: view
                    .allocatable
                    .as_ref()
                    .and_then(|part| part.content.as_ref().ok())
                    .map(|allocatable| allocatable.message().len() as u64),
                digest: format!("{:032x}", part.content.digest()),
                captured_at: Some(at(part.begun, now)),
                kept_after_restart: self.handle.kept(),
                saved_earlier: part.is_saved(),
            }),
            saved: self.saved(),
            upstream: self.upstream(),
            clients: self.clients.summary(),
            rules: self.clients.rules(),
            rights: Rights { dropped: self.rights.dropped(), missing: self.rights.missing(), ..Rights::current() },
            readiness: self.readiness.report(),
        }
    }

    /// Takes an operator's wish, or says what is in force.
    fn switch_source(&self, board: &Board, wish: Option<&str>) -> Result<String, String> {
        if self.config.failover.is_none() || self.config.source == config::Source::Host {
            return match wish {
                None => Ok(self.source().name().to_owned()),
                Some(_) => Err("the source is switched only under --failover host, and not with --source host".to_owned()),
            };
        }
        if let Some(text) = wish {
            let wish = Wish::parse(text).ok_or_else(|| format!("{text:?} is none of auto, kubelet, host"))?;
            board.want(wish);
        }
        Ok(format!("{} (now: {})", board.wish().name(), self.source().name()))
    }

    /// Whose words are served; before the first, whose they will be as far as that is known.
    fn source(&self) -> answer::Source {
        let view = self.handle.view();
        match (&view.list, self.config.source) {
            (Some(_), _) => view.source,
            (None, config::Source::Host) => answer::Source::Host,
            (None, config::Source::Kubelet | config::Source::Auto) => answer::Source::Kubelet,
        }
    }

    fn saved(&self) -> Saved {
        let told = self.keep.told();
        Saved {
            dir: self.keep.dir().map(|dir| dir.display().to_string()),
            last_written: told.last_written.map(Timestamp),
            last_error: told.error,
            not_used: told.not_used,
        }
    }

    fn upstream(&self) -> Upstream {
        let stats = self.handle.stats();
        let by = |result: usize| stats.calls.iter().map(|results| results[result].get()).sum::<u64>();
        let all: u64 = stats.calls.iter().flatten().map(crate::refresh::Counter::get).sum();
        debug_assert_eq!(stats.calls.len(), CALLS.len());
        let (ok, refused) = (by(0), by(4));
        Upstream {
            calls: all,
            refused,
            failed: all.saturating_sub(ok + refused),
            rate: self.config.refresh.upstream_rate,
            burst: f64::from(self.config.refresh.upstream_burst),
            waiting: self.handle.waiting() as u64,
        }
    }
}

/// Waits for something to serve; meanwhile readiness says what keeps it from coming.
pub(super) async fn until_first_capture(handle: &Handle, latch: &Latch, max_stale: Duration) {
    const LOOK: Duration = Duration::from_millis(100);
    loop {
        let error = handle.last_error().map(|error| format!(": {error}")).unwrap_or_default();
        let view = handle.view();
        let meanwhile = view.list.as_ref().filter(|list| list.is_saved()).map(|list| {
            let age = list.begun.elapsed();
            let too_old = age > max_stale;
            let age = humantime::format_duration(Duration::from_secs(age.as_secs()));
            match view.reach {
                _ if too_old => format!("; what an earlier instance saved is too old to be given, {age}"),
                Reach::Down { .. } => format!("; answers come from a snapshot that an earlier instance saved, {age} old"),
                Reach::Up | Reach::Untried => format!("; a snapshot that an earlier instance saved is there, {age} old"),
            }
        });
        latch.because(format!("the kubelet has not answered a first List yet{error}{}", meanwhile.unwrap_or_default()));
        if timeout(LOOK, handle.first_capture()).await.is_ok() {
            return;
        }
    }
}

/// Says once that there is something to serve.
pub(super) fn first_capture(handle: &Handle) {
    let view = handle.view();
    let Some(list) = &view.list else { return };
    let took: Duration = list.begun.elapsed();
    tracing::info!(pods = list.content.len(), bytes = list.content.message().len(), ?took, "first capture");
}

/// A moment of the monotonic clock as the wall clock shows it now.
fn at(moment: Instant, now: Instant) -> Timestamp {
    Timestamp(SystemTime::now() - now.saturating_duration_since(moment))
}
