//! Real cgroups below a test root of our own, real inotify.

use super::*;
use crate::change::Sources;
use crate::change::test_node::{Cgroups, UID};

struct Node {
    cgroups: Cgroups,
    dirs: Arc<KubepodsDirs>,
    epoch: Arc<Epoch>,
}

impl Node {
    /// `None`: this machine lets us make no cgroups.
    fn new(name: &str) -> Option<Self> {
        let cgroups = Cgroups::new(name)?;
        let inotify = Inotify::new(vec![Box::new(KubepodsReader)]).unwrap();
        let dirs = Arc::new(KubepodsDirs::watch(cgroups.mount(), inotify, 0));
        let source: Arc<dyn Source> = dirs.clone();
        let epoch = Sources::new(vec![source]).epoch();
        Some(Self { cgroups, dirs, epoch })
    }

    /// What the watching thread does when it is woken.
    fn watch(&self) {
        self.epoch.take();
        self.dirs.woken(&self.epoch);
    }

    /// How far the epoch moves by `change`, seen at once.
    fn bumps(&self, change: impl FnOnce(&Cgroups)) -> u64 {
        self.watch();
        let before = self.epoch.now();
        change(&self.cgroups);
        self.epoch.now() - before
    }
}

#[test]
fn pods_and_containers_that_come_and_go_and_cpusets_written_are_changes() {
    let Some(node) = Node::new("kubepods-changes") else { return };
    let (pod, container) = (format!("kubepods/burstable/pod{UID}"), format!("kubepods/burstable/pod{UID}/c1"));
    assert!(node.bumps(|cgroups| cgroups.make("kubepods")) > 0, "the root comes");
    assert!(node.bumps(|cgroups| cgroups.make("kubepods/burstable")) > 0);
    assert!(node.bumps(|cgroups| cgroups.make(&pod)) > 0);
    assert!(node.bumps(|cgroups| cgroups.make(&container)) > 0);
    assert!(node.bumps(|cgroups| cgroups.write(&container, "cpuset.cpus", "0")) > 0);
    assert_eq!(node.bumps(|cgroups| cgroups.write(&container, "notify_on_release", "0")), 0, "no cpuset");
    assert!(node.bumps(|cgroups| cgroups.remove(&container)) > 0);
    assert!(node.bumps(|cgroups| cgroups.remove(&pod)) > 0);
}

#[test]
fn what_happens_beside_kubepods_and_inside_a_container_is_no_change() {
    let Some(node) = Node::new("kubepods-foreign") else { return };
    let container = format!("kubepods/pod{UID}/c1");
    node.cgroups.make(&container);
    node.dirs.mend(&node.epoch);
    let bumps = node.bumps(|cgroups| {
        cgroups.make("system.slice");
        cgroups.make("other.slice/a.service");
        cgroups.write("system.slice", "cpuset.cpus", "0");
        cgroups.remove("system.slice");
        cgroups.make(&format!("{container}/nested"));
        cgroups.remove(&format!("{container}/nested"));
    });
    assert_eq!(bumps, 0);
}

#[test]
fn an_exec_probe_is_no_change() {
    let Some(node) = Node::new("kubepods-exec") else { return };
    let container = format!("kubepods/pod{UID}/c1");
    node.cgroups.make(&container);
    node.dirs.mend(&node.epoch);
    let bumps = node.bumps(|cgroups| {
        let mut probe = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        cgroups.write(&container, "cgroup.procs", &probe.id().to_string());
        probe.kill().unwrap();
        probe.wait().unwrap();
    });
    assert_eq!(bumps, 0);
}

#[test]
fn a_cpuset_written_before_its_cgroup_is_watched_is_never_missed() {
    let Some(node) = Node::new("kubepods-race") else { return };
    node.cgroups.make("kubepods");
    node.dirs.mend(&node.epoch);
    let missed = node.cgroups.race_among_others(|| node.watch(), || node.epoch.now());
    assert_eq!(missed, Vec::<String>::new());
}

#[test]
fn kubepods_removed_and_made_again_is_a_loss_that_is_mended() {
    let Some(node) = Node::new("kubepods-again") else { return };
    node.cgroups.make("kubepods");
    node.dirs.mend(&node.epoch);
    assert!(node.bumps(|cgroups| cgroups.remove("kubepods")) > 0);
    node.watch();
    let part = &node.dirs.parts()[0];
    assert!(part.losses == 1 && matches!(part.state, State::Lost { .. }), "{part:?}");
    assert!(node.bumps(|cgroups| cgroups.make("kubepods")) > 0);
    assert!(node.bumps(|cgroups| cgroups.make(&format!("kubepods/pod{UID}"))) > 0);
    node.watch();
    assert_eq!(node.dirs.parts()[0].state, State::Attached);
}

#[test]
fn a_nested_root_that_comes_later_is_found() {
    let Some(node) = Node::new("kubepods-nested") else { return };
    node.cgroups.make("kubelet.slice/kubelet-kubepods.slice");
    node.watch();
    let pod = format!("kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{}.slice", UID.replace('-', "_"));
    assert!(node.bumps(|cgroups| cgroups.make(&pod)) > 0);
    assert!(node.bumps(|cgroups| cgroups.make(&format!("{pod}/cri-containerd-1.scope"))) > 0);
    assert!(node.bumps(|cgroups| cgroups.write(&format!("{pod}/cri-containerd-1.scope"), "cpuset.cpus", "0")) > 0);
}

#[test]
fn a_reached_watch_limit_is_told_counted_and_mended() {
    let Some(node) = Node::new("kubepods-limit") else { return };
    node.cgroups.make("kubepods");
    node.dirs.mend(&node.epoch);
    assert_eq!(node.dirs.sees(), Sees::CGROUPS.and(Sees::CPUSETS));
    node.dirs.inotify.allow(node.dirs.inotify.watches() as u64);
    assert!(node.bumps(|cgroups| cgroups.make(&format!("kubepods/pod{UID}"))) > 0);
    let before = node.epoch.now();
    node.watch();
    let lost = node.epoch.now();
    assert!(lost > before, "the loss counts");
    let part = &node.dirs.parts()[0];
    assert!(part.losses == 1 && part.state.to_string().contains("fs.inotify.max_user_watches"), "{part:?}");
    assert_eq!(node.dirs.sees(), Sees::NOTHING);
    assert_eq!(node.epoch.now(), lost, "a source that is lost does not count for ever");
    node.dirs.inotify.allow(u64::MAX);
    node.dirs.mend(&node.epoch);
    assert!(node.epoch.now() > lost, "so does its return");
    assert_eq!(node.dirs.parts()[0].state, State::Attached);
    assert!(node.bumps(|cgroups| cgroups.make(&format!("kubepods/pod{UID}/c1"))) > 0);
}

#[test]
fn watches_of_what_is_gone_are_let_go_at_once() {
    let Some(node) = Node::new("kubepods-tidy") else { return };
    node.cgroups.make("kubepods");
    node.dirs.mend(&node.epoch);
    let quiet = node.dirs.inotify.watches();
    let pod = format!("kubepods/pod{UID}");
    for _ in 0..10 {
        node.cgroups.make(&format!("{pod}/c1"));
        node.watch();
        assert_eq!(node.dirs.inotify.watches(), quiet + 2);
        node.cgroups.remove(&format!("{pod}/c1"));
        node.cgroups.remove(&pod);
        node.watch();
        node.watch();
        assert_eq!(node.dirs.inotify.watches(), quiet);
    }
}
