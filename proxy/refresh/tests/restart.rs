//! What is served after the kubelet has restarted.

use super::*;

#[test]
fn after_a_restart_what_the_kubelet_lost_is_kept_for_a_while_and_what_it_has_is_there_at_once() {
    Rig::run(|rig| async move {
        rig.names().await;
        assert_eq!(devices(&rig.ask(Ask::Allocatable).await.unwrap()), ["dev-1", "dev-2"]);
        rig.kubelet.kill();
        tokio::time::sleep(SECOND / 3).await;
        rig.kubelet.with(|state| {
            state.down = false;
            state.pods = vec![("new", vec![])];
            state.devices = vec![];
        });
        rig.epoch.bump(Kind::Socket);
        assert_eq!(rig.names().await, ["a", "b", "new"]);
        assert_eq!(rig.handle.kept(), ["ns/a", "ns/b"]);
        assert_eq!(devices(&rig.ask(Ask::Allocatable).await.unwrap()), ["dev-1", "dev-2"]);
        // It finds one of them again, and then really loses it.
        rig.kubelet.with(|state| state.pods.push(("b", vec![])));
        rig.epoch.bump(Kind::List);
        assert_eq!(rig.names().await, ["a", "b", "new"]);
        rig.kubelet.with(|state| state.pods.pop());
        rig.epoch.bump(Kind::List);
        assert_eq!(rig.names().await, ["a", "new"], "a pod that was confirmed is not brought back");
        tokio::time::sleep(61 * SECOND).await;
        assert_eq!(rig.names().await, ["new"]);
        // The plugin comes back with one of its devices: the other is ill.
        rig.kubelet.with(|state| state.devices = vec!["dev-2"]);
        rig.epoch.bump(Kind::Allocatable);
        assert_eq!(devices(&rig.ask(Ask::Allocatable).await.unwrap()), ["dev-2"]);
    });
}

#[test]
fn after_a_restart_a_lost_pod_goes_when_its_device_has_another_owner() {
    Rig::run(|rig| async move {
        rig.names().await;
        rig.kubelet.kill();
        tokio::time::sleep(SECOND / 3).await;
        rig.kubelet.with(|state| {
            state.down = false;
            state.pods = vec![("new", vec!["dev-1"])];
        });
        rig.epoch.bump(Kind::Socket);
        assert_eq!(rig.names().await, ["b", "new"], "never two owners of one device");
    });
}

#[test]
fn a_reply_counts_for_the_connection_that_it_came_over_although_another_is_made_at_that_moment() {
    Rig::run(|rig| async move {
        rig.names().await;
        // The last word of the old kubelet, and a forwarded Get that is connected to the new one already.
        rig.kubelet.with(|state| state.redialled_after_list = true);
        rig.epoch.bump(Kind::List);
        assert_eq!(rig.names().await, ["a", "b"]);
        assert_eq!(rig.handle.kept(), [""; 0], "that was no restart");
        rig.kubelet.with(|state| state.pods = vec![]);
        rig.epoch.bump(Kind::List);
        assert_eq!(rig.names().await, ["a", "b"], "the new kubelet does not know its pods yet");
    });
}

#[test]
fn devices_are_kept_although_a_restarted_kubelet_is_asked_for_them_before_its_list_succeeds() {
    Rig::run(|rig| async move {
        assert_eq!(devices(&rig.ask(Ask::Allocatable).await.unwrap()), ["dev-1", "dev-2"]);
        rig.kubelet.kill();
        tokio::time::sleep(SECOND / 3).await;
        rig.kubelet.with(|state| {
            state.down = false;
            state.devices = vec![];
            // The first call over the new connection is List.
            state.failures = vec![Failure::Answered(Status::new(Code::Internal, "not yet"))].into();
        });
        rig.epoch.bump(Kind::Socket);
        assert_eq!(devices(&rig.ask(Ask::Allocatable).await.unwrap()), ["dev-1", "dev-2"]);
    });
}

#[test]
fn devices_whose_plugin_never_comes_back_are_kept_for_five_minutes() {
    Rig::run(|rig| async move {
        rig.ask(Ask::Allocatable).await.unwrap();
        rig.kubelet.kill();
        tokio::time::sleep(SECOND / 3).await;
        rig.kubelet.with(|state| {
            state.down = false;
            state.devices = vec![];
        });
        rig.epoch.bump(Kind::Socket);
        tokio::time::sleep(290 * SECOND).await;
        assert_eq!(devices(&rig.ask(Ask::Allocatable).await.unwrap()), ["dev-1", "dev-2"]);
        tokio::time::sleep(25 * SECOND).await;
        assert!(devices(&rig.ask(Ask::Allocatable).await.unwrap()).is_empty());
    });
}

#[test]
fn after_a_restart_a_pod_is_kept_as_long_as_its_cgroup_has_a_process() {
    let node = tempfile::tempdir().unwrap();
    let uid = "01234567-89ab-cdef-0123-456789abcdef";
    let procs = node.path().join(format!("cpuset/kubepods/pod{uid}/cgroup.procs"));
    std::fs::create_dir_all(procs.parent().unwrap()).unwrap();
    std::fs::create_dir_all(node.path().join(format!("logs/ns_a_{uid}"))).unwrap();
    std::fs::write(&procs, "17\n").unwrap();
    let kubepods = Kubepods { cgroup_root: node.path().to_path_buf(), pod_logs: node.path().join("logs") };
    let node = node.path().to_path_buf();
    Rig::run_with(
        |config| config.kubepods = kubepods,
        |rig| async move {
            rig.names().await;
            rig.kubelet.kill();
            tokio::time::sleep(SECOND / 3).await;
            rig.kubelet.with(|state| {
                state.down = false;
                state.pods = vec![];
            });
            rig.epoch.bump(Kind::Socket);
            assert_eq!(rig.names().await, ["a", "b"], "b cannot be seen, so it is given its time");
            tokio::time::sleep(100 * SECOND).await;
            assert_eq!(rig.names().await, ["a"], "a lives");
            // Its logs are gone before it is: its uid is remembered.
            std::fs::remove_dir_all(node.join("logs")).unwrap();
            tokio::time::sleep(SECOND).await;
            assert_eq!(rig.names().await, ["a"]);
            std::fs::write(&procs, "").unwrap();
            tokio::time::sleep(SECOND).await;
            assert!(rig.names().await.is_empty());
        },
    );
}

fn alpha_names(answer: &Answer) -> Vec<String> {
    let reply = v1alpha1::ListPodResourcesResponse::decode(&answer.framed[5..]).unwrap();
    let mut names: Vec<_> = reply.pod_resources.into_iter().map(|pod| pod.name).collect();
    names.sort();
    names
}

async fn restart_with_nothing(rig: &Rig) {
    rig.kubelet.kill();
    tokio::time::sleep(SECOND / 3).await;
    rig.kubelet.with(|state| {
        state.down = false;
        state.pods = vec![];
    });
    rig.epoch.bump(Kind::Socket);
}

#[test]
fn v1alpha1_is_not_short_after_a_restart_although_nobody_asked_for_it_before() {
    Rig::run(|rig| async move {
        rig.names().await;
        restart_with_nothing(&rig).await;
        assert_eq!(rig.names().await, ["a", "b"]);
        assert_eq!(alpha_names(&rig.ask(Ask::AlphaList).await.unwrap()), ["a", "b"]);
    });
}

#[test]
fn v1alpha1_is_not_short_after_a_restart_although_nobody_asked_for_it_lately() {
    Rig::run(|rig| async move {
        rig.ask(Ask::AlphaList).await.unwrap();
        tokio::time::sleep(100 * SECOND).await;
        assert!(rig.handle.view().alpha.is_none());
        restart_with_nothing(&rig).await;
        assert_eq!(alpha_names(&rig.ask(Ask::AlphaList).await.unwrap()), ["a", "b"]);
    });
}

#[test]
fn a_pod_that_a_settled_kubelet_does_not_name_is_gone_at_once() {
    Rig::run(|rig| async move {
        rig.names().await;
        restart_with_nothing(&rig).await;
        assert_eq!(rig.names().await, ["a", "b"], "it does not know its pods yet");
        rig.settled.send_replace(Some(Settled { opened: Instant::now(), at: Instant::now() }));
        tokio::time::sleep(SECOND / 100).await;
        rig.epoch.bump(Kind::List);
        assert!(rig.names().await.is_empty(), "it knows them, and those are none of them");
        assert_eq!(rig.handle.kept(), [""; 0]);
    });
}

#[test]
fn the_word_of_the_kubelet_before_is_not_that_of_the_restarted_one() {
    Rig::run(|rig| async move {
        rig.settled.send_replace(Some(Settled { opened: Instant::now(), at: Instant::now() }));
        tokio::time::sleep(SECOND / 100).await;
        rig.epoch.bump(Kind::List);
        rig.names().await;
        restart_with_nothing(&rig).await;
        assert_eq!(rig.names().await, ["a", "b"]);
    });
}
