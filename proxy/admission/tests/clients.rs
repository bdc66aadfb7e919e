//! The table and its clients.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::{Instant, advance};

use crate::admission::{Admitted, Config, Limits, Mode, Reason, Rules, Table};
use crate::kubepods::PodUid;
use crate::peer::{Client, Peer};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn pod(number: u64) -> Peer {
    let uid = PodUid::parse(&format!("00000000-0000-0000-0000-{number:012x}")).unwrap();
    Peer { client: Client::Pod { uid }, ..Peer::of_uid(1000) }
}

fn table(change: impl FnOnce(&mut Config)) -> Arc<Table> {
    let mut config = Config::default();
    change(&mut config);
    Table::new(config)
}

fn join(table: &Arc<Table>, peer: Peer) -> Admitted {
    table.join(peer, 1, Instant::now()).unwrap()
}

/// One call from begin to end: whether it was let through, or why not.
fn call(admitted: &Admitted) -> Result<(), Reason> {
    let now = Instant::now();
    let call = admitted.call(None, now).map_err(|(_, refused)| refused.reason)?;
    call.pay(now).map_err(|refused| refused.reason)
}

fn granted(admitted: &Admitted, calls: usize) -> usize {
    (0..calls).filter(|_| call(admitted).is_ok()).count()
}

#[tokio::test(start_paused = true)]
async fn all_connections_of_one_client_share_one_bucket() {
    let table = table(|_| {});
    let connections: Vec<_> = (0..64).map(|_| join(&table, pod(1))).collect();
    let served: usize = connections.iter().map(|connection| granted(connection, 10)).sum();
    assert_eq!(served, 100);
    assert_eq!(granted(&join(&table, pod(2)), 101), 100, "another client has its own");
}

#[tokio::test(start_paused = true)]
async fn redialling_wins_nothing_and_a_full_bucket_is_forgotten() {
    let table = table(|_| {});
    let mut served = 0;
    for _ in 0..50 {
        served += granted(&join(&table, pod(1)), 10);
    }
    assert_eq!(served, 100);
    assert_eq!(table.len(), 1);
    table.sweep(Instant::now());
    assert_eq!(table.len(), 1, "nothing is forgotten that is missed in the bucket");
    advance(SECOND).await;
    table.sweep(Instant::now());
    assert_eq!(table.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_clients_that_come_and_go_leave_nothing_behind() {
    let table = table(|_| {});
    let mut most = 0;
    for number in 0..100_000 {
        let connection = join(&table, pod(number));
        call(&connection).unwrap();
        drop(connection);
        advance(MS).await;
        most = most.max(table.len());
    }
    assert!(most < 64, "{most} clients at once");
    advance(SECOND).await;
    table.sweep(Instant::now());
    assert!(table.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_comes_and_goes_while_it_may_not_be_forgotten_is_queued_once() {
    let table = table(|_| {});
    let stays = join(&table, pod(2));
    for _ in 0..1_000 {
        let connection = join(&table, pod(1));
        let _ = call(&connection);
    }
    advance(5 * SECOND).await;
    table.sweep(Instant::now());
    assert_eq!(table.len(), 1, "the one that stays");
    drop(stays);
    assert_eq!(table.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_names_the_client_its_limit_and_when_to_come_again() {
    let table = table(|config| config.limits.burst = 1);
    let connection = join(&table, Peer::of_uid(7));
    call(&connection).unwrap();
    let now = Instant::now();
    let refused = connection.call(None, now).unwrap().pay(now).unwrap_err();
    assert_eq!(refused.status().message, "rejected by rate limit");
    assert_eq!(refused.client, "uid:7");
    assert_eq!(refused.limit, "100/s, burst 1");
    assert_eq!(refused.after, Some(10 * MS));
    advance(10 * MS).await;
    call(&connection).unwrap();
}

#[tokio::test(start_paused = true)]
async fn calls_in_flight_are_bounded_over_all_connections_and_a_refused_one_costs_no_token() {
    let table = table(|config| config.limits.calls = 3);
    let (one, two) = (join(&table, pod(1)), join(&table, pod(1)));
    let now = Instant::now();
    let calls = [one.call(None, now).unwrap(), one.call(None, now).unwrap(), two.call(None, now).unwrap()];
    assert_eq!(call(&two), Err(Reason::Calls));
    drop(calls);
    assert_eq!(granted(&two, 200), 97, "what was given up is paid for all the same");
}

#[tokio::test(start_paused = true)]
async fn replies_that_wait_are_bounded_and_one_alone_always_goes() {
    let table = table(|config| config.limits.waiting_bytes = 100);
    let (one, two) = (join(&table, pod(1)), join(&table, pod(1)));
    let now = Instant::now();
    one.hold(1_000, now).unwrap();
    assert_eq!(two.hold(1, now).unwrap_err().reason, Reason::Bytes);
    assert_eq!(call(&two), Err(Reason::Bytes), "and no call begins");
    one.written(1_000);
    one.hold(60, now).unwrap();
    two.hold(40, now).unwrap();
    assert_eq!(two.hold(1, now).unwrap_err().reason, Reason::Bytes);
    assert_eq!(table.top(1, now)[0].waiting_bytes, 100);
    drop(one);
    assert_eq!(table.top(1, now)[0].waiting_bytes, 40, "who has gone waits for nothing");
}

#[tokio::test(start_paused = true)]
async fn what_a_turn_begins_and_ends_is_told_to_nobody_and_what_it_leaves_to_all() {
    let table = table(|config| (config.limits.calls, config.limits.waiting_bytes) = (3, 100));
    let (one, two) = (join(&table, pod(1)), join(&table, pod(1)));
    let now = Instant::now();
    let seen = || {
        let seen = &table.top(1, now)[0];
        (seen.in_flight, seen.calls, seen.waiting_bytes)
    };
    one.turn_begins();
    call(&one).unwrap();
    one.hold(100, now).unwrap();
    assert_eq!(one.hold(1, now).unwrap_err().reason, Reason::Bytes, "its own it knows at once");
    one.written(100);
    let calls = [(); 3].map(|()| one.call(None, now).unwrap());
    assert_eq!(call(&one), Err(Reason::Calls));
    one.hold(30, now).unwrap();
    assert_eq!(seen(), (0, 0, 0));
    one.turn_ends(0, 20);
    assert_eq!(seen(), (3, 2, 50));
    assert_eq!(call(&two), Err(Reason::Calls));
    drop(calls);
    assert_eq!(seen(), (0, 6, 50), "outside of a turn at once");
    one.turn_begins();
    one.written(30);
    one.turn_ends(20, 0);
    assert_eq!(seen(), (0, 6, 0));
}

#[tokio::test(start_paused = true)]
async fn more_connections_than_a_client_may_have_are_refused_and_not_counted() {
    let table = table(|config| config.limits.connections = 2);
    let stay = [join(&table, pod(1)), join(&table, pod(1))];
    assert_eq!(table.join(pod(1), 3, Instant::now()).unwrap_err(), Reason::Connections);
    join(&table, pod(2));
    let [one, _two] = stay;
    drop(one);
    join(&table, pod(1));
}

#[tokio::test(start_paused = true)]
async fn the_last_connections_are_for_newcomers_and_the_very_last_for_root() {
    let table = table(|config| config.max_connections = 640);
    let root = Peer::of_uid(0);
    let again = || join(&table, pod(1));
    let _first = again();
    let try_again = |open| table.join(pod(1), open, Instant::now()).map(drop);
    let newcomer = |open| table.join(pod(2), open, Instant::now()).map(drop);
    let _root = join(&table, root.clone());
    assert_eq!(try_again(590), Ok(()));
    assert_eq!(try_again(591), Err(Reason::Full));
    assert_eq!(newcomer(630), Ok(()));
    assert_eq!(newcomer(631), Err(Reason::Full));
    assert_eq!(table.join(root, 640, Instant::now()).map(drop), Ok(()));
    let root_of_a_pod = Peer { uid: 0, ..pod(3) };
    assert_eq!(table.join(root_of_a_pod, 631, Instant::now()).map(drop), Err(Reason::Full));
}

#[tokio::test(start_paused = true)]
async fn who_goes_on_although_refused_is_left_unread_for_a_second() {
    let table = table(|_| {});
    let (connection, other) = (join(&table, pod(1)), join(&table, pod(1)));
    assert_eq!(granted(&connection, 300), 100);
    assert_eq!(connection.paused_until(), None, "twice its burst is borne");
    call(&connection).unwrap_err();
    assert_eq!(connection.paused_until(), Some(Instant::now() + SECOND));
    assert_eq!(other.paused_until(), connection.paused_until(), "all of its connections");
    assert_eq!(join(&table, pod(2)).paused_until(), None);
    drop((connection, other));
    assert!(join(&table, pod(1)).paused_until().is_some(), "redialling does not end it");
}

#[tokio::test(start_paused = true)]
async fn observing_counts_what_would_be_refused_and_refuses_nothing() {
    let table = table(|config| {
        config.mode = Mode::Observe;
        config.limits = Limits { connections: 1, calls: 1, waiting_bytes: 1, ..Limits::default() };
    });
    let one = join(&table, pod(1));
    let two = join(&table, pod(1));
    assert_eq!(granted(&one, 1_000), 1_000);
    let now = Instant::now();
    let _calls = (one.call(None, now).unwrap(), two.call(None, now).unwrap());
    one.hold(2, now).unwrap();
    one.hold(2, now).unwrap();
    let seen = &table.top(1, now)[0];
    let refused = |reason: Reason| seen.refused[reason as usize];
    assert_eq!(
        (refused(Reason::Connections), refused(Reason::Rate), refused(Reason::Calls), refused(Reason::Bytes)),
        (1, 900, 1, 1)
    );
    assert_eq!(one.paused_until(), None);
}

#[tokio::test(start_paused = true)]
async fn other_rules_hold_at_once_for_those_who_are_there() {
    let table = table(|_| {});
    let connection = join(&table, pod(1));
    assert_eq!(connection.who().weight, NonZeroU32::MIN);
    let limits = Limits { burst: 3, weight: NonZeroU32::new(5).unwrap(), ..Limits::default() };
    let rules = Arc::new(Rules::new(limits));
    table.reclassify(Box::new(move |_| Arc::clone(&rules)));
    assert_eq!(granted(&connection, 10), 3);
    assert_eq!(connection.who().weight.get(), 5);
    let denied = Arc::new(Rules::new(Limits { deny: true, ..Limits::default() }));
    table.reclassify(Box::new(move |_| Arc::clone(&denied)));
    assert_eq!(call(&connection), Err(Reason::Denied));
}

#[tokio::test(start_paused = true)]
async fn the_departed_share_one_small_bucket() {
    let table = table(|_| {});
    let connections: Vec<_> = (0..5).map(|uid| join(&table, Peer::departed(uid))).collect();
    let served: usize = connections.iter().map(|connection| granted(connection, 10)).sum();
    assert!((5..=10).contains(&served), "{served}");
}

#[tokio::test(start_paused = true)]
async fn within_a_user_a_connection_that_keeps_to_its_part_is_served_beside_a_flood() {
    let table = table(|_| {});
    let (flood, honest) = (join(&table, Peer::of_uid(7)), join(&table, Peer::of_uid(7)));
    for _ in 0..100 {
        granted(&flood, 50);
        assert_eq!(call(&honest), Ok(()));
        advance(50 * MS).await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// A client within its limit is never refused, whatever the sum of the others.
    #[test]
    fn who_keeps_to_its_limit_is_never_refused(
        steps in prop::collection::vec((0_u64..30, 0_usize..4, 1_usize..80), 1..150),
        others in 1_u64..20,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let table = table(|_| {});
            let honest = [join(&table, pod(0)), join(&table, pod(0))];
            let floods: Vec<_> = (1..=others).map(|number| join(&table, pod(number))).collect();
            // What the honest one may have: its own plain bucket.
            let mut credit = 100_000_u64;
            for (ms, calls, flood) in steps {
                advance(Duration::from_millis(ms)).await;
                credit = (credit + ms * 100).min(100_000);
                for flooding in &floods {
                    granted(flooding, flood);
                }
                for at in 0..calls.min(usize::try_from(credit / 1_000).unwrap()) {
                    prop_assert_eq!(call(&honest[at % 2]), Ok(()));
                    credit -= 1_000;
                }
            }
            Ok(())
        })?;
    }
}
