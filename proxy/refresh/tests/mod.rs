//! The refresher and its handle together, against a kubelet in memory, in virtual time.

mod failover;
mod outage;
mod restart;
mod saved;
mod stale;
mod starvation;

use std::future::Future;
use std::path::PathBuf;

use bytes::Bytes;
use prost::Message;

use super::fake::{FakeKubelet, State};
use super::*;
use crate::answer::{Answer, Answers, Ask, Terms, Who};
use crate::change::{Kind, Settled};
use crate::grpc::{Code, Status};
use crate::keep::Saved;
use crate::proto::{v1, v1alpha1};
use crate::source::{Failure, Upstream};

/// A refresher at work, and what a client sees of it.
struct Rig {
    kubelet: FakeKubelet,
    handle: Handle,
    epoch: Arc<Epoch>,
    settled: watch::Sender<Option<Settled>>,
}

const SECOND: Duration = Duration::from_secs(1);

impl Rig {
    fn run<F: Future<Output = ()>>(test: impl FnOnce(Rig) -> F) {
        Self::run_with(|_| {}, test);
    }

    /// Runs a test with a refresher beside it, the clock paused.
    fn run_with<F: Future<Output = ()>>(set: impl FnOnce(&mut Config), test: impl FnOnce(Rig) -> F) {
        Self::run_from(set, |_| {}, || None, test);
    }

    /// The same, with a kubelet like this and with what an earlier instance has saved.
    fn run_from<F: Future<Output = ()>>(
        set: impl FnOnce(&mut Config),
        prepare: impl FnOnce(&mut State),
        saved: impl FnOnce() -> Option<Saved>,
        test: impl FnOnce(Rig) -> F,
    ) {
        Self::run_on(set, prepare, saved, |kubelet| kubelet, test);
    }

    /// The same, with another source that is made of the kubelet.
    fn run_on<F: Future<Output = ()>, U: Upstream>(
        set: impl FnOnce(&mut Config),
        prepare: impl FnOnce(&mut State),
        saved: impl FnOnce() -> Option<Saved>,
        source: impl FnOnce(FakeKubelet) -> U,
        test: impl FnOnce(Rig) -> F,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let epoch = Arc::new(Epoch::new(Vec::new()));
            let nowhere = PathBuf::from("/nonexistent");
            let mut config = Config {
                upstream_rate: 20.0,
                upstream_burst: 4,
                max_stale: Duration::from_mins(5),
                failover: false,
                restart_settle: Duration::from_mins(1),
                interval: Duration::from_secs(10),
                kubepods: Kubepods { cgroup_root: nowhere.clone(), pod_logs: nowhere },
            };
            set(&mut config);
            let (handle, channel) = channel(config, epoch.clone());
            let kubelet = FakeKubelet::default();
            kubelet.with(|state| {
                state.pods = vec![("a", vec!["dev-1"]), ("b", vec![])];
                state.devices = vec!["dev-1", "dev-2"];
                prepare(state);
            });
            let settled = watch::Sender::new(None);
            let refresher =
                Refresher::new(channel, source(kubelet.clone())).keeping(None, saved()).with_settled(Some(settled.subscribe()));
            let refresher = tokio::task::spawn_local(refresher.run());
            test(Rig { kubelet, handle, epoch, settled }).await;
            refresher.abort();
        });
    }

    async fn ask(&self, ask: Ask) -> Result<Answer, Status> {
        self.ask_on(ask, Terms::default()).await
    }

    async fn ask_on(&self, ask: Ask, terms: Terms) -> Result<Answer, Status> {
        match self.handle.at_once(&ask, &terms) {
            Ok(answer) => answer,
            Err(wait) => self.handle.wait(ask, terms, Who::ANYBODY, wait, Instant::now() + 10 * SECOND).await,
        }
    }

    async fn names(&self) -> Vec<String> {
        names(&self.ask(Ask::List).await.unwrap())
    }

    async fn get(&self, name: &str) -> Result<Answer, Status> {
        self.ask(Ask::Get { namespace: "ns".to_owned(), name: name.to_owned() }).await
    }

    fn at_once(&self) -> Option<Answer> {
        self.handle.at_once(&Ask::List, &Terms::default()).ok().map(|answer| answer.unwrap())
    }
}

fn names(answer: &Answer) -> Vec<String> {
    let reply = v1::ListPodResourcesResponse::decode(&answer.framed[5..]).unwrap();
    let mut names: Vec<_> = reply.pod_resources.into_iter().map(|pod| pod.name).collect();
    names.sort();
    names
}

fn devices(answer: &Answer) -> Vec<String> {
    let reply = v1::AllocatableResourcesResponse::decode(&answer.framed[5..]).unwrap();
    let mut ids: Vec<_> = reply.devices.into_iter().flat_map(|device| device.device_ids).collect();
    ids.sort();
    ids
}

#[test]
fn a_request_before_the_first_capture_waits_for_it() {
    Rig::run(|rig| async move {
        assert!(rig.at_once().is_none());
        assert_eq!(rig.names().await, ["a", "b"]);
        assert!(rig.at_once().is_some());
    });
}

#[test]
fn a_request_after_a_change_is_not_answered_from_before_it() {
    Rig::run(|rig| async move {
        rig.names().await;
        for round in 0..200 {
            let name = if round % 2 == 0 { "even" } else { "odd" };
            rig.kubelet.with(|state| state.pods = vec![(name, vec![])]);
            rig.epoch.bump(Kind::List);
            assert_eq!(rig.names().await, [name], "round {round}");
        }
    });
}

#[test]
fn a_change_during_a_capture_makes_another_one() {
    Rig::run(|rig| async move {
        rig.names().await;
        rig.kubelet.with(|state| state.latency = SECOND);
        rig.epoch.bump(Kind::List);
        let first = rig.ask(Ask::List);
        let late = async {
            tokio::time::sleep(SECOND / 2).await;
            rig.kubelet.with(|state| state.pods = vec![("late", vec![])]);
            rig.epoch.bump(Kind::List);
            rig.names().await
        };
        let (first, late) = tokio::join!(first, late);
        assert_eq!(names(&first.unwrap()), ["a", "b"], "it knew of the first change only");
        assert_eq!(late, ["late"]);
    });
}

#[test]
fn one_flight_serves_all_who_wait() {
    Rig::run(|rig| async move {
        rig.names().await;
        tokio::time::sleep(5 * SECOND).await;
        let before = rig.kubelet.calls("List");
        rig.kubelet.with(|state| state.latency = SECOND / 10);
        rig.epoch.bump(Kind::List);
        let asks = (0..100).map(|_| rig.ask(Ask::List));
        for answer in futures_join_all(asks).await {
            answer.unwrap();
        }
        assert_eq!(rig.kubelet.calls("List") - before, 1);
    });
}

async fn futures_join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut pinned: Vec<_> = futures.map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = pinned.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, output) in pinned.iter_mut().zip(&mut outputs) {
            if output.is_none()
                && let std::task::Poll::Ready(done) = future.as_mut().poll(context)
            {
                *output = Some(done);
            }
        }
        if outputs.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    outputs.into_iter().flatten().collect()
}

#[test]
fn a_storm_of_changes_costs_no_more_than_the_budget_and_every_request_is_served() {
    Rig::run(|rig| async move {
        rig.names().await;
        let (start, before) = (Instant::now(), rig.kubelet.with(|state| state.calls.len()));
        while start.elapsed() < 30 * SECOND {
            rig.epoch.bump(Kind::List);
            let asked = Instant::now();
            rig.ask(Ask::List).await.unwrap();
            assert!(asked.elapsed() <= Duration::from_millis(110), "two budget intervals at most: {:?}", asked.elapsed());
        }
        let calls = rig.kubelet.with(|state| state.calls.len()) - before;
        assert!((500..=604).contains(&calls), "{calls} calls in 30 s at 20/s");
    });
}

#[test]
fn a_quiet_node_costs_two_calls_every_ten_seconds_whoever_asks() {
    Rig::run(|rig| async move {
        rig.names().await;
        tokio::time::sleep(SECOND).await;
        let before = rig.kubelet.with(|state| state.calls.len());
        for _ in 0..1000 {
            rig.ask(Ask::List).await.unwrap();
            rig.ask(Ask::Allocatable).await.unwrap();
            tokio::time::sleep(SECOND / 10).await;
        }
        assert_eq!(rig.kubelet.with(|state| state.calls.len()) - before, 20);
    });
}

#[test]
fn a_hanging_kubelet_makes_requests_wait_and_end_with_a_text_never_with_an_old_answer() {
    Rig::run(|rig| async move {
        rig.names().await;
        rig.kubelet.with(|state| state.hangs = true);
        rig.epoch.bump(Kind::List);
        let asked = Instant::now();
        let error = rig.ask(Ask::List).await.unwrap_err();
        assert_eq!((error.code, asked.elapsed().as_secs()), (Code::Unavailable, 10));
        assert!(error.message.contains("no answer newer than the last change within 10s"), "{error}");
        assert!(
            error.message.contains("List is under way at the kubelet") || error.message.contains("no reply within 10s"),
            "{error}"
        );
        rig.kubelet.with(|state| {
            state.hangs = false;
            state.pods = vec![("new", vec![])];
        });
        assert_eq!(rig.names().await, ["new"]);
    });
}

#[test]
fn nothing_was_ever_captured_and_the_kubelet_is_not_there_so_requests_wait_and_are_told() {
    Rig::run(|rig| async move {
        rig.kubelet.with(|state| state.down = true);
        let error = rig.ask(Ask::List).await.unwrap_err();
        assert_eq!(error.code, Code::Unavailable);
        assert!(error.message.contains("nobody listens"), "{error}");
        rig.kubelet.with(|state| state.down = false);
        assert_eq!(rig.names().await, ["a", "b"]);
    });
}

#[test]
fn the_kubelets_rate_limit_is_never_passed_on() {
    Rig::run(|rig| async move {
        rig.names().await;
        rig.kubelet.with(|state| state.failures = vec![Failure::RateLimited; 5].into());
        rig.epoch.bump(Kind::List);
        rig.ask(Ask::List).await.unwrap();
    });
}

#[test]
fn a_reply_that_does_not_parse_is_not_published() {
    Rig::run(|rig| async move {
        rig.names().await;
        rig.kubelet.with(|state| state.raw_list = Some(Bytes::from_static(&[0x0a, 0x7f, 1])));
        rig.epoch.bump(Kind::List);
        let error = rig.ask(Ask::List).await.unwrap_err();
        assert!(error.message.contains("does not parse"), "{error}");
        assert!(rig.handle.stats().malformed.get() > 0);
        rig.kubelet.with(|state| state.raw_list = None);
        assert_eq!(rig.names().await, ["a", "b"]);
    });
}

#[test]
fn a_kubelet_without_allocatable_has_its_own_words_passed_on_and_lists_all_the_same() {
    Rig::run(|rig| async move {
        let off = Status::new(Code::Unknown, "PodResources API GetAllocatableResources disabled");
        rig.kubelet.with(|state| state.allocatable_error = Some(off.clone()));
        assert_eq!(rig.ask(Ask::Allocatable).await.unwrap_err(), off);
        assert_eq!(rig.names().await, ["a", "b"]);
    });
}

#[test]
fn an_allocatable_call_that_always_fails_does_not_keep_lists_waiting() {
    Rig::run(|rig| async move {
        rig.kubelet.with(|state| state.allocatable_error = Some(Status::new(Code::Internal, "broken")));
        for _ in 0..50 {
            rig.epoch.bump(Kind::Allocatable);
            let asked = Instant::now();
            rig.ask(Ask::List).await.unwrap();
            assert!(asked.elapsed() <= Duration::from_millis(300), "{:?}", asked.elapsed());
        }
        assert!(rig.ask(Ask::Allocatable).await.unwrap_err().message.contains("broken"));
    });
}

#[test]
fn allocatable_is_asked_only_when_something_that_can_change_it_did() {
    Rig::run(|rig| async move {
        assert_eq!(devices(&rig.ask(Ask::Allocatable).await.unwrap()), ["dev-1", "dev-2"]);
        tokio::time::sleep(4 * SECOND).await;
        let before = rig.kubelet.calls("Allocatable");
        rig.epoch.bump(Kind::List);
        rig.names().await;
        rig.ask(Ask::Allocatable).await.unwrap();
        assert_eq!(rig.kubelet.calls("Allocatable"), before);
        rig.kubelet.with(|state| state.devices = vec!["dev-1"]);
        rig.epoch.bump(Kind::Allocatable);
        assert_eq!(devices(&rig.ask(Ask::Allocatable).await.unwrap()), ["dev-1"]);
        assert_eq!(rig.kubelet.calls("Allocatable"), before + 1);
    });
}

#[test]
fn on_a_busy_node_too_allocatable_is_asked_every_ten_seconds_for_what_no_event_shows() {
    Rig::run(|rig| async move {
        rig.names().await;
        for _ in 0..30 {
            tokio::time::sleep(2 * SECOND).await;
            rig.epoch.bump(Kind::List);
            rig.names().await;
        }
        let asked = rig.kubelet.calls("Allocatable");
        assert!((5..=8).contains(&asked), "asked {asked} times in a minute");
    });
}

#[test]
fn get_is_a_slice_of_the_list_and_costs_the_kubelet_nothing() {
    Rig::run(|rig| async move {
        rig.names().await;
        let answer = rig.get("a").await.unwrap();
        let pod = v1::GetPodResourcesResponse::decode(&answer.framed[5..]).unwrap().pod_resources.unwrap();
        assert_eq!((pod.name.as_str(), pod.containers[0].devices[0].device_ids[0].as_str()), ("a", "dev-1"));
        assert_eq!(rig.kubelet.calls("Get"), 0);
    });
}

#[test]
fn get_of_a_pod_that_a_fresh_list_does_not_have_is_the_kubelets_own_answer() {
    Rig::run(|rig| async move {
        rig.names().await;
        rig.kubelet.with(|state| state.pods.push(("unseen", vec![])));
        let answer = rig.get("unseen").await.unwrap();
        assert_eq!(&answer.framed[..5], &[0, 0, 0, 0, u8::try_from(answer.framed.len() - 5).unwrap()]);
        let error = rig.get("nobody").await.unwrap_err();
        assert_eq!(error, Status::new(Code::Unknown, "pod nobody in namespace ns not found"));
        assert_eq!(rig.kubelet.calls("Get"), 2);
    });
}

#[test]
fn gets_of_the_same_unknown_pod_share_flights() {
    Rig::run(|rig| async move {
        rig.names().await;
        rig.kubelet.with(|state| state.latency = SECOND / 10);
        let errors = futures_join_all((0..100).map(|_| rig.get("nobody"))).await;
        assert!(errors.iter().all(|error| error.as_ref().is_err_and(|error| error.code == Code::Unknown)));
        assert!(rig.kubelet.calls("Get") <= 2, "{}", rig.kubelet.calls("Get"));
    });
}

#[test]
fn where_the_kubelets_get_is_off_ours_works_and_says_not_found_from_a_new_capture_only() {
    Rig::run(|rig| async move {
        rig.names().await;
        rig.kubelet.with(|state| state.get_error = Some(Status::new(Code::Unknown, "PodResources API Get method disabled")));
        rig.get("a").await.unwrap();
        // Added without any event.
        rig.kubelet.with(|state| state.pods.push(("unseen", vec![])));
        rig.get("unseen").await.unwrap();
        let before = rig.kubelet.calls("List");
        assert_eq!(rig.get("nobody").await.unwrap_err(), Status::new(Code::Unknown, "pod nobody in namespace ns not found"));
        // Virtual time stands still between arrival and capture, so that the first may seem to have begun too early.
        assert!((before + 1..=before + 2).contains(&rig.kubelet.calls("List")));
    });
}

#[test]
fn not_found_is_never_said_while_the_kubelet_cannot_be_reached() {
    Rig::run(|rig| async move {
        rig.names().await;
        rig.kubelet.kill();
        tokio::time::sleep(SECOND).await;
        assert!(rig.get("a").await.unwrap().freshness.stale);
        assert_eq!(rig.get("nobody").await.unwrap_err().code, Code::Unavailable);
    });
}

#[test]
fn a_max_age_of_zero_forces_a_capture_and_a_longer_one_takes_what_is_there() {
    Rig::run(|rig| async move {
        rig.names().await;
        tokio::time::sleep(4 * SECOND).await;
        let before = rig.kubelet.calls("List");
        let terms = |seconds| Terms { max_age: Some(Duration::from_secs(seconds)), ..Terms::default() };
        rig.epoch.bump(Kind::List);
        rig.kubelet.with(|state| state.latency = SECOND);
        let asked = Instant::now();
        rig.ask_on(Ask::List, terms(60)).await.unwrap();
        assert_eq!(asked.elapsed(), Duration::ZERO, "an old one will do");
        let answer = rig.ask_on(Ask::List, terms(0)).await.unwrap();
        assert!(answer.freshness.age <= SECOND + SECOND / 100, "{:?}", answer.freshness.age);
        assert!(rig.kubelet.calls("List") > before);
        let before = rig.kubelet.calls("Allocatable");
        rig.ask_on(Ask::Allocatable, terms(0)).await.unwrap();
        // Virtual time stands still between arrival and capture, so that the first may seem to have begun too early.
        assert!((before + 1..=before + 2).contains(&rig.kubelet.calls("Allocatable")));
    });
}

#[test]
fn v1alpha1_is_captured_once_somebody_asks_and_only_while_somebody_does() {
    Rig::run(|rig| async move {
        rig.names().await;
        tokio::time::sleep(15 * SECOND).await;
        assert_eq!(rig.kubelet.calls("AlphaList"), 0);
        let answer = rig.ask(Ask::AlphaList).await.unwrap();
        assert_eq!(v1alpha1::ListPodResourcesResponse::decode(&answer.framed[5..]).unwrap().pod_resources.len(), 2);
        rig.kubelet.with(|state| state.pods.push(("c", vec![])));
        rig.epoch.bump(Kind::List);
        let answer = rig.ask(Ask::AlphaList).await.unwrap();
        assert_eq!(v1alpha1::ListPodResourcesResponse::decode(&answer.framed[5..]).unwrap().pod_resources.len(), 3);
        tokio::time::sleep(100 * SECOND).await;
        let before = rig.kubelet.calls("AlphaList");
        tokio::time::sleep(100 * SECOND).await;
        assert_eq!(rig.kubelet.calls("AlphaList"), before);
        assert!(rig.handle.view().alpha.is_none());
    });
}

#[test]
fn the_same_content_keeps_the_old_bytes() {
    Rig::run(|rig| async move {
        rig.names().await;
        let old = rig.at_once().unwrap().framed;
        rig.kubelet.with(|state| state.pods.reverse());
        rig.epoch.bump(Kind::List);
        let new = rig.ask(Ask::List).await.unwrap();
        assert_eq!(new.framed.as_ptr(), old.as_ptr());
        assert!(new.freshness.age < SECOND);
    });
}
