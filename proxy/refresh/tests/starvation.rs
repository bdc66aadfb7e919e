//! One thing that hangs, fails or floods, beside others that must not suffer from it.

use std::num::NonZeroU32;

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

fn client(id: u64) -> Who {
    Who { id, weight: NonZeroU32::MIN }
}

impl Rig {
    async fn ask_as(&self, who: Who, ask: Ask, terms: Terms) -> Result<Answer, Status> {
        match self.handle.at_once(&ask, &terms) {
            Ok(answer) => answer,
            Err(wait) => self.handle.wait(ask, terms, who, wait, Instant::now() + 10 * SECOND).await,
        }
    }

    async fn get_unknown(&self, who: Who, name: usize) -> Result<Answer, Status> {
        let name = format!("nobody-{}-{name}", who.id);
        self.ask_as(who, Ask::Get { namespace: "ns".to_owned(), name }, Terms::default()).await
    }

    /// Always has so many Gets of unknown pods waiting.
    async fn flood_of_gets(&self, who: Who, at_once: usize) {
        let lane = |lane| async move {
            for name in 0.. {
                let status = self.get_unknown(who, lane * 1_000_000 + name).await.unwrap_err();
                if status.code == Code::ResourceExhausted {
                    tokio::time::sleep(SECOND / 100).await;
                }
            }
        };
        futures_join_all((0..at_once).map(lane).map(Box::pin)).await;
    }

    /// Always has a forced capture waiting.
    async fn flood_of_captures(&self, who: Who) {
        loop {
            drop(self.ask_as(who, Ask::List, Terms { max_age: Some(Duration::ZERO), ..Terms::default() }).await);
        }
    }
}

const SOON: Duration = Duration::from_millis(500);

/// Asks ten times, now and then; how long the longest wait was.
async fn longest<F: Future>(ask: impl Fn(usize) -> F) -> Duration {
    let mut longest = Duration::ZERO;
    for at in 0..10 {
        tokio::time::sleep(SECOND).await;
        let asked = Instant::now();
        ask(at).await;
        longest = longest.max(asked.elapsed());
    }
    longest
}

#[test]
fn who_asks_for_one_unknown_pod_does_not_wait_for_the_hundreds_of_another() {
    Rig::run(|rig| async move {
        rig.names().await;
        let honest = longest(|at| rig.get_unknown(client(2), at));
        tokio::select! {
            longest = honest => assert!(longest < SOON, "{longest:?}"),
            () = rig.flood_of_gets(client(1), 300) => unreachable!(),
        }
    });
}

#[test]
fn a_client_may_wait_for_so_many_unknown_pods_and_no_more() {
    Rig::run(|rig| async move {
        rig.names().await;
        let many = futures_join_all((0..100).map(|name| Box::pin(rig.get_unknown(client(1), name)))).await;
        let refused = many.iter().filter(|reply| reply.as_ref().unwrap_err().code == Code::ResourceExhausted).count();
        assert!((20..=40).contains(&refused), "{refused}");
    });
}

#[test]
fn forced_captures_and_unknown_pods_do_not_keep_each_other_waiting() {
    Rig::run(|rig| async move {
        rig.names().await;
        let forced = Terms { max_age: Some(Duration::ZERO), ..Terms::default() };
        tokio::select! {
            longest = longest(|_| rig.ask_as(client(2), Ask::List, forced)) => assert!(longest < SOON, "{longest:?}"),
            () = rig.flood_of_gets(client(1), 64) => unreachable!(),
        }
        tokio::select! {
            longest = longest(|at| rig.get_unknown(client(2), at)) => assert!(longest < SOON, "{longest:?}"),
            () = rig.flood_of_captures(client(1)) => unreachable!(),
        }
    });
}

#[test]
fn who_waits_after_a_change_does_not_wait_for_the_budget_that_others_spend() {
    Rig::run(|rig| async move {
        rig.names().await;
        let honest = longest(|_| async {
            rig.epoch.bump(Kind::List);
            rig.ask_as(client(2), Ask::List, Terms::default()).await.unwrap();
        });
        tokio::select! {
            longest = honest => assert!(longest < SECOND / 100, "{longest:?}"),
            () = rig.flood_of_captures(client(1)) => unreachable!(),
            () = rig.flood_of_gets(client(1), 64) => unreachable!(),
        }
    });
}
