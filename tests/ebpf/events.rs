//! What the records tell, and that their loss costs nothing else.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use podresources_proxy::change::Source as _;
use podresources_proxy::change::ebpf::Kind;

use crate::node::{MKDIR, Node};

#[test]
fn a_record_has_the_kind_the_path_the_id_and_the_hierarchy() {
    let Some(node) = Node::where_attached(&MKDIR) else { return };
    for top in 0..node.tops.len() {
        let mut events = node.listen();
        let pod = node.cgroup(top, "kubepods/pod");
        fs::create_dir(&pod).unwrap();
        let id = fs::metadata(&pod).unwrap().ino();
        fs::remove_dir(&pod).unwrap();
        let seen = node.events(&mut events);
        let hierarchy = if node.tops[top].ends_with("cpuset") { cpuset_hierarchy() } else { 0 };
        for (at, kind) in [Kind::Mkdir, Kind::Rmdir].into_iter().enumerate() {
            let event = &seen[at];
            assert_eq!((event.kind, event.id, event.hierarchy), (kind, id, hierarchy), "{event:?}");
            assert_eq!(event.path, node.path("kubepods/pod"));
            assert_eq!(event.pid, std::process::id());
        }
        assert!(seen[0].at < seen[1].at);
    }
}

#[test]
fn a_full_ring_costs_detail_only_and_is_counted() {
    let Some(node) = Node::where_attached(&MKDIR) else { return };
    let mut events = node.listen();
    let pod = node.cgroup(0, "kubepods/pod");
    let rounds = 2_000;
    let seen = (0..rounds).filter(|_| {
        let made = node.bumps(|| fs::create_dir(&pod).unwrap());
        fs::remove_dir(&pod).unwrap();
        made >= 1
    });
    assert_eq!(seen.count(), rounds, "the word needs no ring");
    let lost = node.part("ring/events").unwrap().losses;
    assert!(lost > 0, "the ring holds some 450 records");
    node.events(&mut events);
    fs::create_dir(&pod).unwrap();
    let after = node.events(&mut events);
    assert!(after.iter().any(|event| event.kind == Kind::Mkdir && event.path == node.path("kubepods/pod")), "{after:?}");
    assert!(node.part("ring/events").unwrap().events > 0);
}

#[test]
fn the_reader_is_woken_by_a_change() {
    let Some(node) = Node::where_attached(&MKDIR) else { return };
    let wake = node.ebpf.wake().unwrap().unwrap();
    let readable = || {
        let mut polled = [rustix::event::PollFd::new(&wake, rustix::event::PollFlags::IN)];
        let patience = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
        rustix::event::poll(&mut polled, Some(&patience)).unwrap() == 1
    };
    for round in 0..100 {
        let pod = node.cgroup(0, &format!("kubepods/pod{round}"));
        fs::create_dir(&pod).unwrap();
        assert!(readable(), "round {round}");
        node.ebpf.woken(&node.epoch);
    }
}

/// The number of the cpuset hierarchy of version 1.
fn cpuset_hierarchy() -> i32 {
    let text = fs::read_to_string("/proc/cgroups").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("cpuset\t")).unwrap();
    line.split('\t').next().unwrap().parse().unwrap()
}
