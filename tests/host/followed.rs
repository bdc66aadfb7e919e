//! The host source fed by what watches the cgroups: after each of many random changes of real cgroups it tells what a full scan finds.

use podresources_proxy::change::{Layout, Sources, Watched};
use podresources_proxy::config::ChangeSource;
use podresources_proxy::kubepods::{Kubepods, Names};
use podresources_proxy::source::Host;
use podresources_proxy::source::host::{Config, Pods, Tree};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};

use crate::cgroups::{self, Pod, Shape, known};

const STEPS: usize = 1000;
const PODS: usize = 6;
const CONTAINERS: usize = 3;

/// A kubepods of ours with containers that come, go and are written to.
struct Playground {
    node: cgroups::Node,
    /// What is there, by pod and container.
    there: Vec<[bool; CONTAINERS + 1]>,
    random: SmallRng,
}

// === impl Playground ===

impl Playground {
    fn pod(number: usize) -> Pod {
        Pod { shape: Shape::Cgroupfs, guaranteed: number.is_multiple_of(2), number }
    }

    fn step(&mut self) -> String {
        let number = self.random.random_range(0..PODS);
        let (pod, child) = (Self::pod(number), self.random.random_range(0..=CONTAINERS));
        let cpus = *if number == 0 { &["1"][..] } else { &["0", "0", "0", "0", "0-1"] }.choose(&mut self.random).unwrap();
        let what = self.random.random_range(0..10);
        let there = &mut self.there[number];
        match (what, there.contains(&true), there[child]) {
            (0, true, _) => {
                *there = Default::default();
                self.node.remove(&pod.cgroup());
                return format!("pod {number} removed");
            }
            (1 | 2, _, true) => {
                there[child] = false;
                self.node.remove(&pod.child(child));
                if !there.contains(&true) {
                    self.node.remove(&pod.cgroup());
                }
                return format!("{number}/{child} removed");
            }
            (_, _, true) if child > 0 => {
                self.node.give(&pod.child(child), cpus);
                return format!("{number}/{child} is given {cpus}");
            }
            (_, any, false) => {
                if !any {
                    self.node.pod(pod);
                }
                there[child] = true;
                if child == 0 {
                    self.node.sandbox(pod);
                } else {
                    self.node.container(pod, child, cpus);
                }
                return format!("{number}/{child} made with {cpus}");
            }
            _ => {}
        }
        "nothing".to_owned()
    }
}

/// Our own pods: there may be others on this machine.
fn ours(pods: &Pods) -> Vec<podresources_proxy::source::host::Pod> {
    let own = format!("podresources-proxy-followed-{}/", std::process::id());
    pods.pods.iter().filter(|pod| pod.cgroup.contains(&own)).cloned().collect()
}

#[test]
fn after_each_of_a_thousand_random_changes_the_host_tells_what_a_full_scan_finds() {
    if cgroups::missing().is_some() {
        return;
    }
    let node = cgroups::Node::new("followed", Shape::Cgroupfs);
    let kubelet = Layout { socket: node.path("kubelet.sock"), root_dir: node.path("kubelet") };
    let watched = Watched { kubelet, cgroup_root: "/sys/fs/cgroup".into() };
    let sources = Sources::open(&[ChangeSource::Ebpf, ChangeSource::Fanotify], &watched);
    let epoch = sources.epoch();
    let (bundles, logs, root) = (vec![node.path("bundles")], node.path("logs"), std::path::PathBuf::from("/sys/fs/cgroup"));
    let host = Host::new(Config {
        kubepods: Kubepods { cgroup_root: root.clone(), pod_logs: logs.clone() },
        bundles: bundles.clone(),
        sys: "/sys".into(),
        proc: "/proc".into(),
        cdi: Vec::new(),
        kubelet_config: "/nowhere".into(),
        reserved: known().always_shared,
    });
    let (told, counted) = (sources.clone(), epoch.clone());
    host.follow(move || told.changes(&counted));
    let mut playground = Playground { node, there: vec![Default::default(); PODS], random: SmallRng::seed_from_u64(7) };
    let began = tokio::time::Instant::now();
    let (mut exclusive, mut followed, mut compared) = (0, 0, 0);
    for step in 0..STEPS {
        let before = epoch.now();
        let what = playground.step();
        let moved = epoch.now() != before;
        let scans = host.scans();
        // Now and then the thread that watches comes before the look, mostly after it.
        let first = playground.random.random_bool(0.3);
        let woken = || sources.iter().for_each(|source| sources.woken(source, &epoch));
        if first {
            woken();
        }
        // Whatever else runs pods on this machine moves meanwhile, and has a say in what is exclusive: what it did not move must be equal.
        let fresh = || {
            let mut fresh = Tree::new(root.clone(), Names::new(bundles.clone(), logs.clone()));
            fresh.rescan(&known());
            ours(&fresh.view())
        };
        let before_look = fresh();
        let seen = host.look(false).unwrap();
        let after_look = fresh();
        woken();
        followed += usize::from(host.scans() == scans);
        if before_look == after_look {
            assert_eq!(ours(&seen.pods), after_look, "step {step}: {what} (counted: {moved})");
            compared += 1;
        }
        exclusive += seen.pods.pods.iter().flat_map(|pod| &pod.containers).filter(|one| one.exclusive().is_some()).count();
    }
    println!(
        "{STEPS} steps in {:?} | {compared} equal | {followed} looks read only what changed | {exclusive} sets seen to be exclusive",
        began.elapsed()
    );
    assert!(compared > STEPS * 9 / 10, "only {compared} of {STEPS} looks could be compared");
    assert!(exclusive > 0, "nobody ever had a CPU alone");
    // Every 10 seconds all is read, and where a record was still under way.
    assert!(followed > STEPS / 2, "only {followed} of {STEPS} looks were spared a full scan");
}
