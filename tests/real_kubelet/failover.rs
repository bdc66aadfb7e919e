//! `--failover host` in front of a real kubelet that is stopped while clients call.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use podresources_proxy::proto::v1;
use prost::Message as _;
use tokio::time::{Instant, sleep};

use crate::call::{Client, GET, LIST, Reply, get_request};
use crate::host::flags;
use crate::node::Node;
use crate::proxy::Proxy;

type Devices = BTreeMap<(String, String), BTreeSet<String>>;

/// Device ids by pod and container.
fn devices(message: &[u8]) -> Devices {
    let list = v1::ListPodResourcesResponse::decode(message).unwrap();
    let of_pod = |pod: v1::PodResources| {
        pod.containers.into_iter().map(move |container| {
            let ids = container.devices.into_iter().flat_map(|device| device.device_ids).collect();
            ((pod.name.clone(), container.name), ids)
        })
    };
    list.pod_resources.into_iter().flat_map(of_pod).collect()
}

fn source(reply: &Reply) -> String {
    reply.metadata.get("podresources-source").map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
}

async fn until_source(client: &mut Client, wanted: &str) -> Duration {
    let began = Instant::now();
    for _ in 0..2400 {
        let reply = client.call(LIST, Bytes::new()).await;
        if reply.code == 0 && source(&reply) == wanted {
            return began.elapsed();
        }
        sleep(Duration::from_millis(50)).await;
    }
    panic!("never answered by the {wanted}");
}

fn put_source(node: &Node, wish: &str) {
    let mut admin = UnixStream::connect(node.scratch("admin").join("admin.sock")).unwrap();
    let request = format!("PUT /source HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{wish}", wish.len());
    admin.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    admin.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real kubelet: `cargo xtask test --only kubelet`"]
async fn no_list_fails_or_is_short_of_a_pod_or_its_devices_over_failover_and_failback() {
    let node = Node::start();
    let mut words = flags(&node, "kubelet");
    // Five clients of one user, and it is not about their rate.
    words.extend(["--failover", "host", "--max-stale", "3s", "--admission", "off"].map(str::to_owned));
    let proxy = Proxy::start_inside(&node, &words.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut client = Client::connect(&proxy.socket()).await;
    let before = client.call(LIST, Bytes::new()).await;
    assert_eq!((before.code, source(&before).as_str()), (0, "kubelet"));
    let before = devices(&before.message);
    assert!(before.values().any(|ids| !ids.is_empty()), "somebody has a device: {before:?}");

    let (stop, lists) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let calling: Vec<_> = (0..4)
        .map(|_| {
            let (stop, lists, socket, wanted) = (stop.clone(), lists.clone(), proxy.socket(), before.clone());
            tokio::spawn(async move {
                let mut client = Client::connect(&socket).await;
                let (mut failed, mut short) = (Vec::new(), Vec::new());
                while !stop.load(Ordering::Relaxed) {
                    let reply = client.call(LIST, Bytes::new()).await;
                    lists.fetch_add(1, Ordering::Relaxed);
                    let found = if reply.code == 0 { devices(&reply.message) } else { Devices::new() };
                    if reply.code != 0 {
                        failed.push(reply);
                    } else if wanted.iter().any(|(container, ids)| found.get(container) != Some(ids)) {
                        short.push((source(&reply), found));
                    }
                    sleep(Duration::from_millis(20)).await;
                }
                (failed, short)
            })
        })
        .collect();

    node.kill_kubelet().await;
    let over = until_source(&mut client, "host").await;
    let known = client.call(GET, get_request("default", "exclusive-node1")).await;
    assert_eq!((known.code, source(&known).as_str()), (0, "host"), "{known:?}");
    let unknown = client.call(GET, get_request("default", "nobody")).await;
    assert_eq!(unknown.code, 14, "{unknown:?}");
    sleep(Duration::from_secs(3)).await;
    node.restart_kubelet();
    let back = until_source(&mut client, "kubelet").await;

    put_source(&node, "host");
    let at_once = until_source(&mut client, "host").await;
    put_source(&node, "auto");
    until_source(&mut client, "kubelet").await;

    stop.store(true, Ordering::Relaxed);
    let (mut failed, mut short) = (Vec::new(), Vec::new());
    for one in calling {
        let (of_one_failed, of_one_short) = one.await.unwrap();
        failed.extend(of_one_failed);
        short.extend(of_one_short);
    }
    let lists = lists.load(Ordering::Relaxed);
    println!(
        "kubelet {} | {lists} lists | {} failed | {} short | over in {over:?} | back in {back:?} | when told in {at_once:?}",
        Node::version(),
        failed.len(),
        short.len()
    );
    assert!(failed.is_empty(), "{} of {lists} failed, first {:?}", failed.len(), failed.first());
    assert!(short.is_empty(), "{} of {lists} were short, first {:?} of {before:?}", short.len(), short.first());
}
