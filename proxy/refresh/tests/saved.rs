//! What an earlier instance has saved: when it is given, and what it completes.

use super::*;
use crate::keep::{Kept, Stamps};
use crate::snapshot::{Allocatable, PodList};

const AGE: Duration = Duration::from_secs(10);

/// Pods "a" with a device and "old", of a kubelet called "one".
fn saved() -> Saved {
    let device = |id: &str| v1::ContainerDevices {
        resource_name: "example.com/device".to_owned(),
        device_ids: vec![id.to_owned()],
        topology: None,
    };
    let pod = |name: &str, devices| v1::PodResources {
        name: name.to_owned(),
        namespace: "ns".to_owned(),
        containers: vec![v1::ContainerResources { name: "c".to_owned(), devices, ..Default::default() }],
        ..Default::default()
    };
    let list = v1::ListPodResourcesResponse { pod_resources: vec![pod("a", vec![]), pod("old", vec![device("dev-1")])] };
    let allocatable = v1::AllocatableResourcesResponse { devices: vec![device("dev-1")], ..Default::default() };
    let begun = Instant::now() - AGE;
    Saved {
        list: Kept { content: Arc::new(PodList::build(&list.encode_to_vec()).unwrap()), begun },
        allocatable: Some(Kept { content: Arc::new(Allocatable::build(&allocatable.encode_to_vec()).unwrap()), begun }),
        alpha: None,
        stamps: Stamps::default(),
        server: Some("one".into()),
    }
}

fn down(state: &mut State) {
    state.down = true;
}

fn run<F: Future<Output = ()>>(prepare: impl FnOnce(&mut State), test: impl FnOnce(Rig) -> F) {
    Rig::run_from(|_| {}, prepare, || Some(saved()), test);
}

#[test]
fn while_the_kubelet_is_down_it_is_given_marked_with_its_age_until_max_stale() {
    run(down, |rig| async move {
        let answer = rig.ask(Ask::List).await.unwrap();
        assert_eq!(names(&answer), ["a", "old"]);
        assert!(answer.freshness.stale && answer.freshness.age >= AGE && answer.freshness.age < AGE + SECOND);
        assert_eq!(devices(&rig.ask(Ask::Allocatable).await.unwrap()), ["dev-1"]);
        assert!(rig.get("old").await.unwrap().freshness.stale);
        assert_eq!(rig.get("nobody").await.unwrap_err().code, Code::Unavailable);
        // Five minutes count from its own capture, not from our start.
        tokio::time::sleep(Duration::from_secs(285)).await;
        assert!(rig.ask(Ask::List).await.is_ok());
        tokio::time::sleep(6 * SECOND).await;
        let error = rig.ask(Ask::List).await.unwrap_err();
        assert_eq!(error.code, Code::Unavailable);
        assert!(
            error.message.contains("and what an earlier instance saved is 5m 1s old, longer than --max-stale 5m: "),
            "{}",
            error.message
        );
    });
}

#[test]
fn while_the_kubelet_hangs_it_is_not_given_with_whatever_age_a_client_is_content() {
    run(
        |state| state.hangs = true,
        |rig| async move {
            let content = Terms { max_age: Some(Duration::from_hours(1)), ..Terms::default() };
            assert_eq!(rig.ask_on(Ask::List, content).await.unwrap_err().code, Code::Unavailable);
            assert_eq!(rig.ask(Ask::Allocatable).await.unwrap_err().code, Code::Unavailable);
        },
    );
}

#[test]
fn it_is_no_capture_of_this_instance_and_nothing_of_it_is_left_after_the_first() {
    run(down, |rig| async move {
        rig.ask(Ask::List).await.unwrap();
        assert!(!rig.handle.view().has_capture());
        let mut first = Box::pin(rig.handle.first_capture());
        assert!(tokio::time::timeout(SECOND, &mut first).await.is_err());
        rig.kubelet.with(|state| {
            state.down = false;
            state.server = Some("one");
        });
        rig.epoch.bump(Kind::Socket);
        first.await;
        assert_eq!(rig.names().await, ["a", "b"], "the same kubelet as before: what it does not tell is gone");
        assert!(rig.handle.kept().is_empty());
        assert_eq!(devices(&rig.ask(Ask::Allocatable).await.unwrap()), ["dev-1", "dev-2"]);
        assert_eq!(rig.handle.stats().restarts.get(), 0);
    });
}

#[test]
fn the_short_reply_of_a_kubelet_that_restarted_too_is_completed_by_it() {
    run(
        |state| {
            state.server = Some("two");
            state.pods = vec![("new", vec![])];
            state.devices = vec![];
        },
        |rig| async move {
            assert_eq!(rig.names().await, ["a", "new", "old"]);
            assert_eq!(rig.handle.kept(), ["ns/a", "ns/old"]);
            assert_eq!(devices(&rig.ask(Ask::Allocatable).await.unwrap()), ["dev-1"]);
            tokio::time::sleep(61 * SECOND).await;
            assert_eq!(rig.names().await, ["new"]);
        },
    );
}

#[test]
fn where_nothing_tells_kubelets_apart_a_restart_is_presumed_and_no_device_has_two_owners() {
    run(
        |state| state.pods = vec![("new", vec!["dev-1"])],
        |rig| async move {
            assert_eq!(rig.names().await, ["a", "new"], "what old held is new's");
        },
    );
}
