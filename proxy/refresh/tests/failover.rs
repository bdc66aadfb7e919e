//! The host in the kubelet's place, and the kubelet back in its own.

use super::*;
use crate::answer::Source;
use crate::source::failover::{self, Board, Failover, Wish};
use crate::source::{Call, Reply};

/// The same fake, as the host: it knows pods and no devices.
#[derive(Clone, Debug)]
struct FakeHost(FakeKubelet);

impl Upstream for FakeHost {
    fn source(&self) -> Source {
        Source::Host
    }

    async fn connect(&self) -> Result<(), Failure> {
        self.0.connect().await
    }

    async fn call(&self, call: Call<'_>) -> Result<Reply, Failure> {
        self.0.call(call).await
    }

    fn connections(&self) -> u64 {
        1
    }

    fn drop_if_replaced(&self) -> bool {
        false
    }

    async fn closed(&self) {
        std::future::pending::<()>().await;
    }
}

const AFTER: Duration = Duration::from_secs(4);

fn run<F: Future<Output = ()>>(partial: bool, prepare: impl FnOnce(&mut State), test: impl FnOnce(Rig, FakeKubelet, Board) -> F) {
    let (host, board) = (FakeKubelet::default(), Board::default());
    host.with(|state| state.pods = vec![("a", vec![]), ("b", vec![])]);
    let (fake, wishes) = (host.clone(), board.clone());
    let source = move |kubelet| Failover::new(kubelet, FakeHost(fake), failover::Config { after: AFTER, partial }, wishes);
    let set = |config: &mut Config| (config.max_stale, config.failover) = (AFTER, true);
    Rig::run_on(set, prepare, || None, source, |rig| test(rig, host, board));
}

/// Device ids in a List.
fn held(answer: &Answer) -> Vec<String> {
    let reply = v1::ListPodResourcesResponse::decode(&answer.framed[5..]).unwrap();
    let containers = reply.pod_resources.into_iter().flat_map(|pod| pod.containers);
    containers.flat_map(|container| container.devices).flat_map(|device| device.device_ids).collect()
}

/// Lists every 50 ms for so long; all must be answered, and whole. The last.
async fn list_for(rig: &Rig, time: Duration) -> Answer {
    let until = Instant::now() + time;
    loop {
        let answer = rig.ask(Ask::List).await.unwrap();
        assert_eq!(names(&answer), ["a", "b"], "{:?}", answer.freshness);
        assert_eq!(held(&answer), ["dev-1"], "{:?}", answer.freshness);
        if Instant::now() >= until {
            return answer;
        }
        tokio::time::sleep(SECOND / 20).await;
    }
}

#[test]
fn the_host_stands_in_after_max_stale_without_a_failed_list_and_with_the_last_devices() {
    run(
        false,
        |_| {},
        |rig, _, _| async move {
            list_for(&rig, SECOND).await;
            rig.kubelet.kill();
            let answer = list_for(&rig, 3 * SECOND).await;
            assert_eq!((answer.freshness.source, answer.freshness.stale), (Source::Kubelet, true));
            let answer = list_for(&rig, 2 * SECOND).await;
            assert_eq!((answer.freshness.source, answer.freshness.stale), (Source::Host, false));
            let allocatable = rig.ask(Ask::Allocatable).await.unwrap();
            let reply = v1::AllocatableResourcesResponse::decode(&allocatable.framed[5..]).unwrap();
            assert_eq!(reply.devices.len(), 2, "the devices stay: {reply:?}");
            assert_eq!(rig.handle.stats().switches.get(), 1);
        },
    );
}

#[test]
fn a_kubelet_that_hangs_is_given_up_after_max_stale_too() {
    run(
        false,
        |_| {},
        |rig, _, _| async move {
            list_for(&rig, SECOND).await;
            rig.kubelet.with(|state| state.hangs = true);
            rig.epoch.bump(Kind::List);
            let asked = Instant::now();
            let answer = rig.ask(Ask::List).await.unwrap();
            assert_eq!((answer.freshness.source, held(&answer)), (Source::Host, vec!["dev-1".to_owned()]));
            assert!(asked.elapsed() < AFTER + SECOND, "{:?}", asked.elapsed());
        },
    );
}

#[test]
fn it_stands_in_at_once_when_told_and_goes_when_told() {
    run(
        false,
        |_| {},
        |rig, _, board| async move {
            list_for(&rig, SECOND).await;
            rig.kubelet.with(|state| state.hangs = true);
            rig.epoch.bump(Kind::List);
            board.want(Wish::Host);
            let asked = Instant::now();
            assert_eq!(rig.ask(Ask::List).await.unwrap().freshness.source, Source::Host);
            assert!(asked.elapsed() < SECOND / 2, "{:?}", asked.elapsed());
            rig.kubelet.with(|state| state.hangs = false);
            let answer = list_for(&rig, 30 * SECOND).await;
            assert_eq!(answer.freshness.source, Source::Host, "until told otherwise");
            board.want(Wish::Kubelet);
            tokio::time::sleep(SECOND / 10).await;
            assert_eq!(list_for(&rig, SECOND).await.freshness.source, Source::Kubelet);
        },
    );
}

#[test]
fn the_kubelet_is_back_once_it_has_answered_for_a_second() {
    run(
        false,
        |_| {},
        |rig, _, _| async move {
            list_for(&rig, SECOND).await;
            rig.kubelet.kill();
            assert_eq!(list_for(&rig, 20 * SECOND).await.freshness.source, Source::Host);
            rig.kubelet.with(|state| state.down = false);
            assert_eq!(list_for(&rig, 4 * SECOND).await.freshness.source, Source::Kubelet);
            assert_eq!(rig.handle.stats().switches.get(), 2);
            assert_eq!(rig.handle.stats().restarts.get(), 0, "a switch is no restart");
        },
    );
}

#[test]
fn a_kubelet_that_comes_and_goes_is_believed_later_each_time() {
    run(
        false,
        |_| {},
        |rig, _, _| async move {
            list_for(&rig, SECOND).await;
            // Up for three seconds, down for six: once it is believed at first, and then no more.
            for _ in 0..20 {
                rig.kubelet.kill();
                list_for(&rig, 6 * SECOND).await;
                rig.kubelet.with(|state| state.down = false);
                list_for(&rig, 3 * SECOND).await;
            }
            let switches = rig.handle.stats().switches.get();
            assert!(switches <= 10, "{switches} switches in three minutes");
        },
    );
}

#[test]
fn get_has_what_the_kubelet_knew_and_no_other_pod() {
    run(
        false,
        |_| {},
        |rig, host, board| async move {
            rig.names().await;
            host.with(|state| state.pods.push(("new", vec![])));
            rig.kubelet.kill();
            board.want(Wish::Host);
            tokio::time::sleep(SECOND).await;
            assert_eq!(rig.names().await, ["a", "b", "new"]);
            assert_eq!(rig.get("a").await.unwrap().freshness.source, Source::Host);
            for unknown in ["new", "nobody"] {
                let error = rig.get(unknown).await.unwrap_err();
                assert_eq!(error.code, Code::Unavailable, "{unknown}: {error}");
                assert!(error.message.contains("host answers in the kubelet's place"), "{error}");
            }
        },
    );
}

#[test]
fn where_the_kubelet_never_told_anything_the_host_stands_in_only_if_partial_answers_will_do() {
    let away = |state: &mut State| state.down = true;
    run(false, away, |rig, _, board| async move {
        board.want(Wish::Host);
        tokio::time::sleep(20 * SECOND).await;
        assert_eq!(rig.ask(Ask::List).await.unwrap_err().code, Code::Unavailable);
    });
    run(true, away, |rig, _, _| async move {
        tokio::time::sleep(AFTER + SECOND).await;
        let answer = rig.ask(Ask::List).await.unwrap();
        assert_eq!((names(&answer), answer.freshness.source), (vec!["a".to_owned(), "b".to_owned()], Source::Host));
        assert!(rig.get("a").await.is_ok());
    });
}
