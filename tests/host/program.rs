//! The program on machines without a kubelet.

use std::fs;

use podresources_proxy::cpuset::CpuSet;
use podresources_proxy::grpc::Code;
use podresources_proxy::proto::v1;

use crate::harness::client::{ALLOCATABLE, ALPHA_LIST, GET, LIST, Reply};
use crate::harness::{Place, Proxy, eventually, of_pod};

/// The message of a good reply, which must come from this source.
#[track_caller]
fn message<M: prost::Message + Default>(reply: &Reply, source: &str) -> M {
    assert_eq!(reply.headers["podresources-source"], source, "{reply:?}");
    assert_eq!(reply.trailers.as_ref().unwrap()["grpc-status"], "0");
    M::decode(&reply.body[5..]).unwrap()
}

/// The CPUs of this machine that are online.
fn online() -> Vec<i64> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    CpuSet::parse(&text).unwrap().iter().map(i64::from).collect()
}

async fn status(proxy: &Proxy) -> serde_json::Value {
    serde_json::from_str(&proxy.admin("/status").await).unwrap()
}

/// A v2 tree with a pod in it that has CPU 3 of 0-7 alone, its bundle, and a container that nobody names.
pub(crate) fn fake_pod(place: &Place) {
    let id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    let pod = "cgroup/kubepods.slice/kubepods-pod01234567_89ab_cdef_0123_456789abcdef.slice";
    let bundle = format!("bundles/{id}/config.json");
    for (file, text) in [
        ("cgroup/cgroup.controllers".to_owned(), "cpuset cpu\n"),
        ("cgroup/kubepods.slice/cpuset.cpus.effective".to_owned(), "0-7\n"),
        (format!("{pod}/cri-containerd-{id}.scope/cpuset.cpus.effective"), "3\n"),
        (format!("{pod}/cri-containerd-{id}.scope/cpu.weight"), "39\n"),
        (
            bundle,
            r#"{"annotations":{"io.kubernetes.cri.container-type":"container","io.kubernetes.cri.container-name":"main",
                "io.kubernetes.cri.sandbox-name":"web-0","io.kubernetes.cri.sandbox-namespace":"shop"}}"#,
        ),
        (format!("{pod}/stray/cpuset.cpus.effective"), "0-7\n"),
    ] {
        let path = place.path(&file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

#[tokio::test]
async fn without_kubelet_and_kubepods_the_machine_is_told_and_list_is_empty_and_status_says_so() {
    let place = Place::new();
    let proxy = place.start(&["--source", "host"]).await;
    let list: v1::ListPodResourcesResponse = message(&place.call(LIST, |_| {}).await, "host");
    assert_eq!(list.pod_resources, []);
    let allocatable: v1::AllocatableResourcesResponse = message(&place.call(ALLOCATABLE, |_| {}).await, "host");
    assert_eq!(allocatable.cpu_ids, online());
    let memory: u64 = allocatable.memory.iter().map(|block| block.size).sum();
    assert!(memory > 0 && allocatable.memory.iter().all(|block| block.topology.is_some()), "{allocatable:?}");
    assert_eq!(allocatable.devices, []);
    let alpha: v1::ListPodResourcesResponse = message(&place.call(ALPHA_LIST, |_| {}).await, "host");
    assert_eq!(alpha.pod_resources, []);
    let unknown = place.call(GET, of_pod("default", "nobody")).await.error();
    assert_eq!(unknown, (Code::Unknown, "pod nobody in namespace default not found".to_owned()));
    proxy.ready().await;
    let status = status(&proxy).await;
    assert_eq!((&status["source"]["kind"], &status["host"]["kubepods"]), (&"host".into(), &serde_json::json!([])));
    assert!(proxy.log().contains("the host has no kubepods cgroup"), "{}", proxy.log());
    proxy.stop().await;
}

#[tokio::test]
async fn pods_of_the_cgroups_are_told_with_the_cpus_that_are_theirs_alone() {
    let place = Place::new();
    fake_pod(&place);
    let bundles = place.path("bundles");
    let flags = ["--source", "host", "--reserved-cpus", "0", "--bundle-dirs", bundles.to_str().unwrap()];
    let proxy = place.start(&flags).await;
    let list: v1::ListPodResourcesResponse = message(&place.call(LIST, |_| {}).await, "host");
    let got: v1::GetPodResourcesResponse = message(&place.call(GET, of_pod("shop", "web-0")).await, "host");
    assert_eq!(got.pod_resources.as_ref(), list.pod_resources.first());
    let pod = &list.pod_resources[0];
    assert_eq!((pod.containers[0].name.as_str(), &pod.containers[0].cpu_ids[..]), ("main", &[3][..]));
    let allocatable: v1::AllocatableResourcesResponse = message(&place.call(ALLOCATABLE, |_| {}).await, "host");
    assert_eq!(allocatable.cpu_ids, online()[1..]);
    let status = status(&proxy).await;
    assert_eq!((&status["host"]["pods"], &status["host"]["skipped"]["stray_cgroup"]), (&1.into(), &1.into()));
    // What comes later is told too, at the latest with the timer: here nothing shows it.
    fs::remove_dir_all(place.path("cgroup/kubepods.slice")).unwrap();
    eventually("the pod is gone", async || {
        let list: v1::ListPodResourcesResponse = message(&place.call(LIST, |_| {}).await, "host");
        list.pod_resources.is_empty()
    })
    .await;
    proxy.stop().await;
}

#[tokio::test]
async fn auto_is_the_host_where_no_kubelets_directory_is_and_the_kubelet_once_it_comes() {
    let place = Place::new();
    fs::remove_dir_all(place.path("kubelet")).unwrap();
    let proxy = place.start(&[]).await;
    let list: v1::ListPodResourcesResponse = message(&place.call(LIST, |_| {}).await, "host");
    assert_eq!(list.pod_resources, []);
    fs::create_dir_all(place.path("kubelet/pod-resources")).unwrap();
    let _kubelet = place.simulator(|_| {}).await;
    eventually("the kubelet answers", async || place.call(LIST, |_| {}).await.headers["podresources-source"] == "kubelet").await;
    let list: v1::ListPodResourcesResponse = message(&place.call(LIST, |_| {}).await, "kubelet");
    assert!(!list.pod_resources.is_empty());
    assert_eq!(status(&proxy).await["source"]["kind"], "kubelet");
    proxy.stop().await;
}

#[tokio::test]
async fn the_kubelet_is_the_source_where_it_is_said_so_although_it_is_not_there() {
    let place = Place::new();
    fs::remove_dir_all(place.path("kubelet")).unwrap();
    let proxy = place.start(&["--source", "kubelet"]).await;
    eventually("readiness says what is missing", async || proxy.admin("/readyz").await.contains("first capture")).await;
    assert_eq!(status(&proxy).await["source"]["kind"], "kubelet");
    proxy.stop().await;
}

#[test]
fn cpus_that_are_no_list_are_refused_with_what_is_wrong() {
    for (list, wrong) in [("0-x", "is not a list of numbers such as 0-3,8"), ("0-9000", "9000 is out of range")] {
        let output = Place::new().run(&["--source", "host", "--reserved-cpus", list]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains("--reserved-cpus") && said.contains(wrong), "{said}");
    }
}
