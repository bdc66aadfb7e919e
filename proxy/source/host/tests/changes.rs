//! A change read alone gives what a full scan gives.

use proptest::prelude::*;

use super::super::{Change, ChangeKind, Pods, Tree, Why};
use super::fake::{Fake, PodAt, Shape, known, told};
use super::{BURSTABLE, GUARANTEED, two_pods};

/// What happens to the node.
#[derive(Clone, Debug)]
enum Step {
    /// A container is made, or its set is written.
    Container { pod: u64, container: u64, cpus: &'static str },
    /// A container's cgroup is removed; the pod's own with its last one.
    Gone { pod: u64, container: u64 },
    /// A sandbox is made.
    Sandbox { pod: u64 },
    /// A pod is removed with all that is in it.
    PodGone { pod: u64 },
    /// What kubepods has is written.
    Pool { cpus: &'static str },
    /// Something that is no pod.
    Stray { pod: u64 },
}

fn at(pod: u64) -> PodAt<'static> {
    const NAMES: [&str; 4] = ["p0", "p1", "p2", "p3"];
    let class = if pod.is_multiple_of(2) { "" } else { "burstable" };
    PodAt { shape: Shape::Systemd, root: "kubepods.slice", class, name: NAMES[usize::try_from(pod).unwrap()], number: pod + 1 }
}

impl Step {
    /// Does it, and says what an event would.
    fn run(&self, fake: &Fake) -> Vec<Change> {
        let change = |cgroup: String, kind| Change { cgroup, kind };
        let exists = |cgroup: &str| fake.path("cgroup").join(cgroup).exists();
        match *self {
            Self::Container { pod, container, cpus } => {
                let mut changes = Vec::new();
                let kind = if exists(&at(pod).child(container).0) { ChangeKind::Written } else { ChangeKind::Made };
                if !exists(&at(pod).cgroup()) {
                    changes.push(change(fake.pod(at(pod)), ChangeKind::Made));
                }
                let name = ["a", "b", "c"][usize::try_from(container).unwrap() - 1];
                let size = super::super::CpuSet::parse(cpus).unwrap().len() as u64;
                changes.push(change(fake.container(at(pod), name, container, cpus, size.max(1)), kind));
                changes
            }
            Self::Sandbox { pod } => {
                if !exists(&at(pod).cgroup()) {
                    fake.pod(at(pod));
                }
                vec![change(fake.sandbox(at(pod), 0), ChangeKind::Made)]
            }
            Self::Gone { pod, container } if exists(&at(pod).child(container).0) => {
                fake.remove(&at(pod).child(container).0);
                vec![change(at(pod).child(container).0, ChangeKind::Removed)]
            }
            Self::PodGone { pod } if exists(&at(pod).cgroup()) => {
                fake.remove(&at(pod).cgroup());
                vec![change(at(pod).cgroup(), ChangeKind::Removed)]
            }
            Self::Gone { .. } | Self::PodGone { .. } => Vec::new(),
            Self::Pool { cpus } => {
                fake.cgroup("kubepods.slice", cpus, "0-1");
                vec![change("kubepods.slice".to_owned(), ChangeKind::Written)]
            }
            Self::Stray { pod } => {
                if !exists(&at(pod).cgroup()) {
                    return Vec::new();
                }
                let cgroup = format!("{}/stray", at(pod).cgroup());
                fake.cgroup(&cgroup, "0", "0");
                vec![change(cgroup, ChangeKind::Made)]
            }
        }
    }
}

fn any_step() -> impl Strategy<Value = Step> {
    let cpus = prop_oneof![Just("1"), Just("2"), Just("1-2"), Just("3"), Just("0,4-7"), Just("0-7"), Just("")];
    prop_oneof![
        6 => (0..4_u64, 1..4_u64, cpus).prop_map(|(pod, container, cpus)| Step::Container { pod, container, cpus }),
        2 => (0..4_u64, 1..4_u64).prop_map(|(pod, container)| Step::Gone { pod, container }),
        1 => (0..4_u64).prop_map(|pod| Step::Sandbox { pod }),
        1 => (0..4_u64).prop_map(|pod| Step::PodGone { pod }),
        1 => prop_oneof![Just("0-7"), Just("0-3")].prop_map(|cpus| Step::Pool { cpus }),
        1 => (0..4_u64).prop_map(|pod| Step::Stray { pod }),
    ]
}

/// Everything, save which of several passed-over things are named.
fn content(pods: &Pods) -> (Vec<String>, Vec<super::super::Pod>, Vec<u64>) {
    let counts = [Why::EmptyPod, Why::BadCpuset, Why::PodWithoutName, Why::LeftOver];
    (told(pods), pods.pods.clone(), counts.map(|why| pods.skipped.count(why)).to_vec())
}

fn follow(tree: &mut Tree, changes: &[Change]) {
    for change in changes {
        if !tree.apply(change, &known()) {
            tree.rescan(&known());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn after_any_changes_the_kept_tree_is_what_a_full_scan_finds(steps in proptest::collection::vec(any_step(), 1..25)) {
        let fake = Fake::new("kubepods.slice");
        let mut tree = fake.tree();
        tree.rescan(&known());
        for step in &steps {
            let changes = step.run(&fake);
            follow(&mut tree, &changes);
            prop_assert_eq!(content(&tree.view()), content(&fake.scanned()), "after {:?}", step);
        }
    }
}

#[test]
fn a_write_to_one_container_changes_what_is_said_of_another() {
    let fake = Fake::new("kubepods.slice");
    two_pods(&fake, GUARANTEED, BURSTABLE);
    let mut tree = fake.tree();
    tree.rescan(&known());
    assert_eq!(told(&tree.view())[0], "ns/own/main: 3");
    fake.cgroup(&BURSTABLE.child(1).0, "0-7", "0-1");
    let change = Change { cgroup: BURSTABLE.child(1).0, kind: ChangeKind::Written };
    assert!(tree.apply(&change, &known()), "that takes no full scan");
    assert_eq!(told(&tree.view())[0], "ns/own/main: -");
}

#[test]
fn a_change_elsewhere_means_nothing_and_one_of_kubepods_itself_everything() {
    let fake = Fake::new("kubelet.slice/kubelet-kubepods.slice");
    let mut tree = fake.tree();
    tree.rescan(&known());
    let apply =
        |tree: &mut Tree, cgroup: &str| tree.apply(&Change { cgroup: cgroup.to_owned(), kind: ChangeKind::Written }, &known());
    for cgroup in ["system.slice", "system.slice/a.service", "kubelet.slice/kubelet-kubepods.slice/stray"] {
        assert!(apply(&mut tree, cgroup), "{cgroup}");
    }
    for cgroup in [
        "",
        "kubelet.slice",
        "kubelet.slice/kubelet-kubepods.slice",
        "other/kubepods",
        "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice",
    ] {
        assert!(!apply(&mut tree, cgroup), "{cgroup}");
    }
}
