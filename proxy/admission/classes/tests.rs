//! Which class takes whom, and what comes of it for a client of the table.

use std::num::NonZeroU32;
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use super::*;
use crate::admission::{Config, Reason, Table};
use crate::answer::Terms;
use crate::config::{OnStale, Whole as WholeLimits};
use crate::kubepods::PodUid;
use crate::peer::Unit;
use crate::snapshot::PodName;

fn number(number: u32) -> Option<NonZeroU32> {
    NonZeroU32::new(number)
}

fn class(name: &str) -> Class {
    Class { name: name.to_owned(), ..Class::default() }
}

fn of_namespace(name: &str, namespace: &str) -> Class {
    Class { namespaces: vec![namespace.to_owned()], ..class(name) }
}

fn for_method(method: Method, class: Class) -> Class {
    let mut class = class;
    class.methods[method as usize] = true;
    class
}

fn pod(n: u8, namespace: &str, name: &str) -> Peer {
    let uid = PodUid::parse(&format!("{n:032x}")).unwrap();
    let pod = PodName { namespace: namespace.to_owned(), name: name.to_owned() };
    Peer { client: Client::Pod { uid }, pod: Some(Arc::new(pod)), ..Peer::of_uid(0) }
}

fn nameless(n: u8) -> Peer {
    Peer { pod: None, ..pod(n, "", "") }
}

fn unit(name: &str) -> Peer {
    Peer { client: Client::Unit(Unit::new(name)), ..Peer::of_uid(0) }
}

fn classes(classes: Vec<Class>) -> Arc<Classes> {
    Arc::new(Classes::new(Limits::default(), classes, None))
}

/// The name of the class that each peer is of.
fn check(of: Vec<Class>, expected: &[(Peer, Option<&str>)]) {
    let classes = classes(of);
    for (peer, name) in expected {
        assert_eq!(classes.rules(peer).class(), *name, "{peer}");
    }
}

fn table(of: Vec<Class>) -> (Arc<Table>, Arc<Classes>) {
    let table = Table::new(Config::default());
    let classes = classes(of);
    table.reclassify(Arc::clone(&classes).classify());
    (table, classes)
}

#[test]
fn the_first_class_that_takes_a_client_is_its_own() {
    check(
        vec![
            Class { pods: vec!["multus-".into()], ..of_namespace("cni", "kube-system") },
            of_namespace("system", "kube-system"),
            Class { pods: vec!["dcgm".into(), "node-exporter".into()], ..class("exporters") },
            Class { units: vec!["crio.service".into()], ..class("runtime") },
            Class { uids: vec![1000], ..class("people") },
        ],
        &[
            (pod(1, "kube-system", "multus-x"), Some("cni")),
            (pod(2, "kube-system", "dcgm-x"), Some("system")),
            (pod(3, "default", "multus-x"), None),
            (pod(4, "default", "dcgm-x"), Some("exporters")),
            (pod(5, "default", "node-exporter"), Some("exporters")),
            (pod(6, "default", "xdcgm"), None),
            (nameless(7), None),
            (unit("crio.service"), Some("runtime")),
            (unit("crio.service.d"), None),
            (Peer::of_uid(1000), Some("people")),
            (Peer::of_uid(1001), None),
            (Peer::departed(1000), None),
        ],
    );
}

#[test]
fn a_pod_or_unit_is_not_taken_by_its_processs_user() {
    let people = Class { uids: vec![0], ..class("people") };
    check(vec![people], &[(pod(1, "a", "b"), None), (unit("a.service"), None), (Peer::of_uid(0), Some("people"))]);
}

#[test]
fn a_last_class_of_everybody_that_denies_is_an_allow_list() {
    let classes = classes(vec![of_namespace("ours", "monitoring"), Class { deny: true, ..class("others") }]);
    assert!(!classes.rules(&pod(1, "monitoring", "a")).limits().deny);
    for peer in [pod(2, "default", "a"), nameless(3), unit("a.service"), Peer::of_uid(0), Peer::departed(0)] {
        assert!(classes.rules(&peer).limits().deny, "{peer}");
    }
}

#[test]
fn what_a_class_leaves_out_is_as_everybodys() {
    let mut fast = of_namespace("fast", "a");
    fast.each.rate = Some(500.0);
    let classes = classes(vec![fast]);
    let limits = classes.rules(&pod(1, "a", "b")).limits().clone();
    assert_eq!(limits, Limits { rate: 500.0, ..Limits::default() });
}

#[tokio::test(start_paused = true)]
async fn a_method_with_a_class_of_its_own_has_a_bucket_of_its_own() {
    let mut gets = for_method(Method::Get, of_namespace("gets", "a"));
    gets.methods[Method::AlphaList as usize] = true;
    gets.each.rate = Some(1.0);
    gets.each.burst = number(2);
    let denied = for_method(Method::Allocatable, Class { deny: true, ..of_namespace("no", "a") });
    let (table, _) = table(vec![gets, denied]);
    let now = Instant::now();
    let connection = table.join(pod(1, "a", "b"), 1, now).unwrap();
    let ask = |method| match connection.call(Some(method), now) {
        Ok(call) => call.pay(now).map_err(|refused| refused.reason),
        Err((_, refused)) => Err(refused.reason),
    };
    // The two methods of one class share its two calls.
    assert_eq!([Method::Get, Method::AlphaList, Method::Get].map(ask), [Ok(()), Ok(()), Err(Reason::Rate)]);
    assert_eq!(ask(Method::Allocatable), Err(Reason::Denied));
    for _ in 0..100 {
        assert_eq!(ask(Method::List), Ok(()));
    }
    assert_eq!(ask(Method::List), Err(Reason::Rate));
}

#[tokio::test(start_paused = true)]
async fn a_class_as_a_whole_has_a_limit_beside_those_of_its_clients() {
    let whole = WholeLimits { rate: Some(1.0), burst: number(3), connections: number(2) };
    let (table, _) = table(vec![Class { whole, ..of_namespace("many", "a") }]);
    let now = Instant::now();
    let one = table.join(pod(1, "a", "x"), 1, now).unwrap();
    let two = table.join(pod(2, "a", "y"), 2, now).unwrap();
    assert_eq!(table.join(pod(3, "a", "z"), 3, now).unwrap_err(), Reason::Connections);
    let other = table.join(pod(4, "b", "x"), 4, now).unwrap();
    let asks = [&one, &two, &one, &two].map(|client| client.call(None, now).unwrap().pay(now).is_ok());
    assert_eq!(asks, [true, true, true, false]);
    assert_eq!(one.call(None, now).unwrap().pay(now).unwrap_err().limit, "class many together: 1/s");
    other.call(None, now).unwrap().pay(now).unwrap();
    drop(one);
    table.join(pod(3, "a", "z"), 4, now).unwrap();
}

#[tokio::test(start_paused = true)]
async fn reading_the_rules_anew_makes_no_bucket_full_and_forgets_no_connection() {
    let many = |rate| {
        let whole = WholeLimits { rate: Some(rate), burst: number(1), connections: number(1) };
        vec![Class { whole, ..of_namespace("many", "a") }]
    };
    let (table, before) = table(many(1.0));
    let now = Instant::now();
    let one = table.join(pod(1, "a", "x"), 1, now).unwrap();
    one.call(None, now).unwrap().pay(now).unwrap();
    table.reclassify(Arc::new(Classes::new(Limits::default(), many(2.0), Some(&before))).classify());
    assert!(one.call(None, now).unwrap().pay(now).is_err());
    assert_eq!(table.join(pod(2, "a", "y"), 2, now).unwrap_err(), Reason::Connections);
    // What it owes is a second's, and what it takes now half a second's.
    for later in [1000, 1500] {
        let later = now + Duration::from_millis(later);
        one.call(None, later).unwrap().pay(later).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn new_rules_are_in_force_for_clients_that_are_there_and_for_a_pod_once_its_name_is_known() {
    let (table, _) = table(Vec::new());
    let now = Instant::now();
    let connection = table.join(nameless(1), 1, now).unwrap();
    table.reclassify(classes(vec![Class { deny: true, ..of_namespace("no", "a") }]).classify());
    connection.call(None, now).unwrap();
    let _second = table.join(pod(1, "a", "x"), 2, now).unwrap();
    assert_eq!(connection.call(None, now).unwrap_err().1.reason, Reason::Denied);
    table.reclassify(classes(Vec::new()).classify());
    connection.call(None, now).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_classs_freshness_goes_into_a_calls_terms_and_the_calls_own_comes_first() {
    let minute = Some(Duration::from_mins(1));
    let (table, _) = table(vec![Class { max_age: minute, on_stale: Some(OnStale::Fail), ..of_namespace("lax", "a") }]);
    let now = Instant::now();
    let connection = table.join(pod(1, "a", "x"), 1, now).unwrap();
    for (asked, told) in [(None, minute), (Some(Duration::ZERO), Some(Duration::ZERO))] {
        let mut terms = Terms { max_age: asked, ..Terms::default() };
        connection.call(None, now).unwrap().pay_for(&mut terms, now).unwrap();
        assert_eq!(terms, Terms { max_age: told, on_stale: Some(OnStale::Fail) });
    }
}

proptest! {
    /// Against the plain reading of the rule: for each method, the first class that takes the client and is for that method.
    #[test]
    fn for_each_method_it_is_the_first_class_in_order(
        list in proptest::collection::vec((any::<[bool; 4]>(), 0..3_usize, any::<bool>()), 0..8),
        namespace in 0..3_usize,
    ) {
        let names = ["a", "b", "c"];
        let made = list.iter().enumerate().map(|(at, (methods, namespace, all))| {
            let namespaces = if *all { Vec::new() } else { vec![names[*namespace].to_owned()] };
            Class { methods: *methods, namespaces, ..class(&at.to_string()) }
        });
        let rules = classes(made.collect()).rules(&pod(1, names[namespace], "x"));
        for method in Method::ALL {
            let plain = list.iter().position(|(methods, of, all)| {
                (*all || *of == namespace) && (methods[method as usize] || *methods == [false; 4])
            });
            let plain = plain.map(|at| at.to_string());
            prop_assert_eq!(rules.of(Some(method)).0.class(), plain.as_deref(), "{:?}", method);
        }
    }
}
