//! The promise: a change is in the word when the system call that made it has returned, and nothing else is.

use std::fs;
use std::path::Path;

use podresources_proxy::change::Source as _;
use rustix::event::{PollFd, PollFlags, poll};

use crate::node::{MKDIR, Node};

const ROUNDS: u64 = 5_000;

#[test]
fn every_cgroup_made_and_removed_is_in_the_epoch_at_once() {
    let Some(node) = Node::where_attached(&MKDIR) else { return };
    for top in 0..node.tops.len() {
        let pod = node.cgroup(top, "kubepods/pod");
        let (mut made, mut removed) = (0, 0);
        for _ in 0..ROUNDS {
            made += u64::from(node.bumps(|| fs::create_dir(&pod).unwrap()) >= 1);
            removed += u64::from(node.bumps(|| fs::remove_dir(&pod).unwrap()) >= 1);
        }
        assert_eq!((made, removed), (ROUNDS, ROUNDS), "{}", pod.display());
    }
}

#[test]
fn the_count_of_events_equals_what_was_done() {
    let Some(node) = Node::where_attached(&MKDIR) else { return };
    let seen = |what: &str| node.ebpf.parts().into_iter().find(|part| part.name.ends_with(what)).unwrap().events;
    let before = (seen("cgroup_mkdir"), seen("cgroup_rmdir"));
    let pod = node.cgroup(0, "kubepods/burstable/pod");
    fs::create_dir(pod.parent().unwrap()).unwrap();
    for _ in 0..1_000 {
        fs::create_dir(&pod).unwrap();
        fs::remove_dir(&pod).unwrap();
    }
    assert_eq!((seen("cgroup_mkdir") - before.0, seen("cgroup_rmdir") - before.1), (1_001, 1_000));
}

#[test]
fn other_cgroups_neither_count_nor_wake_anybody() {
    let Some(node) = Node::where_attached(&MKDIR) else { return };
    let wake = node.ebpf.wake().unwrap().expect("programs that are attached can wake");
    let mut events = node.listen();
    for top in 0..node.tops.len() {
        let outside = node.cgroup(top, "kubepods-not/pod");
        fs::create_dir(outside.parent().unwrap()).unwrap();
        let bumps = node.exact_bumps(|| {
            for _ in 0..1_000 {
                fs::create_dir(&outside).unwrap();
                fs::remove_dir(&outside).unwrap();
            }
        });
        assert_eq!(bumps, 0, "{}", outside.display());
    }
    let mut polled = [PollFd::new(&wake, PollFlags::IN)];
    assert_eq!(poll(&mut polled, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap(), 0, "nobody is woken");
    assert!(node.events(&mut events).is_empty());
}

#[test]
fn on_a_hybrid_host_only_the_hierarchies_that_tell_of_cpus_count() {
    let Some(node) = Node::where_attached(&MKDIR) else { return };
    let memory = Path::new("/sys/fs/cgroup/memory");
    if !memory.join("cgroup.procs").exists() {
        eprintln!("not on this host: a memory hierarchy of version 1");
        return;
    }
    let ours = memory.join(&node.name);
    fs::create_dir(&ours).unwrap();
    let bumps = node.exact_bumps(|| {
        for path in ["kubepods", "kubepods/pod"] {
            fs::create_dir(ours.join(path)).unwrap();
        }
        for path in ["kubepods/pod", "kubepods"] {
            fs::remove_dir(ours.join(path)).unwrap();
        }
    });
    fs::remove_dir(&ours).unwrap();
    assert_eq!(bumps, 0);
}

#[test]
fn a_task_that_is_moved_is_told_and_counts_as_no_change() {
    let Some(node) = Node::where_attached(&["tp_btf/cgroup_attach_task"]) else { return };
    // Of version 2, whose cgroups take tasks as they are made.
    let pod = node.cgroup(node.tops.len() - 1, "kubepods/pod");
    fs::create_dir(&pod).unwrap();
    let me = std::process::id();
    let line = fs::read_to_string("/proc/self/cgroup").unwrap();
    let home = line.lines().find_map(|line| line.strip_prefix("0::/")).unwrap().to_owned();
    let mut events = node.listen();
    let bumps = node.bumps(|| {
        fs::write(pod.join("cgroup.procs"), me.to_string()).unwrap();
        fs::write(node.tops[node.tops.len() - 1].join(home).join("cgroup.procs"), me.to_string()).unwrap();
    });
    assert_eq!(bumps, 0);
    let attached = node.events(&mut events).into_iter().find(|event| event.kind == podresources_proxy::change::ebpf::Kind::Attach);
    let attached = attached.expect("the move is told");
    assert_eq!((attached.pid, &attached.path), (me, &node.path("kubepods/pod")));
}
