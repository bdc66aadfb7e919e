//! What a class may choose where no answer is to be had that is as new as it should be.

use super::*;
use crate::config::OnStale;

fn terms(on_stale: OnStale) -> Terms {
    Terms { on_stale: Some(on_stale), ..Terms::default() }
}

#[test]
fn who_takes_stale_answers_has_the_last_good_one_after_a_short_wait_and_the_others_go_on_waiting() {
    Rig::run(|rig| async move {
        rig.names().await;
        rig.kubelet.with(|state| {
            state.latency = 5 * SECOND;
            state.pods.push(("new", vec![]));
        });
        rig.epoch.bump(Kind::List);
        let asked = Instant::now();
        let answer = rig.ask_on(Ask::List, terms(OnStale::Serve)).await.unwrap();
        assert!(answer.freshness.stale);
        assert_eq!(asked.elapsed(), SECOND);
        let pod = |name: &str| Ask::Get { namespace: "ns".into(), name: name.into() };
        assert!(rig.ask_on(pod("a"), terms(OnStale::Serve)).await.unwrap().freshness.stale);
        // Not there is never said from an old one: it waits like everybody.
        assert!(!rig.ask_on(pod("new"), terms(OnStale::Serve)).await.unwrap().freshness.stale);
        assert!(!rig.ask(Ask::List).await.unwrap().freshness.stale);
    });
}

#[test]
fn who_takes_stale_answers_has_a_fresh_one_where_it_comes_in_time() {
    Rig::run(|rig| async move {
        rig.names().await;
        rig.kubelet.with(|state| state.latency = SECOND / 10);
        rig.epoch.bump(Kind::List);
        assert!(!rig.ask_on(Ask::List, terms(OnStale::Serve)).await.unwrap().freshness.stale);
    });
}

#[test]
fn who_takes_stale_answers_waits_where_there_is_none_at_all() {
    Rig::run(|rig| async move {
        rig.kubelet.with(|state| state.latency = 3 * SECOND);
        assert!(!rig.ask_on(Ask::List, terms(OnStale::Serve)).await.unwrap().freshness.stale);
    });
}

#[test]
fn who_takes_no_stale_answer_has_an_error_while_the_kubelet_is_away() {
    Rig::run(|rig| async move {
        rig.names().await;
        rig.kubelet.kill();
        tokio::time::sleep(SECOND).await;
        assert!(rig.ask(Ask::List).await.unwrap().freshness.stale);
        let error = rig.ask_on(Ask::List, terms(OnStale::Fail)).await.unwrap_err();
        assert_eq!(error.code, Code::Unavailable);
        assert!(error.message.contains("on_stale"), "{}", error.message);
    });
}
