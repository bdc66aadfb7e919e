//! Files put in place in the kubelet's directories, where the kernel lets programs see them.

use std::fs;

use podresources_proxy::change::Source as _;
use podresources_proxy::change::ebpf::Kind;

use crate::node::Node;

const RENAME: [&str; 4] =
    ["fexit/vfs_rename", "fexit/vfs_rename (before 5.12)", "kprobe/vfs_rename", "kprobe/vfs_rename (before 5.12)"];

fn put(node: &Node, path: &str) -> (u64, u64, u64) {
    let target = node.kubelet.join(path);
    let temporary = target.with_file_name(".new");
    let before = (node.epoch.now(), node.epoch.allocatable(), node.epoch.socket());
    fs::write(&temporary, b"{}").unwrap();
    fs::rename(&temporary, &target).unwrap();
    (node.epoch.now() - before.0, node.epoch.allocatable() - before.1, node.epoch.socket() - before.2)
}

#[test]
fn a_file_put_in_place_is_in_the_epoch_at_once_by_what_it_means() {
    let Some(node) = Node::where_attached(&RENAME) else { return };
    renames_count_by_what_they_mean(&node);
}

pub(crate) fn renames_count_by_what_they_mean(node: &Node) {
    for _ in 0..1_000 {
        assert_eq!(put(node, "dra_manager_state"), (1, 0, 0));
        assert_eq!(put(node, "device-plugins/kubelet_internal_checkpoint"), (1, 1, 0));
        assert_eq!(put(node, "pod-resources/kubelet.sock"), (1, 1, 1));
    }
    fs::create_dir(node.kubelet.join("elsewhere")).unwrap();
    assert_eq!(put(node, "elsewhere/cpu_manager_state"), (0, 0, 0));
}

#[test]
fn a_rename_is_told_by_the_new_name() {
    let Some(node) = Node::where_attached(&RENAME) else { return };
    let mut events = node.listen();
    put(&node, "cpu_manager_state");
    let seen = node.events(&mut events);
    assert!(seen.iter().any(|event| event.kind == Kind::Rename && event.path == "cpu_manager_state"), "{seen:?}");
}

#[test]
fn renames_elsewhere_and_to_temporary_names_count_for_nothing() {
    let Some(node) = Node::where_attached(&RENAME) else { return };
    fs::create_dir(node.kubelet.join("pods")).unwrap();
    assert_eq!(put(&node, "pods/cpu_manager_state"), (0, 0, 0));
    assert_eq!(put(&node, ".hidden"), (0, 0, 0));
    let refused = node.exact_bumps(|| drop(fs::rename(node.kubelet.join("missing"), node.kubelet.join("there")).unwrap_err()));
    assert_eq!(refused, 0);
}

#[test]
fn a_directory_that_is_replaced_is_watched_after_the_next_look() {
    let Some(node) = Node::where_attached(&RENAME) else { return };
    let plugins = node.kubelet.join("device-plugins");
    fs::rename(&plugins, node.kubelet.with_file_name("old")).unwrap();
    fs::create_dir(&plugins).unwrap();
    assert!(node.exact_bumps(|| node.ebpf.mend(&node.epoch)) >= 1, "what happened meanwhile went unseen");
    assert_eq!(put(&node, "device-plugins/kubelet_internal_checkpoint"), (1, 1, 0));
}
