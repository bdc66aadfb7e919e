//! The host in the place of a simulated kubelet that is stopped while clients call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;
use podresources_proxy::admin;
use podresources_proxy::proto::v1;
use prost::Message as _;
use tokio::time::{Instant, sleep};

use crate::harness::client::{Client, LIST};
use crate::harness::{Place, Proxy, eventually};
use crate::program::fake_pod;

const CALLERS: usize = 4;

/// The pod that has a cgroup, as the kubelet tells it: with devices.
fn told() -> v1::PodResources {
    let devices = v1::ContainerDevices {
        resource_name: "example.com/nic".to_owned(),
        device_ids: vec!["nic-1".to_owned(), "nic-7".to_owned()],
        ..Default::default()
    };
    let container =
        v1::ContainerResources { name: "main".to_owned(), devices: vec![devices], cpu_ids: vec![3], ..Default::default() };
    v1::PodResources { name: "web-0".to_owned(), namespace: "shop".to_owned(), containers: vec![container], ..Default::default() }
}

/// Calls List until it is told to stop; says how many failed or lacked something.
async fn call(place: &Place, stop: &AtomicBool, lists: &AtomicUsize) -> Vec<String> {
    let (mut client, wanted, mut wrong) = (Client::connect(&place.listen()).await.unwrap(), told(), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let reply = client.ask(LIST, |_| {}).await;
        lists.fetch_add(1, Ordering::Relaxed);
        let list = reply.body.get(5..).map(v1::ListPodResourcesResponse::decode);
        if !list.is_some_and(|list| list.is_ok_and(|list| list.pod_resources.contains(&wanted))) {
            wrong.push(format!("{reply:?}"));
        }
        sleep(Duration::from_millis(5)).await;
    }
    wrong
}

async fn until_source(place: &Place, wanted: &str) -> Duration {
    let began = Instant::now();
    eventually(wanted, async || place.call(LIST, |_| {}).await.headers.get("podresources-source").is_some_and(|is| is == wanted))
        .await;
    began.elapsed()
}

async fn choose(place: &Place, source: &'static str) {
    let reply = admin::request(&place.path("admin/admin.sock"), Method::PUT, "/source", source).await.unwrap();
    assert_eq!(reply.status, 200, "{}", reply.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_list_fails_or_lacks_a_pod_or_its_devices_while_the_host_stands_in() {
    let place = Arc::new(Place::new());
    fake_pod(&place);
    let kubelet = place.simulator(|config| config.pods = 0).await;
    let list = v1::ListPodResourcesResponse { pod_resources: vec![told()] };
    kubelet.set_list(list.encode_to_vec().into());
    let bundles = place.path("bundles");
    let flags = ["--failover", "host", "--max-stale", "1s", "--admission", "off", "--bundle-dirs", bundles.to_str().unwrap()];
    let proxy: Proxy = place.start(&flags).await;
    until_source(&place, "kubelet").await;

    let (stop, lists) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let calling: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (place, stop, lists) = (place.clone(), stop.clone(), lists.clone());
            tokio::spawn(async move { call(&place, &stop, &lists).await })
        })
        .collect();
    kubelet.stop().await;
    let over = until_source(&place, "host").await;
    kubelet.start_again().await.unwrap();
    let back = until_source(&place, "kubelet").await;
    choose(&place, "host").await;
    let at_once = until_source(&place, "host").await;
    choose(&place, "auto").await;
    until_source(&place, "kubelet").await;
    stop.store(true, Ordering::Relaxed);
    let mut wrong = Vec::new();
    for one in calling {
        wrong.extend(one.await.unwrap());
    }
    let lists = lists.load(Ordering::Relaxed);
    println!("{lists} lists, {} wrong | over in {over:?} | back in {back:?} | when told in {at_once:?}", wrong.len());
    assert!(lists > 100 && wrong.is_empty(), "{} of {lists} failed or lacked something, first {:?}", wrong.len(), wrong.first());
    drop(proxy);
}
