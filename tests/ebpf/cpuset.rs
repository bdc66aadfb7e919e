//! cpuset writes, where the kernel lets programs see them.

use std::fs;

use podresources_proxy::change::ebpf::Kind;

use crate::node::{Node, not_here};

const RESMASK: [&str; 2] = ["fexit/cpuset_write_resmask", "kprobe/cpuset_write_resmask"];
const FILE_WRITE: [&str; 2] = ["fexit/cgroup_file_write", "kprobe/cgroup_file_write"];

/// A container's cgroup with cpusets, in the last hierarchy that has them.
fn container(node: &Node) -> Option<(usize, std::path::PathBuf)> {
    for top in 0..node.tops.len() {
        node.give_cpus(top, "");
        node.give_cpus(top, "kubepods");
        let pod = node.cgroup(top, "kubepods/pod");
        fs::create_dir(&pod).unwrap();
        if fs::write(pod.join("cpuset.mems"), "0").is_ok() {
            return Some((top, pod));
        }
    }
    not_here("a hierarchy with cpusets");
    None
}

#[test]
fn a_new_mask_counts_and_a_rewrite_of_the_same_does_not() {
    let Some(node) = Node::where_attached(&RESMASK) else { return };
    only_new_masks_count(&node);
}

pub(crate) fn only_new_masks_count(node: &Node) {
    let Some((_, pod)) = container(node) else { return };
    let write = |mask: &str| node.exact_bumps(|| fs::write(pod.join("cpuset.cpus"), mask).unwrap());
    assert_eq!(write("0"), 1);
    for _ in 0..100 {
        assert_eq!(write("0"), 0);
        assert_eq!(write("0\n"), 0, "what differs is not the mask");
    }
    assert_eq!(write("0-1"), 1);
    assert_eq!(write("0"), 1);
}

#[test]
fn two_files_and_two_cgroups_have_masks_of_their_own() {
    let Some(node) = Node::where_attached(&RESMASK) else { return };
    let Some((top, pod)) = container(&node) else { return };
    let other = node.cgroup(top, "kubepods/other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("cpuset.mems"), "0").unwrap();
    for cgroup in [&pod, &other] {
        assert_eq!(node.exact_bumps(|| fs::write(cgroup.join("cpuset.cpus"), "0").unwrap()), 1);
    }
    // `0` for mems was written already.
    assert_eq!(node.exact_bumps(|| fs::write(pod.join("cpuset.mems"), "0").unwrap()), 0);
}

#[test]
fn a_write_that_is_refused_is_no_change() {
    let Some(node) = Node::where_attached(&RESMASK) else { return };
    refused_writes_count_for_nothing(&node);
}

pub(crate) fn refused_writes_count_for_nothing(node: &Node) {
    let Some((_, pod)) = container(node) else { return };
    assert_eq!(node.exact_bumps(|| drop(fs::write(pod.join("cpuset.cpus"), "4000").unwrap_err())), 0);
    assert_eq!(node.exact_bumps(|| drop(fs::write(pod.join("cpuset.cpus"), "nonsense").unwrap_err())), 0);
}

#[test]
fn every_one_of_many_new_masks_is_in_the_epoch_at_once_and_told_with_path_and_mask() {
    let Some(node) = Node::where_attached(&RESMASK) else { return };
    let Some((_, pod)) = container(&node) else { return };
    let mut events = node.listen();
    let seen = (0..1_000).filter(|round| {
        let mask = if round % 2 == 0 { "0" } else { "0-1" };
        node.exact_bumps(|| fs::write(pod.join("cpuset.cpus"), mask).unwrap()) == 1
    });
    assert_eq!(seen.count(), 1_000);
    let told = node.events(&mut events);
    let told: Vec<_> = told.iter().filter(|event| event.kind == Kind::Cpuset).collect();
    assert!(!told.is_empty());
    for (event, mask) in told.iter().zip(["0", "0-1"].iter().cycle()) {
        assert_eq!(event.text.as_deref(), Some(*mask), "{event:?}");
        assert_eq!(event.path, node.path("kubepods/pod"));
        assert_eq!(event.id, std::os::unix::fs::MetadataExt::ino(&fs::metadata(&pod).unwrap()));
    }
}

#[test]
fn masks_outside_kubepods_are_nobodys_business() {
    let Some(node) = Node::where_attached(&RESMASK) else { return };
    let Some((top, _)) = container(&node) else { return };
    let outside = node.cgroup(top, "outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("cpuset.mems"), "0").unwrap();
    assert_eq!(node.exact_bumps(|| fs::write(outside.join("cpuset.cpus"), "0-1").unwrap()), 0);
}

#[test]
fn a_partitions_type_is_seen_through_the_file_write() {
    let Some(node) = Node::where_attached(&FILE_WRITE) else { return };
    new_partition_types_count(&node);
}

pub(crate) fn new_partition_types_count(node: &Node) {
    let Some((_, pod)) = container(node) else { return };
    let file = pod.join("cpuset.cpus.partition");
    if !file.exists() {
        not_here("cpuset.cpus.partition");
        return;
    }
    let mut events = node.listen();
    assert_eq!(node.exact_bumps(|| fs::write(&file, "member").unwrap()), 1);
    assert_eq!(node.exact_bumps(|| fs::write(&file, "member").unwrap()), 0);
    assert_eq!(node.events(&mut events)[0].text.as_deref(), Some("member"));
    // Whether a partition may be made here differs from kernel to kernel.
    let mut made = false;
    let bumps = node.exact_bumps(|| made = fs::write(&file, "root").is_ok());
    assert_eq!(bumps, u64::from(made));
}

#[test]
fn other_files_of_a_pods_cgroup_count_for_nothing() {
    let Some(node) = Node::where_attached(&FILE_WRITE) else { return };
    let Some((_, pod)) = container(&node) else { return };
    let file = ["cgroup.max.depth", "notify_on_release"].map(|name| pod.join(name)).into_iter().find(|file| file.exists()).unwrap();
    assert_eq!(node.exact_bumps(|| fs::write(file, "1").unwrap()), 0);
}
