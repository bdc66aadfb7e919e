//! Read your own allocation: whoever asks once a new pod's cgroup exists is told of the pod.
//!
//! `NEW_PODS=200` for the long form, `CHANGE_SOURCES=…` to see what less than all sources would miss; figures are printed.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use podresources_proxy::proto::v1::ListPodResourcesResponse;
use prost::Message as _;

use crate::call::{Client, LIST};
use crate::node::{Kind, Node};
use crate::proxy::Proxy;

const PODS: usize = 20;
/// How many of them are on the node at a time. More than there are devices, so that not each asks for one.
const AT_A_TIME: usize = 6;
/// Far less than the kubelet takes from one step to the next.
const LOOK_EVERY: Duration = Duration::from_micros(200);
/// Between one pod and the next: they come one after the other, as on a node that is not being filled.
const BREATH: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real kubelet: `cargo xtask test --only kubelet`"]
async fn the_first_list_that_begins_after_a_pods_cgroup_exists_has_the_pod() {
    let count = std::env::var("NEW_PODS").map_or(PODS, |count| count.parse().expect("NEW_PODS is a number"));
    let sources = std::env::var("CHANGE_SOURCES").ok();
    let node = Node::start();
    let flags: Vec<&str> = sources.iter().flat_map(|sources| ["--change-sources", sources]).collect();
    let proxy = Proxy::start(&node, &flags).await;
    let mut client = Client::connect(&proxy.socket()).await;
    client.call(LIST, Vec::new()).await;
    let (mut known, mut here) = (HashSet::new(), VecDeque::new());
    known.extend(node.pod_cgroups().iter().map(|cgroup| pod(cgroup)));
    let mut missed = Vec::new();
    for round in 0..count {
        let name = format!("new-{round}");
        let kind = if round % 3 == 0 { Kind::Device } else { Kind::Shared };
        node.add_pod(&name, kind);
        let cgroup = first_of(&node, &known).await;
        let reply = client.call(LIST, Vec::new()).await;
        assert_eq!(reply.code, 0, "{}", reply.text);
        assert!(reply.metadata.get("podresources-stale").is_none(), "pod {name}: marked stale");
        let list = ListPodResourcesResponse::decode(reply.message).unwrap();
        let full = format!("{name}-node1");
        let devices = list.pod_resources.iter().find(|pod| pod.name == full).map(|pod| pod.containers[0].devices.len());
        let wanted = usize::from(matches!(kind, Kind::Device));
        if devices != Some(wanted) {
            missed.push(format!("{full} ({kind:?}): {devices:?} after {} was made", cgroup.display()));
        }
        here.push_back(name);
        if here.len() == AT_A_TIME {
            // A pod that is removed while it starts stays for longer than one that runs.
            let oldest = here.pop_front().unwrap();
            node.remove_pod(&oldest);
        }
        known.insert(pod(&cgroup));
        tokio::time::sleep(BREATH).await;
    }
    println!("{} of {count} pods were in the first List after their cgroup was made; sources: {sources:?}", count - missed.len());
    assert!(missed.is_empty(), "{missed:#?}");
}

/// The pod by its cgroup's name, `pod<uid>`: the kubelet may take a second from the first hierarchy to the last.
fn pod(cgroup: &Path) -> OsString {
    cgroup.file_name().unwrap().to_owned()
}

/// The first cgroup of a pod that is not known yet, in whatever hierarchy it comes first.
async fn first_of(node: &Node, known: &HashSet<OsString>) -> PathBuf {
    let looking = async {
        loop {
            if let Some(new) = node.pod_cgroups().into_iter().find(|cgroup| !known.contains(&pod(cgroup))) {
                return new;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), looking).await.expect("the pod's cgroup is made")
}
