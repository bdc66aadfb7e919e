//! The answering side: any number of threads, no lock where the snapshot is fresh.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use super::demand::Lane;
use super::gets::{self, Job};
use super::stats::Stats;
use super::view::{Need, Part, Reach, Verdict, View};
use super::{Activity, Shared};
use crate::answer::{Answer, Answers, Ask, Freshness, Terms, Wait, Who};
use crate::config::OnStale;
use crate::grpc::{Code, Status};
use crate::snapshot::{Lookup, PodList, PodName};

/// How long those wait at most for an answer as new as it should be who would then have the last good one.
const BEFORE_STALE: Duration = Duration::from_secs(1);

/// Answers from what the refresher publishes. A clone shares everything.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(super) shared: Arc<Shared>,
}

/// What can be said of a request at this moment.
enum Now {
    Said(Result<Answer, Status>),
    /// A capture has to come first.
    Wait,
    /// The snapshot is fresh and has no such pod, or has it twice: the kubelet has to be asked.
    Forward,
}

// === impl Handle ===

impl Answers for Handle {
    fn at_once(&self, ask: &Ask, terms: &Terms) -> Result<Result<Answer, Status>, Wait> {
        let wait = Wait { epoch: self.shared.epoch.now(), arrived: Instant::now() };
        let need = Need { epoch: wait.epoch, arrived: wait.arrived, max_age: terms.max_age };
        match self.look(ask, &need, wait.arrived) {
            Now::Said(said) => Ok(said.and_then(|answer| unless_stale(answer, terms))),
            Now::Wait | Now::Forward => Err(wait),
        }
    }

    async fn wait(&self, ask: Ask, terms: Terms, who: Who, wait: Wait, deadline: Instant) -> Result<Answer, Status> {
        self.shared.stats.waits.add();
        let need = Need { epoch: wait.epoch, arrived: wait.arrived, max_age: terms.max_age };
        let mut answer = pin!(self.answer(&ask, who, need));
        if terms.on_stale == Some(OnStale::Serve) {
            let left = deadline.saturating_duration_since(wait.arrived);
            let early = timeout_at(wait.arrived + BEFORE_STALE.min(left / 2), answer.as_mut()).await;
            let in_vain = matches!(&early, Err(_) | Ok(Err(Status { code: Code::Unavailable, .. })));
            if in_vain && let Some(last) = self.last_good(&ask, Instant::now()) {
                return Ok(last);
            }
            if let Ok(answer) = early {
                return answer;
            }
        }
        let answer = timeout_at(deadline, answer).await.unwrap_or_else(|_| {
            self.shared.stats.expired.add();
            Err(self.waited_in_vain(wait.arrived.elapsed()))
        });
        answer.and_then(|answer| unless_stale(answer, &terms))
    }
}

impl Handle {
    /// What is published now.
    pub fn view(&self) -> Arc<View> {
        self.shared.view.load_full()
    }

    /// The refresher's counters.
    pub fn stats(&self) -> &Stats {
        &self.shared.stats
    }

    /// The epoch at this moment.
    pub fn epoch(&self) -> u64 {
        self.shared.epoch.now()
    }

    /// Requests that wait for a capture.
    pub fn waiting(&self) -> usize {
        [Lane::List, Lane::Allocatable, Lane::AlphaList].into_iter().map(|lane| self.shared.demand.waiting(lane)).sum()
    }

    /// Which methods the kubelet has answered so far, and what that says of its version.
    pub fn kubelet_answers(&self) -> Option<String> {
        self.shared.kubelets().shown()
    }

    /// What went wrong last, if anything.
    pub fn last_error(&self) -> Option<String> {
        self.shared.activity().last_error
    }

    /// Pods kept after a kubelet restart that the kubelet does not tell itself, as `namespace/name`.
    pub fn kept(&self) -> Vec<String> {
        self.shared.activity().kept
    }

    /// Resolves once a first capture has been published, or the refresher is gone.
    pub async fn first_capture(&self) {
        let mut published = self.shared.published.subscribe();
        while !self.shared.view.load().has_capture() {
            if published.changed().await.is_err() {
                return;
            }
        }
    }

    async fn answer(&self, ask: &Ask, who: Who, mut need: Need) -> Result<Answer, Status> {
        // Whether the kubelet has said that it has no Get.
        let mut off = false;
        loop {
            match self.captured(ask, &need).await {
                Now::Said(said) => return said,
                Now::Wait => {}
                Now::Forward => {
                    let Ask::Get { namespace, name } = ask else {
                        return Err(Status::new(Code::Internal, "only a Get is forwarded"));
                    };
                    if off {
                        return Err(not_found(namespace, name));
                    }
                    match self.forward(who, namespace, name, need.epoch).await? {
                        Forwarded::Answer(answer) => return Ok(answer),
                        // Look once more, in a capture that begins now.
                        Forwarded::Off => {
                            off = true;
                            need = Need { max_age: Some(Duration::ZERO), arrived: Instant::now(), epoch: self.shared.epoch.now() };
                        }
                    }
                }
            }
        }
    }

    /// Waits until something other than "wait" can be said.
    async fn captured(&self, ask: &Ask, need: &Need) -> Now {
        let lane = match ask {
            Ask::List | Ask::Get { .. } => Lane::List,
            Ask::Allocatable => Lane::Allocatable,
            Ask::AlphaList => Lane::AlphaList,
        };
        // Subscribed before the first look, so that a publication between look and wait is not missed.
        let mut published = self.shared.published.subscribe();
        let _place = self.shared.demand.join(lane, need);
        loop {
            match self.look(ask, need, Instant::now()) {
                Now::Wait => {}
                now => return now,
            }
            if published.changed().await.is_err() {
                return Now::Said(Err(stopping()));
            }
        }
    }

    fn look(&self, ask: &Ask, need: &Need, now: Instant) -> Now {
        self.look_by(ask, Some(need), now)
    }

    /// The last good answer, however much has changed since, as long as it is younger than any stale one may be.
    fn last_good(&self, ask: &Ask, now: Instant) -> Option<Answer> {
        match self.look_by(ask, None, now) {
            Now::Said(Ok(answer)) => Some(answer),
            Now::Said(Err(_)) | Now::Wait | Now::Forward => None,
        }
    }

    /// `need`: `None` is content with the last good one.
    fn look_by(&self, ask: &Ask, need: Option<&Need>, now: Instant) -> Now {
        let view = self.shared.view.load();
        let max_stale = self.shared.config.max_stale;
        match ask {
            Ask::List => {
                let verdict = judge(need, view.list.as_ref(), &view.reach, now, max_stale);
                self.say(&view, view.list.as_ref(), verdict, now, |list| Ok(list.framed()))
            }
            Ask::AlphaList => {
                self.shared.alpha_asked(now);
                let verdict = judge(need, view.alpha.as_ref(), &view.reach, now, max_stale);
                self.say(&view, view.alpha.as_ref(), verdict, now, |reply| {
                    reply.as_ref().map(|list| list.framed()).map_err(Status::clone)
                })
            }
            Ask::Allocatable => {
                let verdict = judge(need, view.allocatable.as_ref(), &view.reach, now, max_stale);
                self.say(&view, view.allocatable.as_ref(), verdict, now, |reply| {
                    reply.as_ref().map(|allocatable| allocatable.framed()).map_err(Status::clone)
                })
            }
            Ask::Get { namespace, name } => {
                let verdict = judge(need, view.list.as_ref(), &view.reach, now, max_stale);
                self.look_up(&view, view.list.as_ref(), verdict, now, (namespace, name))
            }
        }
    }

    fn look_up(
        &self,
        view: &View,
        part: Option<&Part<Arc<PodList>>>,
        verdict: Verdict,
        now: Instant,
        (namespace, name): (&str, &str),
    ) -> Now {
        let found = match part {
            Some(part) => part.content.get(namespace, name),
            None => Lookup::Absent,
        };
        match (verdict, found) {
            (Verdict::Fresh | Verdict::Stale, Lookup::Found(_)) if is_known_in_part(view, namespace, name) => {
                Now::Said(Err(Status::new(
                    Code::Unavailable,
                    format!(
                        "podresources-proxy: the host answers in the kubelet's place, and only the kubelet knows the devices of pod {name} in namespace {namespace}"
                    ),
                )))
            }
            (Verdict::Fresh | Verdict::Stale, Lookup::Found(framed)) => self.say(view, part, verdict, now, |_| Ok(framed)),
            (Verdict::Fresh, Lookup::Absent | Lookup::Ambiguous) => Now::Forward,
            // "Not found" is never said from an old snapshot.
            (Verdict::Stale, _) => {
                Now::Said(Err(unreachable(&view.reach, now, "and the last good snapshot does not have this pod")))
            }
            (Verdict::Expired | Verdict::Wait, _) => self.say(view, part, verdict, now, |_| Ok(Bytes::new())),
        }
    }

    fn say<T>(
        &self,
        view: &View,
        part: Option<&Part<T>>,
        verdict: Verdict,
        now: Instant,
        framed: impl FnOnce(&T) -> Result<Bytes, Status>,
    ) -> Now {
        match (verdict, part) {
            (Verdict::Wait, _) | (_, None) => Now::Wait,
            (Verdict::Expired, _) if self.shared.config.failover => Now::Wait,
            (Verdict::Expired, Some(part)) => {
                let limit = humantime::format_duration(self.shared.config.max_stale);
                let so = if part.is_saved() {
                    let age = humantime::format_duration(whole_seconds(now.saturating_duration_since(part.begun)));
                    format!("and what an earlier instance saved is {age} old, longer than --max-stale {limit}")
                } else {
                    format!("longer than --max-stale {limit}")
                };
                Now::Said(Err(unreachable(&view.reach, now, &so)))
            }
            (Verdict::Fresh | Verdict::Stale, Some(part)) => {
                let freshness = Freshness {
                    age: now.saturating_duration_since(part.begun),
                    epoch: part.epoch,
                    source: view.source,
                    stale: verdict == Verdict::Stale,
                };
                Now::Said(framed(&part.content).map(|framed| Answer { framed, freshness }))
            }
        }
    }

    /// Has the kubelet asked for one pod.
    async fn forward(&self, who: Who, namespace: &str, name: &str, epoch: u64) -> Result<Forwarded, Status> {
        let (reply, answer) = oneshot::channel();
        let job = Job { who, namespace: namespace.to_owned(), name: name.to_owned(), epoch, reply };
        match self.shared.gets.try_send(job) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => {
                return Err(gets::too_many());
            }
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(stopping()),
        }
        answer.await.map_err(|_| stopping())?
    }

    fn waited_in_vain(&self, waited: Duration) -> Status {
        let Activity { doing, last_error, .. } = self.shared.activity();
        let waited = humantime::format_duration(Duration::from_millis(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX)));
        let error = last_error.map(|error| format!("; last error: {error}")).unwrap_or_default();
        let text = format!("podresources-proxy: no answer newer than the last change within {waited}: {doing}{error}");
        Status::new(Code::Unavailable, text)
    }
}

/// What may be done with a part: for a need, or for who is content with the last good one.
fn judge<T>(need: Option<&Need>, part: Option<&Part<T>>, reach: &Reach, now: Instant, max_stale: Duration) -> Verdict {
    match (need, part) {
        (Some(need), part) => need.judge(part, reach, now, max_stale),
        (None, Some(part)) if now.saturating_duration_since(part.begun) <= max_stale => Verdict::Stale,
        (None, _) => Verdict::Wait,
    }
}

/// Whether the source cannot tell all of a pod.
fn is_known_in_part(view: &View, namespace: &str, name: &str) -> bool {
    view.unknown
        .as_ref()
        .is_some_and(|unknown| unknown.contains(&PodName { namespace: namespace.to_owned(), name: name.to_owned() }))
}

/// Whoever would rather have an error than a stale answer has one.
fn unless_stale(answer: Answer, terms: &Terms) -> Result<Answer, Status> {
    if answer.freshness.stale && terms.on_stale == Some(OnStale::Fail) {
        let text = "podresources-proxy: the kubelet cannot be reached, and this client's class takes no stale answer (on_stale = \"fail\")";
        return Err(Status::new(Code::Unavailable, text));
    }
    Ok(answer)
}

/// What came of a forwarded Get.
#[derive(Clone, Debug)]
pub(super) enum Forwarded {
    /// The kubelet's answer.
    Answer(Answer),
    /// The kubelet has no Get.
    Off,
}

/// The kubelet's own words for a pod that it does not know.
fn not_found(namespace: &str, name: &str) -> Status {
    Status::new(Code::Unknown, format!("pod {name} in namespace {namespace} not found"))
}

fn stopping() -> Status {
    Status::new(Code::Unavailable, "podresources-proxy: shutting down")
}

/// That the kubelet cannot be reached, since when, what that means for the request, and why.
pub(super) fn unreachable(reach: &Reach, now: Instant, so: &str) -> Status {
    let Reach::Down { since, why, .. } = reach else { return stopping() };
    let ago = whole_seconds(now.saturating_duration_since(*since));
    let since = humantime::format_rfc3339_seconds(SystemTime::now() - ago);
    let ago = humantime::format_duration(ago);
    let text = format!("podresources-proxy: the kubelet cannot be reached since {since} ({ago}), {so}: {why}");
    Status::new(Code::Unavailable, text)
}

/// For people.
const fn whole_seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs())
}
