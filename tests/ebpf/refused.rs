//! What a kernel does not give: told by name, mended where it was taken away, and never guessed.

use std::fs;
use std::path::PathBuf;

use podresources_proxy::change::ebpf::KernelFiles;
use podresources_proxy::change::{PartReport, Sees, Source as _, State};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use crate::node::{MKDIR, Node, not_here, not_run};

/// What must be attached on this kernel, by the beginnings of the parts' names, or `nothing`; set by whoever knows the kernel. What has a
/// better way beside it, as kprobes have, is looked for where that is passed over.
const EXPECTED: &str = "EBPF_EXPECTED";

#[test]
fn each_program_is_attached_or_tells_why_it_is_not() {
    let Some(node) = Node::new() else { return };
    let mut parts = node.ebpf.parts();
    drop(node);
    let better = ["fexit/", "tp_btf/"];
    let Some(node) = Node::without(&better) else { return };
    parts.extend(node.ebpf.parts().into_iter().filter(|part| !better.iter().any(|begin| part.name.starts_with(begin))));
    for part in &parts {
        println!("{:40} {}", part.name, part.state);
        match &part.state {
            State::Refused { why, .. } => assert!(why.contains('E') && why.contains(':'), "an errno with its call: {why}"),
            State::Absent { why } => assert!(!why.is_empty(), "{}", part.name),
            State::Attached => {}
            State::Lost { .. } => panic!("nothing has been lost yet: {part:?}"),
        }
    }
    let expected = std::env::var(EXPECTED).unwrap_or_default();
    if expected == "nothing" {
        let refused = |part: &&PartReport| matches!(&part.state, State::Refused { grant, .. } if !grant.is_empty());
        let hooked: Vec<_> = parts.iter().filter(|part| !part.name.starts_with("ring/")).collect();
        assert!(hooked.iter().all(|part| part.state != State::Attached), "{parts:?}");
        assert!(hooked.iter().any(refused), "and what to grant is told: {parts:?}");
        return;
    }
    for name in expected.split(',').filter(|name| !name.is_empty()) {
        let mut those = parts.iter().filter(|part| part.name.starts_with(name)).peekable();
        assert!(those.peek().is_some(), "no part {name}: {parts:?}");
        assert!(those.all(|part| part.state == State::Attached), "{name}: {parts:?}");
    }
}

#[test]
fn a_program_that_is_detached_is_found_put_back_and_counted_as_a_change() {
    let Some(node) = Node::where_attached(&MKDIR) else { return };
    let name = MKDIR.iter().find(|name| node.attached(&[name])).unwrap();
    let pod = node.cgroup(0, "kubepods/pod");
    let mkdir = || node.exact_bumps(|| fs::create_dir(&pod).unwrap());
    assert!(node.ebpf.detach(name));
    assert_eq!(mkdir(), 0, "it is really gone");
    assert!(!node.ebpf.sees().meets(Sees::CGROUPS), "and nobody relies on it");
    assert_eq!(node.exact_bumps(|| node.ebpf.mend(&node.epoch)), 1);
    let part = node.part(name).unwrap();
    assert_eq!((&part.state, part.losses), (&State::Attached, 1));
    assert!(node.ebpf.sees().meets(Sees::CGROUPS));
    fs::remove_dir(&pod).unwrap();
    assert_eq!(mkdir(), 1);
    assert_eq!(node.exact_bumps(|| node.ebpf.mend(&node.epoch)), 0, "there is nothing more to mend");
}

#[test]
fn without_btf_nothing_is_guessed_and_classic_tracepoints_take_its_place() {
    let Some(node) = Node::with(&files("/nowhere/vmlinux".into()), &["kubepods"]) else { return };
    let part = node.part("tp_btf/cgroup_mkdir").unwrap();
    assert!(matches!(&part.state, State::Absent { why } if why.contains("/nowhere/vmlinux")), "{part:?}");
    let part = node.part("fexit/cpuset_write_resmask").unwrap();
    assert!(matches!(part.state, State::Absent { .. }), "{part:?}");
    if !node.attached(&["tracepoint/cgroup_mkdir"]) {
        let part = node.part("tracepoint/cgroup_mkdir").unwrap();
        assert!(!node.ebpf.sees().meets(Sees::ALL), "{part:?}");
        return not_here(&format!("{part:?}"));
    }
    assert!(node.ebpf.sees().meets(Sees::CGROUPS));
    for top in 0..node.tops.len() {
        let (pod, outside) = (node.cgroup(top, "kubepods/pod"), node.cgroup(top, "outside"));
        for _ in 0..1_000 {
            assert!(node.bumps(|| fs::create_dir(&pod).unwrap()) >= 1);
            assert!(node.bumps(|| fs::remove_dir(&pod).unwrap()) >= 1);
        }
        let foreign = node.exact_bumps(|| {
            for _ in 0..1_000 {
                fs::create_dir(&outside).unwrap();
                fs::remove_dir(&outside).unwrap();
            }
        });
        assert_eq!(foreign, 0);
        for late in ["a/kubepods.slice", "b/kubelet-kubepods.slice", "c/kubepods"] {
            let late = node.cgroup(top, late);
            fs::create_dir(late.parent().unwrap()).unwrap();
            assert_eq!(node.exact_bumps(|| fs::create_dir(&late).unwrap()), 1, "{}", late.display());
            assert_eq!(node.exact_bumps(|| fs::create_dir(late.join("pod")).unwrap()), 1, "{}", late.display());
            node.ebpf.woken(&node.epoch);
            assert_eq!(node.exact_bumps(|| fs::create_dir(late.join("pod2")).unwrap()), 1, "{}", late.display());
            assert_eq!(node.exact_bumps(|| fs::create_dir(&outside).unwrap()), 0, "{}", late.display());
            fs::remove_dir(&outside).unwrap();
        }
    }
}

#[test]
fn btf_that_is_cut_off_or_something_else_loads_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let whole = fs::read(KernelFiles::default().btf).unwrap_or_default();
    let half = whole[..whole.len() / 2].to_vec();
    for (name, bytes) in [("half", half), ("empty", Vec::new()), ("text", b"this is no BTF, and never was any".to_vec())] {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        let Some(node) = Node::with(&KernelFiles { btf: path, tracefs: Vec::new() }, &["kubepods"]) else { return };
        for part in node.ebpf.parts().iter().filter(|part| !part.name.starts_with("ring/")) {
            assert!(matches!(&part.state, State::Absent { .. }), "{name}: {part:?}");
        }
        assert_eq!(node.exact_bumps(|| fs::create_dir(node.cgroup(0, "kubepods/pod")).unwrap()), 0);
    }
}

fn files(btf: PathBuf) -> KernelFiles {
    KernelFiles { btf, ..KernelFiles::default() }
}

/// As the proxy is after its start: these two are all that it has kept.
#[test]
fn what_is_detached_is_put_back_with_nothing_but_the_two_capabilities() {
    let Some(node) = Node::where_attached(&MKDIR) else { return };
    let two = CapabilitySet::BPF | CapabilitySet::PERFMON;
    let before = rustix::thread::capabilities(None).unwrap();
    if !before.permitted.contains(two) {
        return not_run("CAP_BPF and CAP_PERFMON are not held; run it as root");
    }
    let parts = ["tp_btf/", "fexit/", "kprobe/"];
    let of_these = |node: &Node| {
        let parts = node.ebpf.parts().into_iter().filter(|part| parts.iter().any(|begin| part.name.starts_with(begin)));
        parts.filter(|part| part.state == State::Attached).collect::<Vec<PartReport>>()
    };
    let attached = of_these(&node);
    // They are this thread's alone, and it ends with the test.
    std::thread::scope(|scope| {
        let dropped = scope.spawn(|| {
            let kept = CapabilitySets { effective: two, permitted: two, inheritable: CapabilitySet::empty() };
            set_capabilities(None, kept).unwrap();
            for part in &attached {
                assert!(node.ebpf.detach(&part.name), "{}", part.name);
            }
            assert_eq!(node.exact_bumps(|| node.ebpf.mend(&node.epoch)), 1);
        });
        dropped.join().unwrap();
    });
    assert_eq!(of_these(&node).len(), attached.len(), "{:?}", node.ebpf.parts());
    assert!(of_these(&node).iter().all(|part| part.losses == 1));
    let pod = node.cgroup(0, "kubepods/pod");
    assert_eq!(node.exact_bumps(|| fs::create_dir(&pod).unwrap()), 1);
}
