//! The promise: a change is in the word when the system call that made it has returned.

use std::fs;

use crate::node::Node;

const ROUNDS: u32 = 5_000;

#[test]
fn every_cgroup_made_and_removed_is_in_the_epoch_at_once() {
    let Some(node) = Node::where_attached("tp_btf/cgroup_mkdir") else { return };
    for top in 0..node.tops.len() {
        let pod = node.cgroup(top, "kubepods/pod");
        let (mut made, mut removed) = (0, 0);
        for _ in 0..ROUNDS {
            made += u32::from(node.bumps(|| fs::create_dir(&pod).unwrap()) >= 1);
            removed += u32::from(node.bumps(|| fs::remove_dir(&pod).unwrap()) >= 1);
        }
        assert_eq!((made, removed), (ROUNDS, ROUNDS), "{}", pod.display());
    }
}

#[test]
fn show() {
    let Some(node) = Node::new() else { return };
    use podresources_proxy::change::Source as _;
    for part in node.ebpf.parts() {
        println!("{} {} {} {}", part.name, part.state, part.events, part.losses);
    }
    println!("{:?}", node.ebpf.sees());
}
