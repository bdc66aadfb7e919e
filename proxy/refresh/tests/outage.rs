//! What is said while no kubelet can be reached, and once it is back.

use super::*;

#[test]
fn a_killed_kubelet_leaves_the_last_answer_marked_until_max_stale() {
    Rig::run(|rig| async move {
        rig.names().await;
        rig.kubelet.kill();
        tokio::time::sleep(SECOND).await;
        let answer = rig.at_once().unwrap();
        assert!(answer.freshness.stale);
        assert_eq!(names(&answer), ["a", "b"]);
        rig.epoch.bump(Kind::List);
        assert!(rig.ask(Ask::List).await.unwrap().freshness.stale, "a change while it is down: still the last good one");
        tokio::time::sleep(299 * SECOND + SECOND / 2).await;
        let error = rig.ask(Ask::List).await.unwrap_err();
        assert_eq!(error.code, Code::Unavailable);
        let (head, tail) = error.message.split_once(" (").unwrap();
        assert!(head.starts_with("podresources-proxy: the kubelet cannot be reached since 20"), "{error}");
        assert_eq!(tail, "5m), longer than --max-stale 5m: nobody listens");
    });
}

#[test]
fn a_forwarded_get_that_loses_its_kubelet_says_since_when() {
    Rig::run(|rig| async move {
        rig.names().await;
        rig.kubelet.with(|state| state.hangs = true);
        let dies = async {
            tokio::time::sleep(SECOND).await;
            assert_eq!(rig.kubelet.calls("Get"), 1);
            rig.kubelet.kill();
        };
        let (said, ()) = tokio::join!(rig.get("nobody"), dies);
        let error = said.unwrap_err();
        assert_eq!(error.code, Code::Unavailable);
        assert!(error.message.starts_with("podresources-proxy: the kubelet cannot be reached since 20"), "{error}");
        assert!(error.message.ends_with("s), so nobody can say whether it has this pod: nobody listens"), "{error}");
    });
}

#[test]
fn a_kubelet_that_is_back_is_asked_at_once_and_its_answer_is_fresh() {
    Rig::run(|rig| async move {
        rig.names().await;
        rig.kubelet.kill();
        tokio::time::sleep(100 * SECOND).await;
        rig.kubelet.with(|state| {
            state.down = false;
            state.pods.push(("new", vec![]));
        });
        rig.epoch.bump(Kind::Socket);
        let asked = Instant::now();
        let answer = rig.ask(Ask::List).await.unwrap();
        assert!(!answer.freshness.stale);
        assert_eq!(names(&answer), ["a", "b", "new"]);
        assert!(asked.elapsed() < Duration::from_millis(50), "{:?}", asked.elapsed());
    });
}

#[test]
fn without_any_event_a_kubelet_that_is_back_is_found_within_the_longest_pause() {
    Rig::run(|rig| async move {
        rig.names().await;
        rig.kubelet.kill();
        tokio::time::sleep(60 * SECOND).await;
        rig.kubelet.with(|state| state.down = false);
        tokio::time::sleep(5 * SECOND).await;
        assert!(!rig.at_once().unwrap().freshness.stale);
    });
}
