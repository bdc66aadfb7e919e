//! Which cgroups count, while roots come and go.

use std::fs;

use podresources_proxy::change::Source as _;

use crate::node::{MKDIR, Node};

/// Makes and removes a cgroup; says by how much the epoch moved.
fn moves(node: &Node, top: usize, path: &str) -> u64 {
    let cgroup = node.cgroup(top, path);
    node.exact_bumps(|| {
        fs::create_dir(&cgroup).unwrap();
        fs::remove_dir(&cgroup).unwrap();
    })
}

#[test]
fn roots_of_every_form_are_known_from_the_start() {
    let roots = ["kubepods", "a/kubepods.slice", "a/b/kubelet.slice/kubelet-kubepods.slice"];
    let Some(node) = Node::with_roots(&roots) else { return };
    if !node.attached(&MKDIR) {
        return;
    }
    for top in 0..node.tops.len() {
        for root in roots {
            // Our own folder is one deep, and roots are looked for no deeper than five.
            assert!(moves(&node, top, &format!("{root}/pod")) >= 2, "{root}");
        }
        assert_eq!(moves(&node, top, "a/b/pod"), 0);
    }
}

#[test]
fn a_root_that_appears_later_counts_with_all_below_it_from_its_first_moment() {
    let Some(node) = Node::with_roots(&[]) else { return };
    if !node.attached(&MKDIR) {
        return;
    }
    for top in 0..node.tops.len() {
        for root in [
            "kubepods",
            "kubepods.slice",
            "x/kubelet-kubepods.slice",
            "y/a-very-long-name-of-a-kubelet-in-a-kubelet-kubepods.slice",
        ] {
            let made = node.cgroup(top, root);
            let _there = fs::create_dir(made.parent().unwrap());
            assert_eq!(moves(&node, top, "pod"), 0, "before {root}");
            assert_eq!(node.exact_bumps(|| fs::create_dir(&made).unwrap()), 1, "{root}");
            // Nobody has looked yet.
            assert!(moves(&node, top, &format!("{root}/pod")) >= 2, "{root}");
            node.ebpf.woken(&node.epoch);
            assert!(moves(&node, top, &format!("{root}/pod")) >= 2, "{root}");
            assert_eq!(moves(&node, top, "pod"), 0, "after {root}");
            fs::remove_dir(&made).unwrap();
            // While it still counts as a root.
            node.settle();
            node.ebpf.mend(&node.epoch);
        }
    }
}

#[test]
fn names_that_only_look_like_a_roots_are_none() {
    let Some(node) = Node::with_roots(&[]) else { return };
    if !node.attached(&MKDIR) {
        return;
    }
    for name in
        ["kubepods2", "kubepod", "kubepods.slic", "kubepods.slice2", "xkubepods.slice", "kubepods-x.slice", "-kubepods.slic"]
    {
        assert_eq!(moves(&node, 0, name), 0, "{name}");
    }
}

#[test]
fn a_root_removed_and_made_again_counts_again() {
    let Some(node) = Node::where_attached(&MKDIR) else { return };
    let root = node.cgroup(0, "kubepods");
    for _ in 0..3 {
        assert!(node.exact_bumps(|| fs::remove_dir(&root).unwrap()) >= 1);
        node.settle();
        node.ebpf.mend(&node.epoch);
        assert_eq!(node.exact_bumps(|| fs::create_dir(&root).unwrap()), 1);
        node.ebpf.woken(&node.epoch);
        assert!(moves(&node, 0, "kubepods/pod") >= 2);
    }
}
