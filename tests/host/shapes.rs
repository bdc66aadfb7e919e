//! Both cgroup drivers and CRI-O's shapes, as trees of real cgroups.

use podresources_proxy::source::host::{Change, ChangeKind, Why};

use crate::cgroups::{Node, Pod, Shape, known, missing, told};

/// A pod with CPU 1 of its own, and one in the shared pool.
fn node(name: &str, shape: Shape) -> (Node, Pod, Pod) {
    let node = Node::new(name, shape);
    let own = Pod { shape, guaranteed: true, number: 1 };
    let shared = Pod { shape, guaranteed: false, number: 2 };
    for (pod, cpus) in [(own, "1"), (shared, "0")] {
        node.pod(pod);
        node.sandbox(pod);
        node.container(pod, 1, cpus);
    }
    (node, own, shared)
}

#[test]
fn real_cgroups_of_the_systemd_driver() {
    if missing().is_some() {
        return;
    }
    let (node, ..) = node("systemd", Shape::Systemd);
    let pods = node.scanned();
    assert_eq!(told(&pods), ["pod-1/c1: 1", "pod-2/c1: -"]);
    assert_eq!(pods.skipped.total(), 0, "{:?}", pods.skipped);
}

#[test]
fn real_cgroups_of_the_cgroupfs_driver() {
    if missing().is_some() {
        return;
    }
    let (node, ..) = node("cgroupfs", Shape::Cgroupfs);
    let pods = node.scanned();
    assert_eq!((told(&pods), pods.skipped.total()), (vec!["pod-1/c1: 1".to_owned(), "pod-2/c1: -".to_owned()], 0));
}

#[test]
fn real_cgroups_of_cri_o_with_its_monitor_beside_and_a_nested_child() {
    if missing().is_some() {
        return;
    }
    let (node, own, _) = node("crio", Shape::Crio);
    node.make_plain(&own.child(1).replace("crio-", "crio-conmon-"));
    // The scope has the whole node, and the child in it the set.
    node.give(&own.child(1), "0-1");
    node.make(&format!("{}/container", own.child(1)), "1");
    let pods = node.scanned();
    assert_eq!((told(&pods), pods.skipped.total()), (vec!["pod-1/c1: 1".to_owned(), "pod-2/c1: -".to_owned()], 0));
}

#[test]
fn each_change_of_real_cgroups_is_followed_alone() {
    if missing().is_some() {
        return;
    }
    let (node, own, shared) = node("changes", Shape::Cgroupfs);
    let mut tree = node.tree();
    tree.rescan(&known());
    let mut follow = |cgroup: String, kind| {
        assert!(tree.apply(&Change { cgroup, kind }, &known()));
        told(&tree.view())
    };
    node.give(&shared.child(1), "0-1");
    assert_eq!(follow(shared.child(1), ChangeKind::Written), ["pod-1/c1: -", "pod-2/c1: -"]);
    node.give(&shared.child(1), "0");
    assert_eq!(follow(shared.child(1), ChangeKind::Written), ["pod-1/c1: 1", "pod-2/c1: -"]);
    let third = Pod { number: 3, ..shared };
    node.pod(third);
    assert_eq!(follow(third.cgroup(), ChangeKind::Made), ["pod-1/c1: 1", "pod-2/c1: -"]);
    node.container(third, 2, "0");
    assert_eq!(follow(third.child(2), ChangeKind::Made), ["pod-1/c1: 1", "pod-2/c1: -", "pod-3/c2: -"]);
    node.remove(&own.cgroup());
    assert_eq!(follow(own.cgroup(), ChangeKind::Removed), ["pod-2/c1: -", "pod-3/c2: -"]);
    node.remove(&third.child(2));
    assert_eq!(follow(third.child(2), ChangeKind::Removed), ["pod-2/c1: -"]);
}

#[test]
fn a_fresh_cgroup_of_v1_with_nothing_in_it_has_nothing() {
    if missing().is_some() {
        return;
    }
    let (node, own, _) = node("fresh", Shape::Cgroupfs);
    node.make_plain(&own.child(5));
    let pods = node.scanned();
    assert_eq!((told(&pods)[0].as_str(), pods.skipped.count(Why::LeftOver)), ("pod-1/c1: 1", 1));
}
