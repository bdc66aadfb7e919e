//! A kubelet's restart as its clients see it.

use std::os::unix::fs::{FileTypeExt, MetadataExt};

use tokio::time::{sleep, timeout};

use super::*;
use crate::simulate::Stage;

fn inode(socket: &Path) -> u64 {
    std::fs::symlink_metadata(socket).unwrap().ino()
}

#[tokio::test]
async fn a_restart_is_refused_then_a_new_inode_then_empty_then_whole_with_devices_last() {
    let lab = Lab::start(|config| config.restart = QUICK).await;
    let mut before = lab.client().await;
    let (pods, devices) = (before.list().await.pod_resources.len(), before.allocatable().await.devices.len());
    assert!(pods == 110 && devices > 0);
    let expected = [None, Some((0, 0)), Some((pods, 0)), Some((pods, devices))];
    // A busy machine may make the client miss a part; it never sees them in another order.
    for _ in 0..50 {
        let seen = seen_through_a_restart(&lab).await;
        assert_eq!(before.ask(Method::List).await, Outcome::Broken(Bytes::new()), "connections end with the kubelet");
        let mut rest = expected.iter();
        assert!(seen.iter().all(|now| rest.any(|next| next == now)), "{seen:?}");
        if seen == expected {
            return;
        }
        before = lab.client().await;
    }
    panic!("no restart was seen whole");
}

/// What a client sees who connects again and again: nobody (`None`), or so many pods and devices.
async fn seen_through_a_restart(lab: &Lab) -> Vec<Option<(usize, usize)>> {
    let old = inode(lab.sim.socket());
    let sim = lab.sim.clone();
    let restart = tokio::spawn(async move { sim.restart().await });
    let mut seen = Vec::new();
    let mut after = false;
    while !after {
        // One more look when all is over.
        after = restart.is_finished();
        let now = match Client::connect(lab.sim.socket()).await {
            // Caught while it goes down.
            Err(error) if error.kind() != io::ErrorKind::ConnectionRefused => continue,
            Err(_) => {
                let there = std::fs::symlink_metadata(lab.sim.socket()).unwrap();
                assert!(there.file_type().is_socket() && there.ino() == old, "the dead file stays");
                None
            }
            Ok(_) if inode(lab.sim.socket()) == old => {
                sleep(Duration::from_millis(1)).await;
                continue;
            }
            Ok(mut client) => {
                // Both answers belong to one stage, or they tell nothing.
                let stage = lab.sim.stage();
                let (list, allocatable) = (client.list().await, client.allocatable().await);
                assert!(!allocatable.cpu_ids.is_empty());
                if lab.sim.stage() != stage {
                    continue;
                }
                Some((list.pod_resources.len(), allocatable.devices.len()))
            }
        };
        if seen.last() != Some(&now) {
            seen.push(now);
        }
        sleep(Duration::from_millis(1)).await;
    }
    restart.await.unwrap().unwrap();
    seen
}

#[tokio::test]
async fn a_stop_leaves_a_dead_file_and_a_start_serves_again() {
    let lab = Lab::start(|config| config.restart = HELD).await;
    let mut client = lab.client().await;
    client.list().await;
    lab.sim.stop().await;
    assert_eq!((lab.sim.stage(), lab.sim.connections()), (Stage::Down, 0));
    let refused = Client::connect(lab.sim.socket()).await.err().unwrap();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    lab.sim.start_again().await.unwrap();
    assert!(lab.client().await.list().await.pod_resources.is_empty());
    lab.sim.advance(Stage::Whole);
    assert_eq!(lab.client().await.list().await.pod_resources.len(), 110);
    assert_eq!(lab.sim.accepted(), 3);
}

#[tokio::test]
async fn while_it_knows_no_pods_a_get_says_not_found() {
    let lab = Lab::start(|config| config.restart = HELD).await;
    let key = lab.sim.node().pods().next().unwrap().key.clone();
    lab.sim.stop().await;
    lab.sim.start_again().await.unwrap();
    let mut client = lab.client().await;
    let got = client.get(&key.namespace, &key.name).await;
    let text = format!("pod {} in namespace {} not found", key.name, key.namespace);
    assert_eq!(got, Outcome::Status(Code::Unknown, text));
    lab.sim.advance(Stage::Pods);
    client.get(&key.namespace, &key.name).await.message();
}

#[tokio::test]
async fn a_recorded_reply_goes_through_a_restart_too() {
    let case = cases().join("list-1.36.2-host.hex");
    let lab = Lab::start(|config| (config.restart, config.from) = (HELD, Some(case))).await;
    let (list, devices) = (lab.client().await.list().await, lab.client().await.allocatable().await.devices);
    lab.sim.stop().await;
    lab.sim.start_again().await.unwrap();
    let mut client = lab.client().await;
    assert_eq!((client.list().await.pod_resources.len(), client.allocatable().await.devices.len()), (0, 0));
    lab.sim.advance(Stage::Whole);
    assert_eq!((client.list().await, client.allocatable().await.devices), (list, devices));
}

#[tokio::test]
async fn it_restarts_by_itself_as_often_as_asked() {
    let lab = Lab::start(|config| (config.restart, config.restart_every) = (QUICK, Some(Duration::from_millis(100)))).await;
    let mut seen = vec![inode(lab.sim.socket())];
    let three_restarts = async {
        while seen.len() < 4 {
            sleep(Duration::from_millis(5)).await;
            let now = inode(lab.sim.socket());
            if !seen.contains(&now) {
                seen.push(now);
            }
        }
    };
    timeout(Duration::from_secs(30), three_restarts).await.expect("three restarts");
    lab.sim.close().await;
}
