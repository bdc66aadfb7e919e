//! A kubelet that cannot be reached: the proxy starts, says what is missing, and works once it is there.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use podresources_proxy::grpc::Code;
use rustix::process::geteuid;

use crate::client::{ALLOCATABLE, ALPHA_LIST, GET, LIST};
use crate::harness::{Place, Proxy, eventually, of_pod, with};
use crate::somebody::as_somebody;

/// Every method must end with UNAVAILABLE at its own deadline, with this in its text; and readiness must say it too.
async fn assert_waits(place: &Place, proxy: &Proxy, why: &str) {
    let why = why.replace("DIR/", place.path("").to_str().unwrap());
    for method in [LIST, ALLOCATABLE, ALPHA_LIST] {
        let (code, text) = place.call(method, with("grpc-timeout", "300m")).await.error();
        assert_eq!(code, Code::Unavailable, "{method}");
        assert!(text.starts_with("podresources-proxy: ") && text.contains(&why), "{method}: {text}");
    }
    let mut said = String::new();
    eventually("readiness says why", async || {
        said = proxy.admin("/readyz").await;
        said.contains("first capture") && said.contains(&why)
    })
    .await;
    assert!(!said.starts_with("ready"), "{said}");
    let log = proxy.log();
    assert_eq!(log.matches(&why).count(), 1, "the log says it once:\n{log}");
}

/// The kubelet appears: all is well at once.
async fn assert_works_once_it_is_there(place: &Place, proxy: Proxy) {
    let kubelet = place.simulator(|_| {}).await;
    let pod = kubelet.node().pods().next().unwrap().key.clone();
    place.call(LIST, |_| {}).await.trailers.expect("an answer");
    let got = place.call(GET, of_pod(&pod.namespace, &pod.name)).await;
    got.assert_ok(&got.body);
    proxy.ready().await;
    proxy.stop().await;
}

#[tokio::test]
async fn without_a_kubelet_it_starts_and_waits_for_one() {
    let place = Place::new();
    let proxy = place.start(&[]).await;
    assert_waits(&place, &proxy, "DIR/kubelet/pod-resources/kubelet.sock does not exist; is the server running").await;
    assert_works_once_it_is_there(&place, proxy).await;
}

#[tokio::test]
async fn a_dead_socket_of_the_kubelet_is_waited_at() {
    let place = Place::new();
    drop(UnixListener::bind(place.kubelet()).unwrap());
    let proxy = place.start(&[]).await;
    assert_waits(&place, &proxy, "nobody listens on DIR/kubelet/pod-resources/kubelet.sock").await;
    assert_works_once_it_is_there(&place, proxy).await;
}

#[tokio::test]
async fn a_path_that_leads_nowhere_is_named_and_waited_for() {
    let place = Place::new();
    fs::remove_dir_all(place.path("kubelet")).unwrap();
    // Without a directory of the kubelet's, `auto` would answer from the host.
    let proxy = place.start(&["--source", "kubelet"]).await;
    assert_waits(&place, &proxy, "DIR/kubelet/pod-resources/kubelet.sock does not exist").await;
    assert_works_once_it_is_there(&place, proxy).await;
}

#[tokio::test]
async fn a_file_in_the_kubelets_sockets_place_is_called_what_it_is() {
    let place = Place::new();
    fs::write(place.kubelet(), "").unwrap();
    let proxy = place.start(&[]).await;
    assert_waits(&place, &proxy, "DIR/kubelet/pod-resources/kubelet.sock is not a socket; give the path of the socket itself")
        .await;
    fs::remove_file(place.kubelet()).unwrap();
    assert_works_once_it_is_there(&place, proxy).await;
}

/// Needs root, who alone can start the proxy as somebody else; without root it says so, and fails where `CI` is set.
#[tokio::test]
async fn without_permission_on_the_kubelets_socket_it_says_who_decides() {
    if !geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "this test needs root");
        eprintln!("not run: without_permission_on_the_kubelets_socket_it_says_who_decides needs root");
        return;
    }
    let place = Place::new();
    let kubelet = place.simulator(|_| {}).await;
    fs::set_permissions(place.kubelet(), Permissions::from_mode(0o600)).unwrap();
    let command = as_somebody(&place, &place.run(&[]), &["proxy", "admin"]);
    let proxy = place.spawn(command);
    eventually("the socket is in place", async || place.listen().exists()).await;
    assert_waits(&place, &proxy, "permission denied on DIR/kubelet/pod-resources/kubelet.sock; its owner, group and mode decide")
        .await;
    // No event tells of a new mode; the proxy looks again by itself.
    fs::set_permissions(place.kubelet(), Permissions::from_mode(0o666)).unwrap();
    proxy.ready().await;
    place.call(LIST, |_| {}).await.trailers.expect("an answer");
    proxy.stop().await;
    kubelet.close().await;
}
