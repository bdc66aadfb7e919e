//! Every shape that a pod's, a unit's or a session's cgroup has on nodes.

use podresources_proxy::kubepods::PodUid;
use podresources_proxy::peer::{Client, Unit};

use crate::caller::{Door, is_root};
use crate::cgroups::{Cgroups, hierarchies};

const UID: &str = "01234567-89ab-cdef-0123-456789abcdef";
const BARS: &str = "01234567_89ab_cdef_0123_456789abcdef";
const PLAIN: &str = "0123456789abcdef0123456789abcdef";
const OTHER: &str = "fedcba98-7654-3210-fedc-ba9876543210";
const ID: &str = "4a1b2c3d4e5f60718293a4b5c6d7e8f90123456789abcdef0123456789abcdef";

fn pod() -> Client {
    Client::Pod { uid: PodUid::parse(UID).unwrap() }
}

/// Of a process in this cgroup of each hierarchy in turn: the client, the container and the pod's name.
fn check(path: &str, expected: &Client, container: Option<&str>) {
    for hierarchy in hierarchies() {
        let cgroups = Cgroups::new(&hierarchy);
        let door = Door::open();
        door.log_of(&format!("monitoring_exporter-x7_{UID}"));
        let caller = door.call_from(&[cgroups.cgroup(path)]);
        let peer = door.peer();
        let at = format!("{path} in {}", hierarchy.display());
        assert_eq!(peer.client, *expected, "{at}");
        assert_eq!(peer.pid, Some(caller.pid()), "{at}");
        assert_eq!(peer.container.as_ref().map(podresources_proxy::peer::ContainerId::as_str), container, "{at}");
        let name = matches!(expected, Client::Pod { .. }).then_some("pod:monitoring/exporter-x7");
        assert_eq!(peer.pod.is_some().then(|| peer.to_string()).as_deref(), name, "{at}");
        caller.end();
    }
}

#[test]
fn a_pods_container_is_its_pod_under_every_driver_runtime_and_class() {
    if !is_root("a process in a pod's cgroup") {
        return;
    }
    for path in [
        format!("kubepods/pod{UID}/{ID}"),
        format!("kubepods/burstable/pod{UID}/{ID}"),
        format!("kubepods/besteffort/pod{PLAIN}/crio-{ID}"),
        format!("kubepods.slice/kubepods-pod{BARS}.slice/cri-containerd-{ID}.scope"),
        format!("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{BARS}.slice/cri-containerd-{ID}.scope"),
        format!("kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{BARS}.slice/crio-{ID}.scope/container"),
        format!("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{PLAIN}.slice/docker-{ID}.scope"),
        format!("kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{BARS}.slice/cri-containerd-{ID}.scope"),
        format!("kubelet/kubepods/burstable/pod{UID}/{ID}"),
    ] {
        check(&path, &pod(), Some(ID));
    }
}

#[test]
fn a_containers_monitor_is_the_pod_and_no_container() {
    if is_root("a process in a pod's cgroup") {
        check(&format!("kubepods.slice/kubepods-pod{BARS}.slice/crio-conmon-{ID}.scope"), &pod(), None);
    }
}

#[test]
fn a_pod_forged_below_a_containers_cgroup_is_still_the_container() {
    if is_root("a process in a pod's cgroup") {
        check(&format!("kubepods/burstable/pod{UID}/{ID}/kubepods/pod{OTHER}/{ID}"), &pod(), Some(ID));
    }
}

#[test]
fn a_unit_is_told_and_what_is_below_it_too() {
    if !is_root("a process in a unit's cgroup") {
        return;
    }
    for below in ["", "/child", &format!("/kubepods/pod{OTHER}/{ID}")] {
        check(&format!("system.slice/multus.service{below}"), &Client::Unit(Unit::new("multus.service")), None);
    }
}

#[test]
fn a_pod_is_told_in_whichever_hierarchy_it_is_of_a_hybrid_host() {
    let hierarchies = hierarchies();
    let [one, other] = hierarchies.as_slice() else { return eprintln!("not tested: this is no hybrid host") };
    if !is_root("a process in a pod's cgroup") {
        return;
    }
    for (pods, units) in [(one, other), (other, one)] {
        let (pods, units) = (Cgroups::new(pods), Cgroups::new(units));
        let door = Door::open();
        let at = [pods.cgroup(&format!("kubepods/pod{UID}/{ID}")), units.cgroup("system.slice/containerd.service")];
        let caller = door.call_from(&at);
        assert_eq!(door.peer().client, pod());
        caller.end();
    }
}
