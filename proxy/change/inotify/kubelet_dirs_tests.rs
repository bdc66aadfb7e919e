//! Real directories, real inotify.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;

use super::*;
use crate::change::Sources;

/// A kubelet's root directory, whole, and an epoch that watches it.
struct Node {
    dir: TempDir,
    dirs: Arc<KubeletDirs>,
    epoch: Arc<Epoch>,
}

impl Node {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("kubelet/pod-resources")).unwrap();
        fs::create_dir_all(dir.path().join("kubelet/device-plugins")).unwrap();
        Self::watching(dir)
    }

    fn watching(dir: TempDir) -> Self {
        let root_dir = dir.path().join("kubelet");
        let layout = Layout { socket: root_dir.join("pod-resources/kubelet.sock"), root_dir };
        let inotify = Inotify::new(vec![Box::new(layout.reader())]).unwrap();
        let dirs = Arc::new(KubeletDirs::watch(&layout, inotify, 0));
        let source: Arc<dyn Source> = dirs.clone();
        Self { dir, dirs, epoch: Sources::new(vec![source]).epoch() }
    }

    /// Puts a file in place as the kubelet does: a temporary name with a leading dot, then a rename.
    fn put(&self, path: &str) {
        let target = self.dir.path().join("kubelet").join(path);
        let temporary = target.with_file_name(".new");
        fs::write(&temporary, b"{}").unwrap();
        fs::rename(&temporary, &target).unwrap();
    }

    /// What `change` bumped, by kind: (any, allocatable, socket).
    fn bumps(&self, change: impl FnOnce(&Self)) -> (u64, u64, u64) {
        let before = (self.epoch.now(), self.epoch.allocatable(), self.epoch.socket());
        change(self);
        let at_once = self.epoch.now();
        assert!(at_once > before.0 || self.dirs.inotify.gap(0).is_some_and(|gap| !gap.is_open()), "a gap counts");
        // What the watching thread does next.
        self.dirs.woken(&self.epoch);
        (self.epoch.now() - before.0, self.epoch.allocatable() - before.1, self.epoch.socket() - before.2)
    }
}

#[test]
fn a_state_file_put_in_place_is_a_change_of_the_list_only() {
    let node = Node::new();
    for file in ["cpu_manager_state", "memory_manager_state", "dra_manager_state", "allocated_pods_state"] {
        let (any, allocatable, socket) = node.bumps(|n| n.put(file));
        assert!(any > 0, "{file}");
        assert_eq!((allocatable, socket), (0, 0), "{file}");
    }
}

#[test]
fn other_files_and_temporary_ones_are_no_change() {
    let node = Node::new();
    let bumps = node.bumps(|n| {
        n.put("some_other_file");
        fs::write(n.dir.path().join("kubelet/.cpu_manager_state123"), b"half").unwrap();
        fs::create_dir(n.dir.path().join("kubelet/pods")).unwrap();
        fs::write(n.dir.path().join("kubelet/pod-resources/other.sock"), b"").unwrap();
    });
    assert_eq!(bumps, (0, 0, 0));
}

#[test]
fn the_device_checkpoint_and_plugin_sockets_change_what_is_allocatable() {
    let node = Node::new();
    assert!(node.bumps(|n| n.put("device-plugins/kubelet_internal_checkpoint")).1 > 0);
    assert!(node.bumps(|n| n.put("device-plugins/example.sock")).1 > 0);
    let (_, allocatable, socket) =
        node.bumps(|n| fs::remove_file(n.dir.path().join("kubelet/device-plugins/example.sock")).unwrap());
    assert!(allocatable > 0);
    assert_eq!(socket, 0);
}

#[test]
fn a_socket_renamed_into_place_is_seen_as_such() {
    let node = Node::new();
    assert!(node.bumps(|n| n.put("pod-resources/kubelet.sock")).2 > 0);
}

#[test]
fn a_directory_that_appears_later_is_picked_up() {
    let node = Node::watching(tempfile::tempdir().unwrap());
    assert!(node.bumps(|n| fs::create_dir_all(n.dir.path().join("kubelet/pod-resources")).unwrap()).2 > 0);
    assert!(node.bumps(|n| n.put("pod-resources/kubelet.sock")).2 > 0);
    assert!(node.bumps(|n| fs::create_dir(n.dir.path().join("kubelet/device-plugins")).unwrap()).1 > 0);
    assert!(node.bumps(|n| n.put("device-plugins/kubelet_internal_checkpoint")).1 > 0);
}

#[test]
fn a_directory_that_is_replaced_is_watched_again() {
    let node = Node::new();
    let bumps = node.bumps(|n| {
        fs::rename(n.dir.path().join("kubelet"), n.dir.path().join("old")).unwrap();
        fs::create_dir_all(n.dir.path().join("kubelet/pod-resources")).unwrap();
    });
    assert!(bumps.2 > 0);
    assert!(node.bumps(|n| n.put("pod-resources/kubelet.sock")).2 > 0, "the new directory is watched");
}

#[test]
fn a_change_made_before_the_question_is_never_missed_whoever_reads_the_queue() {
    let node = Node::new();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                node.epoch.now();
            }
        });
        for round in 0..2_000 {
            let before = node.epoch.now();
            node.put("cpu_manager_state");
            assert!(node.epoch.now() > before, "round {round}");
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_request_between_a_directorys_return_and_its_being_watched_counts_as_a_change() {
    let node = Node::new();
    fs::rename(node.dir.path().join("kubelet"), node.dir.path().join("old")).unwrap();
    fs::create_dir_all(node.dir.path().join("kubelet/pod-resources")).unwrap();
    node.epoch.now();
    for round in 0..10 {
        let before = node.epoch.now();
        node.put("cpu_manager_state");
        assert!(node.epoch.now() > before, "round {round}");
    }
    let before = node.epoch.now();
    node.dirs.woken(&node.epoch);
    let seen = node.epoch.now();
    assert!(seen > before, "the look itself counts once more");
    assert_eq!(node.epoch.now(), seen, "then nothing is counted that did not happen");
}

#[test]
fn a_lost_directory_and_an_overflow_are_counted_as_losses() {
    let node = Node::new();
    fs::remove_dir(node.dir.path().join("kubelet/pod-resources")).unwrap();
    node.epoch.now();
    node.dirs.woken(&node.epoch);
    let parts = node.dirs.parts();
    assert_eq!(parts[0].losses, 1, "{parts:?}");
    assert!(matches!(parts[0].state, State::Absent { .. }), "{parts:?}");
    fs::create_dir(node.dir.path().join("kubelet/pod-resources")).unwrap();
    node.epoch.now();
    node.dirs.woken(&node.epoch);
    assert_eq!(node.dirs.parts()[0].state, State::Attached);
}

#[test]
fn a_full_queue_is_a_loss_that_counts_and_is_mended() {
    let node = Node::new();
    let most: usize = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    let path = node.dir.path().join("kubelet/device-plugins");
    // The kernel merges what is the same as the last event in the queue, so two names take turns.
    let bumps = node.bumps(|_| {
        for round in 0..=most {
            fs::write(path.join(if round % 2 == 0 { "a" } else { "b" }), b"x").unwrap();
        }
    });
    assert!(bumps.2 > 0, "{bumps:?}");
    assert_eq!(node.dirs.parts()[0].losses, 1);
    assert!(node.bumps(|n| n.put("pod-resources/kubelet.sock")).2 > 0, "watched again");
}
