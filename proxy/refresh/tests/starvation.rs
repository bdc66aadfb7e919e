//! One thing that hangs, fails or floods, beside others that must not suffer from it.

use super::*;

#[test]
fn a_flood_of_gets_keeps_nobody_from_a_list() {
    Rig::run(|rig| async move {
        rig.names().await;
        let flood = async {
            let mut asked = Vec::new();
            for name in 0..600 {
                asked.push(Box::pin(rig.ask(Ask::Get { namespace: "ns".to_owned(), name: format!("nobody-{name}") })));
            }
            futures_join_all(asked.into_iter()).await
        };
        let lists = async {
            for _ in 0..20 {
                rig.epoch.bump(Kind::Allocatable);
                let asked = Instant::now();
                rig.ask(Ask::List).await.unwrap();
                assert!(asked.elapsed() < SECOND, "{:?}", asked.elapsed());
                rig.ask(Ask::Allocatable).await.unwrap();
                tokio::time::sleep(SECOND / 4).await;
            }
        };
        tokio::select! {
            () = lists => {}
            _ = flood => panic!("the flood ended too early to mean anything"),
        }
    });
}

#[test]
fn an_allocatable_call_that_hangs_does_not_keep_lists_waiting_for_its_deadline() {
    Rig::run(|rig| async move {
        rig.names().await;
        tokio::time::sleep(4 * SECOND).await;
        rig.kubelet.with(|state| state.allocatable_hangs = true);
        rig.epoch.bump(Kind::Allocatable);
        tokio::time::sleep(SECOND / 2).await;
        rig.epoch.bump(Kind::List);
        let asked = Instant::now();
        rig.ask(Ask::List).await.unwrap();
        assert!(asked.elapsed() <= SECOND, "{:?}", asked.elapsed());
    });
}

#[test]
fn a_client_content_with_any_age_is_answered_while_the_kubelet_is_away() {
    Rig::run(|rig| async move {
        rig.names().await;
        rig.kubelet.kill();
        tokio::time::sleep(60 * SECOND).await;
        rig.epoch.bump(Kind::List);
        let asked = Instant::now();
        let answer = rig.ask_on(Ask::List, Terms { max_age: Some(Duration::ZERO), ..Terms::default() }).await.unwrap();
        assert!(answer.freshness.stale);
        assert!(asked.elapsed() < SECOND / 10, "{:?}", asked.elapsed());
    });
}
