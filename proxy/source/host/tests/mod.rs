//! The tree over directories that look like cgroup v2: shapes, bad input, and that a change read alone gives what a full scan gives.

mod bad_input;
mod changes;
mod fake;

use fake::{Fake, PodAt, Shape, told};

use super::Why;

const GUARANTEED: PodAt<'_> = PodAt { shape: Shape::Systemd, root: "kubepods.slice", class: "", name: "own", number: 1 };
const BURSTABLE: PodAt<'_> = PodAt { class: "burstable", name: "shared", number: 2, ..GUARANTEED };

/// A pod with a CPU of its own and one in the shared pool, with their sandboxes.
fn two_pods(fake: &Fake, own: PodAt<'_>, shared: PodAt<'_>) {
    fake.pod(own);
    fake.sandbox(own, 0);
    fake.container(own, "main", 1, "3", 1);
    fake.pod(shared);
    fake.sandbox(shared, 0);
    fake.container(shared, "a", 1, "0-2,4-7", 1);
    fake.container(shared, "b", 2, "0-2,4-7", 1);
}

const TOLD: [&str; 3] = ["ns/own/main: 3", "ns/shared/a: -", "ns/shared/b: -"];

#[test]
fn the_systemd_drivers_slices_and_scopes_are_read() {
    let fake = Fake::new("kubepods.slice");
    two_pods(&fake, GUARANTEED, BURSTABLE);
    let pods = fake.scanned();
    assert_eq!(told(&pods), TOLD);
    assert_eq!(pods.skipped.total(), 0, "{:?}", pods.skipped);
}

#[test]
fn the_cgroupfs_drivers_directories_are_read() {
    let fake = Fake::new("kubepods");
    let own = PodAt { shape: Shape::Cgroupfs, root: "kubepods", ..GUARANTEED };
    two_pods(&fake, own, PodAt { class: "besteffort", name: "shared", number: 2, ..own });
    assert_eq!(told(&fake.scanned()), TOLD);
}

#[test]
fn a_kubelet_in_a_container_has_its_root_deeper_and_is_read_beside_another() {
    let fake = Fake::new("kubepods.slice");
    two_pods(&fake, GUARANTEED, BURSTABLE);
    let root = "docker/0123/kubelet.slice/kubelet-kubepods.slice";
    fake.cgroup(root, "0-7", "0-1");
    let nested = PodAt { root, name: "nested", number: 9, ..GUARANTEED };
    fake.pod(nested);
    fake.container(nested, "main", 1, "5", 1);
    let pods = fake.scanned();
    assert_eq!(pods.roots, [root, "kubepods.slice"]);
    // The shared pool of the one has the CPU of the other: nobody owns it.
    assert_eq!(told(&pods), ["ns/nested/main: -", "ns/own/main: 3", "ns/shared/a: -", "ns/shared/b: -"]);
}

#[test]
fn cri_os_monitor_beside_a_container_is_no_container_and_takes_no_cpu() {
    let fake = Fake::new("kubepods.slice");
    let own = PodAt { shape: Shape::Crio, ..GUARANTEED };
    two_pods(&fake, own, PodAt { shape: Shape::Crio, ..BURSTABLE });
    let (cgroup, id) = own.child(1);
    fake.cgroup(&cgroup.replace(&format!("crio-{id}"), &format!("crio-conmon-{id}")), "0-7", "0-1");
    let pods = fake.scanned();
    assert_eq!(told(&pods), TOLD);
    assert_eq!(pods.skipped.total(), 0, "{:?}", pods.skipped);
}

#[test]
fn the_set_of_the_cgroup_that_cri_o_nests_in_a_containers_is_the_containers() {
    let fake = Fake::new("kubepods.slice");
    let own = PodAt { shape: Shape::Crio, ..GUARANTEED };
    fake.pod(own);
    let cgroup = fake.container(own, "main", 1, "0-7", 1);
    fake.cgroup(&format!("{cgroup}/container"), "3", "0-1");
    assert_eq!(told(&fake.scanned()), ["ns/own/main: 3"]);
}

#[test]
fn a_partitions_cpus_lie_outside_of_kubepods_and_are_its_own() {
    let fake = Fake::new("kubepods.slice");
    let own = PodAt { shape: Shape::Crio, ..GUARANTEED };
    two_pods(&fake, own, BURSTABLE);
    fake.cgroup("kubepods.slice", "0-2,4-7", "0-1");
    let cgroup = own.child(1).0;
    fake.write(&format!("cgroup/{cgroup}/cpu.weight"), "100\n");
    fake.write(&format!("cgroup/{cgroup}/cpuset.cpus.partition"), "isolated\n");
    assert_eq!(told(&fake.scanned()), TOLD);
    fake.write(&format!("cgroup/{cgroup}/cpuset.cpus.partition"), "isolated invalid (Parent is not a partition root)\n");
    assert_eq!(told(&fake.scanned())[0], "ns/own/main: -");
}

#[test]
fn without_a_cpuset_controller_pods_are_told_and_nobody_has_cpus() {
    let fake = Fake::new("kubepods.slice");
    two_pods(&fake, GUARANTEED, BURSTABLE);
    for cgroup in ["kubepods.slice".to_owned(), GUARANTEED.child(1).0, BURSTABLE.child(1).0, BURSTABLE.child(2).0] {
        std::fs::remove_file(fake.path("cgroup").join(cgroup).join("cpuset.cpus.effective")).unwrap();
    }
    let pods = fake.scanned();
    assert_eq!(told(&pods), ["ns/own/main: -", "ns/shared/a: -", "ns/shared/b: -"]);
    assert_eq!(pods.skipped.total(), 0, "{:?}", pods.skipped);
}

#[test]
fn memory_is_told_where_a_guaranteed_container_is_bound_to_some_nodes_and_has_a_limit() {
    let fake = Fake::new("kubepods.slice");
    two_pods(&fake, GUARANTEED, BURSTABLE);
    let memory = |fake: &Fake| {
        let pods = fake.scanned();
        let all = pods.listed().flat_map(|(_, pod)| &pod.containers).flat_map(|container| container.memory.clone());
        all.map(|memory| format!("{:?} {} on {}", memory.page_kib, memory.bytes, memory.nodes)).collect::<Vec<_>>()
    };
    for cgroup in [GUARANTEED.child(1).0, BURSTABLE.child(1).0] {
        fake.write(&format!("cgroup/{cgroup}/memory.max"), "33554432\n");
        fake.write(&format!("cgroup/{cgroup}/hugetlb.2MB.max"), "0\n");
    }
    assert_eq!(memory(&fake), [""; 0], "bound to both nodes is not bound");
    for cgroup in [GUARANTEED.child(1).0, BURSTABLE.child(1).0] {
        fake.write(&format!("cgroup/{cgroup}/cpuset.mems.effective"), "1\n");
    }
    assert_eq!(memory(&fake), ["None 33554432 on 1"]);
    fake.write(&format!("cgroup/{}/hugetlb.2MB.max", GUARANTEED.child(1).0), "4194304\n");
    fake.write(&format!("cgroup/{}/memory.max", GUARANTEED.child(1).0), "max\n");
    assert_eq!(memory(&fake), ["Some(2048) 4194304 on 1"]);
}

#[test]
fn a_pod_with_its_sandbox_alone_is_told_empty_and_one_without_is_left_out() {
    let fake = Fake::new("kubepods.slice");
    fake.pod(GUARANTEED);
    let pods = fake.scanned();
    assert_eq!((told(&pods), pods.skipped.count(Why::EmptyPod)), (vec![], 1));
    fake.sandbox(GUARANTEED, 0);
    let pods = fake.scanned();
    assert_eq!((told(&pods), pods.skipped.total()), (vec!["ns/own".to_owned()], 0));
}

#[test]
fn without_kubepods_there_is_nothing_and_that_is_no_error() {
    let fake = Fake::new("system.slice");
    let pods = fake.scanned();
    assert_eq!((pods.roots.len(), told(&pods).len(), pods.skipped.total()), (0, 0, 0));
}
