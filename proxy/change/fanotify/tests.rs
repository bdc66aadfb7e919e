//! Real cgroups below a test root of our own, real marks on their file systems; what events mean, without.

use std::fs;

use super::*;
use crate::change::Sources;
use crate::change::test_node::{Cgroups, UID};

struct Node {
    cgroups: Cgroups,
    marks: Arc<Fanotify>,
    epoch: Arc<Epoch>,
}

impl Node {
    /// `None`: this machine lets us make no cgroups.
    fn new(name: &str, report: InitFlags) -> Option<Self> {
        let cgroups = Cgroups::new(name)?;
        cgroups.make("kubepods");
        let marks = match Fanotify::with(cgroups.mount(), report) {
            Ok(marks) => Arc::new(marks),
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "CI must be able to mark cgroup file systems: {error}");
                eprintln!("passed over: this needs CAP_SYS_ADMIN and a kernel with file handles for cgroups ({error})");
                return None;
            }
        };
        let source: Arc<dyn Source> = marks.clone();
        let epoch = Sources::new(vec![source]).epoch();
        Some(Self { cgroups, marks, epoch })
    }

    fn watch(&self) {
        self.epoch.take();
        self.marks.woken(&self.epoch);
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
    let Some(node) = Node::new("fanotify-changes", REPORT_DFID_NAME) else { return };
    let (pod, container) = (format!("kubepods/burstable/pod{UID}"), format!("kubepods/burstable/pod{UID}/c1"));
    assert!(node.bumps(|cgroups| cgroups.make("kubepods/burstable")) > 0);
    assert!(node.bumps(|cgroups| cgroups.make(&pod)) > 0);
    assert!(node.bumps(|cgroups| cgroups.make(&container)) > 0);
    assert!(node.bumps(|cgroups| cgroups.write(&container, "cpuset.cpus", "0")) > 0);
    assert!(node.bumps(|cgroups| cgroups.remove(&container)) > 0);
    assert!(node.bumps(|cgroups| cgroups.remove(&pod)) > 0);
}

#[test]
fn other_cgroups_and_what_a_container_nests_are_no_change() {
    let Some(node) = Node::new("fanotify-foreign", REPORT_DFID_NAME) else { return };
    let container = format!("kubepods/pod{UID}/c1");
    node.cgroups.make(&container);
    let foreign = |cgroups: &Cgroups| {
        cgroups.make("system.slice");
        cgroups.write("system.slice", "cpuset.cpus", "0");
        cgroups.remove("system.slice");
        cgroups.make(&format!("{container}/nested"));
        cgroups.remove(&format!("{container}/nested"));
        cgroups.write(&container, "notify_on_release", "0");
    };
    // A mark sees the whole machine: somebody else's kubepods may come up in one attempt, not in all.
    let quiet = (0..10).any(|_| node.bumps(foreign) == 0);
    assert!(quiet, "each attempt counted");
    assert!(node.marks.queue.foreign.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_cpuset_written_before_its_cgroup_is_known_is_never_missed() {
    let Some(node) = Node::new("fanotify-race", REPORT_DFID_NAME) else { return };
    let missed = node.cgroups.race_among_others(|| node.watch(), || node.epoch.now());
    assert_eq!(missed, Vec::<String>::new());
}

#[test]
fn without_file_handles_cpusets_are_seen_and_other_files_are_not() {
    let Some(node) = Node::new("fanotify-plain", InitFlags::empty()) else { return };
    let container = format!("kubepods/pod{UID}/c1");
    node.cgroups.make(&container);
    node.marks.mend(&node.epoch);
    assert_eq!(node.marks.sees(), Sees::CPUSETS);
    assert!(node.marks.parts()[0].name.contains("cpusets only"));
    for round in 0..100 {
        assert!(node.bumps(|cgroups| cgroups.write(&container, "cpuset.cpus", "0")) > 0, "round {round}");
    }
    let quiet = (0..10).any(|_| node.bumps(|cgroups| cgroups.write(&container, "notify_on_release", "0")) == 0);
    assert!(quiet, "each attempt counted");
}

#[test]
fn kubepods_removed_and_made_again_is_a_loss_that_is_mended() {
    let Some(node) = Node::new("fanotify-again", REPORT_DFID_NAME) else { return };
    assert!(node.bumps(|cgroups| cgroups.remove("kubepods")) > 0);
    node.watch();
    assert_eq!(node.marks.parts()[0].losses, 1);
    node.cgroups.make("kubepods");
    assert!(node.bumps(|cgroups| cgroups.make(&format!("kubepods/pod{UID}"))) > 0);
    assert!(node.bumps(|cgroups| cgroups.make(&format!("kubepods/pod{UID}/c1"))) > 0);
}

#[test]
fn a_full_queue_is_a_loss_that_counts_and_is_mended() {
    let Some(node) = Node::new("fanotify-overflow", REPORT_DFID_NAME) else { return };
    let most: usize = fs::read_to_string("/proc/sys/fs/fanotify/max_queued_events").unwrap().trim().parse().unwrap();
    node.cgroups.make("system.slice");
    let bumps = node.bumps(|cgroups| {
        // Names that differ are not merged; nobody's change is among them.
        for round in 0..=most / 2 {
            cgroups.make(&format!("system.slice/{round}"));
            cgroups.remove(&format!("system.slice/{round}"));
        }
    });
    assert!(bumps > 0, "the loss counts");
    node.watch();
    assert_eq!(node.marks.parts()[0].losses, 1);
    assert!(node.bumps(|cgroups| cgroups.make(&format!("kubepods/pod{UID}"))) > 0, "seen again");
}

#[test]
fn who_may_not_mark_is_told_what_to_grant() {
    let State::Refused { why, grant } = state_of(Errno::EPERM, "making a fanotify mark") else { panic!("refused") };
    assert_eq!(why, "making a fanotify mark: EPERM: Operation not permitted");
    assert!(grant.contains("CAP_SYS_ADMIN"));
}

#[test]
fn an_event_is_told_apart_by_where_it_happened() {
    let dir = |level, id| Dir { path: PathBuf::from("/x"), level, id };
    let mut table = Table::default();
    for (id, level) in [(1, Level::Root), (2, Level::Pod), (3, Level::Container)] {
        table.known.insert((9, id), dir(level, id));
    }
    table.roots.insert(((9, 100), b"kubepods".to_vec()));
    let meaning = |mask: MaskFlags, id: u64, name: &str| {
        table.meaning(&Event { mask: mask.bits(), dir: Some((9, id)), name: name.as_bytes() })
    };
    let (create, delete, modify) = (MaskFlags::FAN_CREATE, MaskFlags::FAN_DELETE, MaskFlags::FAN_MODIFY);
    assert_eq!(meaning(create, 1, "pod"), Meaning::Made((9, 1)));
    assert_eq!(meaning(create | delete, 2, "c1"), Meaning::Made((9, 2)), "merged by the kernel");
    assert_eq!(meaning(delete, 2, "c1"), Meaning::Change);
    assert_eq!(meaning(create, 3, "nested"), Meaning::Foreign, "a container's own affair");
    assert_eq!(meaning(modify, 3, "cpuset.cpus"), Meaning::Change);
    assert_eq!(meaning(modify, 3, "cgroup.procs"), Meaning::Foreign, "an exec probe");
    assert_eq!(meaning(modify, 4, "cpuset.cpus"), Meaning::Foreign);
    assert_eq!(meaning(create, 100, "kubepods"), Meaning::Root);
    assert_eq!(meaning(delete, 100, "kubepods"), Meaning::Lost);
    assert_eq!(meaning(delete, 101, "kubepods"), Meaning::Foreign, "not one of ours");
    let nowhere = Event { mask: modify.bits(), dir: None, name: b"" };
    assert_eq!(table.meaning(&nowhere), Meaning::Change, "what cannot be told apart counts");
}
