//! Kernels that refuse fexit: kprobes take its place and count the same.

use std::fs;

use podresources_proxy::change::{Sees, Source as _};

use crate::node::Node;
use crate::{cpuset, renames};

/// The ways that are passed over, so that this one is taken.
const BETTER: [&str; 1] = ["fexit/"];

#[test]
fn kprobes_on_a_cpusets_masks_count_new_ones_alone() {
    let Some(node) = Node::without(&BETTER).filter(|node| node.attached(&["kprobe/cpuset_write_resmask"])) else { return };
    cpuset::only_new_masks_count(&node);
    drop(node);
    let Some(node) = Node::without(&BETTER) else { return };
    cpuset::refused_writes_count_for_nothing(&node);
}

#[test]
fn kprobes_on_cgroup_files_count_a_partitions_new_type() {
    let Some(node) = Node::without(&BETTER).filter(|node| node.attached(&["kprobe/cgroup_file_write"])) else { return };
    cpuset::new_partition_types_count(&node);
}

#[test]
fn kprobes_on_renames_count_by_what_they_mean() {
    let kprobes = ["kprobe/vfs_rename", "kprobe/vfs_rename (before 5.12)"];
    let Some(node) = Node::without(&BETTER).filter(|node| node.attached(&kprobes)) else { return };
    renames::renames_count_by_what_they_mean(&node);
    assert!(node.ebpf.sees().meets(Sees::KUBELET));
}

#[test]
fn kprobes_that_are_detached_are_put_back() {
    let part = "kprobe/cpuset_write_resmask";
    let Some(node) = Node::without(&BETTER).filter(|node| node.attached(&[part])) else { return };
    assert!(node.ebpf.detach(part));
    assert_eq!(node.exact_bumps(|| node.ebpf.mend(&node.epoch)), 1);
    cpuset::only_new_masks_count(&node);
    assert_eq!(node.part(part).unwrap().losses, 1);
    let pod = node.cgroup(0, "kubepods/other");
    assert_eq!(node.exact_bumps(|| fs::create_dir(&pod).unwrap()), 1);
}
