//! Pods that come and go, and the files that tell of it.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;

use tokio::time::{sleep, timeout};

use super::*;
use crate::simulate::{ContainerRequest, PodKey, PodRequest};

/// The inode of each state file: a new one after each rename.
fn inodes(root: &Path) -> Vec<u64> {
    let files = [
        "device-plugins/kubelet_internal_checkpoint",
        "cpu_manager_state",
        "memory_manager_state",
        "allocated_pods_state",
        "dra_manager_state",
    ];
    files.map(|file| std::fs::metadata(root.join(file)).unwrap().ino()).to_vec()
}

fn wants_all() -> PodRequest {
    let main = ContainerRequest::named("main").cpus(2).memory(1 << 30).devices("nvidia.com/gpu", 1).claims(1);
    PodRequest::new("default", "wants-all").container(main)
}

#[tokio::test]
async fn under_churn_pods_change_their_number_does_not_and_nothing_has_two_owners() {
    let lab = Lab::start(|config| config.churn = 1000.0).await;
    let mut client = lab.client().await;
    let names = |list: &v1::ListPodResourcesResponse| list.pod_resources.iter().map(|pod| pod.name.clone()).collect::<HashSet<_>>();
    let first = names(&client.list().await);
    let all_replaced_once = async {
        loop {
            let list = client.list().await;
            let cpus: Vec<_> = list.pod_resources.iter().flat_map(|pod| &pod.containers).flat_map(|c| &c.cpu_ids).collect();
            assert_eq!(cpus.len(), cpus.iter().collect::<HashSet<_>>().len(), "a CPU has two owners");
            assert_eq!(list.pod_resources.len(), 110);
            if names(&list).intersection(&first).count() < 55 {
                break;
            }
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(Duration::from_mins(1), all_replaced_once).await.expect("half of the pods are replaced");
    lab.sim.close().await;
}

#[tokio::test]
async fn a_pod_is_listed_empty_then_holds_its_share_then_its_claims() {
    let times = PodTimes { admission: Duration::from_millis(50), prepare: Duration::from_millis(50), release: Duration::ZERO };
    let lab = Lab::start(|config| (config.pod, config.devices, config.claims) = (times, 64, 64)).await;
    let expected = [(0, 0, 0), (2, 1, 0), (2, 1, 1)];
    let mut client = lab.client().await;
    // A busy machine may make the client miss a step; it never sees them in another order.
    for _ in 0..50 {
        let sim = lab.sim.clone();
        let coming = tokio::spawn(async move { sim.add_pod(wants_all()).await });
        let mut seen = Vec::new();
        while seen.last() != Some(&(2, 1, 1)) {
            let got = client.get("default", "wants-all").await;
            if let Outcome::Ok(_) = got {
                let main = &got.decode::<v1::GetPodResourcesResponse>().pod_resources.unwrap().containers[0];
                let now = (main.cpu_ids.len(), main.devices.len(), main.dynamic_resources.len());
                if seen.last() != Some(&now) {
                    seen.push(now);
                }
            }
            sleep(Duration::from_millis(1)).await;
        }
        coming.await.unwrap().unwrap();
        let mut rest = expected.iter();
        assert!(seen.iter().all(|now| rest.any(|next| next == now)), "{seen:?}");
        if seen == expected {
            return;
        }
        lab.sim.remove_pod(&wants_all().key).await.unwrap();
    }
    panic!("no pod was seen at each step");
}

#[tokio::test]
async fn each_allocation_and_each_release_puts_new_state_files_in_place() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().to_owned();
    let lab =
        Lab::start(|config| (config.root_dir, config.socket, config.devices, config.claims) = (Some(path), None, 64, 64)).await;
    assert_eq!(lab.sim.socket(), root.path().join("pod-resources/kubelet.sock"));
    let before = inodes(root.path());
    lab.sim.add_pod(wants_all()).await.unwrap();
    let after = inodes(root.path());
    assert!(before.iter().zip(&after).all(|(before, after)| before != after), "{before:?} {after:?}");
    let pod = lab.sim.node().pod(&PodKey::new("default", "wants-all")).unwrap().clone();
    for file in ["device-plugins/kubelet_internal_checkpoint", "cpu_manager_state", "memory_manager_state", "dra_manager_state"] {
        assert!(std::fs::read_to_string(root.path().join(file)).unwrap().contains(&pod.uid), "{file} tells of the pod");
    }
    lab.sim.remove_pod(&pod.key).await.unwrap();
    assert!(after.iter().zip(inodes(root.path())).all(|(before, after)| *before != after));
    let left = std::fs::read_to_string(root.path().join("cpu_manager_state")).unwrap();
    assert!(!left.contains(&pod.uid), "its CPUs are free");
    let temporary =
        std::fs::read_dir(root.path()).unwrap().filter(|e| e.as_ref().unwrap().file_name().as_encoded_bytes()[0] == b'.');
    assert_eq!(temporary.count(), 0);
}

#[tokio::test]
async fn a_sick_device_and_a_plugin_that_registers_again_rewrite_the_checkpoint_alone() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().to_owned();
    let lab = Lab::start(|config| (config.root_dir, config.socket, config.restart) = (Some(path), None, QUICK)).await;
    let first = inodes(root.path());
    let id = lab.sim.node().devices().next().unwrap().1.to_owned();
    lab.sim.set_device_health(&id, false).unwrap();
    let second = inodes(root.path());
    assert_ne!(first[0], second[0]);
    lab.sim.restart().await.unwrap();
    // The stage is reached just before the file is written.
    let rewritten = async {
        while inodes(root.path())[0] == second[0] {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(10), rewritten).await.expect("the checkpoint is rewritten");
    assert_eq!(first[1..], inodes(root.path())[1..]);
}

#[tokio::test]
async fn a_pod_that_comes_while_the_kubelet_is_down_is_there_when_it_is_back() {
    let lab = Lab::start(|config| config.restart = QUICK).await;
    lab.sim.stop().await;
    let sim = lab.sim.clone();
    let coming = tokio::spawn(async move { sim.add_pod(PodRequest::new("default", "late")).await });
    sleep(Duration::from_millis(10)).await;
    assert!(!coming.is_finished());
    lab.sim.start_again().await.unwrap();
    coming.await.unwrap().unwrap();
    lab.client().await.get("default", "late").await.message();
}
