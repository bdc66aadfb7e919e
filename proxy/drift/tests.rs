//! Two views of one node that agree, and drift planted in one of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use super::{Confirmation, Finding, Kind, News, Told, compare};
use crate::cpuset::CpuSet;
use crate::kubepods::PodUid;
use crate::proto::v1;
use crate::snapshot::PodName;
use crate::source::host::exclusive::{Because, Verdict};
use crate::source::host::{Container, Cpus, Node, Pod, Pods, Settings, Skipped, View, Why};

/// The machine's CPUs; the first is reserved.
const CPUS: u32 = 32;

/// Two views of one node.
#[derive(Clone, Debug)]
struct Both {
    told: Told,
    host: View,
    logged: HashMap<PodUid, PodName>,
}

fn set(list: &str) -> CpuSet {
    CpuSet::parse(list).unwrap()
}

fn uid(number: usize) -> PodUid {
    PodUid::parse(&format!("{number:032x}")).unwrap()
}

fn told_container(name: &str, cpus: &CpuSet) -> v1::ContainerResources {
    let cpu_ids = cpus.iter().map(i64::from).collect();
    v1::ContainerResources { name: name.into(), cpu_ids, ..v1::ContainerResources::default() }
}

fn host_container(pod: &str, name: &str, cpus: &CpuSet) -> Container {
    Container {
        name: Some(name.into()),
        id: format!("{pod}{name}"),
        cgroup: format!("{pod}/{name}"),
        cpus: Some(cpus.clone()),
        verdict: Verdict::Not(Because::Unknown),
        memory: Vec::new(),
    }
}

// === impl Both ===

impl Both {
    /// Containers of each pod by how many CPUs they have alone; none: the shared pool.
    fn of(pods: &[Vec<u32>]) -> Self {
        let mut next = 1;
        let exclusive: Vec<Vec<CpuSet>> = pods
            .iter()
            .map(|pod| {
                let take = |&count: &u32| {
                    let cpus = (next..next + count).collect();
                    next += count;
                    cpus
                };
                pod.iter().map(take).collect()
            })
            .collect();
        let pool: CpuSet = std::iter::once(0).chain(next..CPUS).collect();
        let mut both = Self {
            told: Told { pods: Vec::new(), allocatable: Some((1..CPUS).collect()) },
            host: View {
                node: Arc::new(Node {
                    online: (0..CPUS).collect(),
                    settings: Settings { cpus: Cpus::AllBut(set("0")), always_shared: Some(set("0")), ..Settings::default() },
                    ..Node::default()
                }),
                pods: Pods { roots: vec!["kubepods".into()], pods: Vec::new(), skipped: Skipped::default() },
            },
            logged: HashMap::new(),
        };
        for (nth, containers) in exclusive.iter().enumerate() {
            let name = format!("pod{nth}");
            let cgroup = format!("kubepods/{name}");
            let (mut told, mut host) = (Vec::new(), Vec::new());
            for (at, cpus) in containers.iter().enumerate() {
                let container = format!("c{at}");
                told.push(told_container(&container, cpus));
                host.push(host_container(&cgroup, &container, if cpus.is_empty() { &pool } else { cpus }));
            }
            both.told.pods.push(v1::PodResources {
                namespace: "default".into(),
                name: name.clone(),
                containers: told,
                ..v1::PodResources::default()
            });
            let name = PodName { namespace: "default".into(), name };
            both.logged.insert(uid(nth), name.clone());
            both.host.pods.pods.push(Pod {
                name: Some(name),
                uid: uid(nth),
                cgroup,
                guaranteed: true,
                containers: host,
                cpus: None,
                left_over: Vec::new(),
                left_out: None,
            });
        }
        both
    }

    /// Pod 0 has CPUs 1 and 2 alone, pod 1 has CPU 3; pods 2 to 4 share 0 and 4 to 31.
    fn small() -> Self {
        Self::of(&[vec![2], vec![1], vec![0], vec![0, 0], vec![0]])
    }

    fn set_cpus(&mut self, pod: usize, container: usize, cpus: &CpuSet) {
        self.host.pods.pods[pod].containers[container].cpus = Some(cpus.clone());
    }

    fn findings(&self) -> Vec<Finding> {
        compare(&self.told, &self.host, &self.logged)
    }

    /// Kind and whose.
    #[track_caller]
    fn finds(&self, wanted: &[(Kind, &str)]) {
        let findings = self.findings();
        let found: Vec<(Kind, String)> = findings.iter().map(|finding| (finding.kind, finding.whose())).collect();
        let wanted: Vec<(Kind, String)> = wanted.iter().map(|(kind, whose)| (*kind, (*whose).to_owned())).collect();
        assert_eq!(found, wanted, "{findings:#?}");
    }
}

#[test]
fn views_that_agree_show_nothing() {
    Both::small().finds(&[]);
}

#[test]
fn a_container_without_its_cpus_is_named_with_both_sides() {
    let mut both = Both::small();
    both.set_cpus(0, 0, &set("2,9"));
    both.finds(&[(Kind::CpusNotInCpuset, "default/pod0/c0")]);
    assert_eq!(both.findings()[0].detail, "told 1-2; its cpuset is 2,9");
}

#[test]
fn cpus_that_the_kubelet_did_not_give_are_somebody_elses_write() {
    let mut both = Both::small();
    both.set_cpus(1, 0, &set("3,9"));
    both.finds(&[(Kind::CpusetRewritten, "default/pod1/c0")]);
    let mut both = Both::small();
    both.set_cpus(2, 0, &set("0,4"));
    both.finds(&[(Kind::CpusetRewritten, "default/pod2/c0")]);
}

#[test]
fn a_container_on_anothers_cpus_is_named_with_the_owner() {
    let mut both = Both::small();
    both.set_cpus(3, 1, &set("0,2,4-31"));
    both.finds(&[(Kind::ExclusiveOverlap, "default/pod3/c1")]);
    assert!(both.findings()[0].detail.contains("2 of default/pod0/c0"), "{:?}", both.findings());
    let mut both = Both::small();
    both.set_cpus(1, 0, &set("1-3"));
    both.finds(&[(Kind::ExclusiveOverlap, "default/pod1/c0")]);
}

#[test]
fn cpus_told_to_two_are_an_overlap_whatever_the_cpusets_are() {
    let mut both = Both::small();
    both.told.pods[1].containers[0].cpu_ids = vec![2, 3];
    both.set_cpus(1, 0, &set("2-3"));
    let found: Vec<_> = both.findings().iter().map(|finding| (finding.kind, finding.whose())).collect();
    assert!(found.contains(&(Kind::ExclusiveOverlap, "default/pod1/c0".to_owned())), "{found:?}");
}

#[test]
fn an_old_kubelet_that_lists_the_shared_pool_under_every_container_shows_nothing() {
    let mut both = Both::small();
    both.told.allocatable = None;
    for pod in &mut both.told.pods[2..] {
        for container in &mut pod.containers {
            container.cpu_ids = [0].into_iter().chain(4..32).collect();
        }
    }
    both.finds(&[]);
}

#[test]
fn a_listed_pod_without_a_cgroup_is_gone_and_one_with_devices_holds_them() {
    let mut both = Both::small();
    both.host.pods.pods.remove(4);
    both.finds(&[(Kind::PodGone, "default/pod4")]);
    both.told.pods[4].containers[0].devices.push(v1::ContainerDevices::default());
    both.finds(&[(Kind::DevicesOfDeadPod, "default/pod4")]);
}

#[test]
fn a_pod_without_a_sandbox_is_not_gone() {
    let mut both = Both::small();
    let pod = &mut both.host.pods.pods[0];
    (pod.name, pod.left_out) = (None, Some(Why::EmptyPod));
    pod.containers.clear();
    both.finds(&[]);
    // Nobody has logged yet: it may be any.
    both.logged.clear();
    both.finds(&[]);
}

#[test]
fn a_cgroup_whose_pod_is_not_listed_is_named() {
    let mut both = Both::small();
    both.told.pods.remove(4);
    both.finds(&[(Kind::CgroupWithoutPod, "default/pod4")]);
    both.logged.clear();
    both.host.pods.pods[4].name = None;
    both.finds(&[(Kind::CgroupWithoutPod, "kubepods/pod4")]);
}

#[test]
fn a_containers_cgroup_left_over_and_a_second_one_of_a_pod_are_named() {
    let mut both = Both::small();
    both.host.pods.pods[2].left_over.push("kubepods/pod2/old".into());
    both.finds(&[(Kind::CgroupWithoutPod, "kubepods/pod2/old")]);
    let mut both = Both::small();
    let mut second = both.host.pods.pods[2].clone();
    (second.cgroup, second.left_out) = ("kubepods/before".into(), Some(Why::EmptyPod));
    second.containers.clear();
    both.host.pods.pods.push(second);
    both.finds(&[(Kind::CgroupWithoutPod, "default/pod2")]);
    assert_eq!(both.findings()[0].cgroup.as_deref(), Some("kubepods/before"));
}

#[test]
fn cpus_that_went_offline_or_came_are_told_once_for_the_node() {
    let mut both = Both::small();
    let mut node = Node::clone(&both.host.node);
    node.online = (0..CPUS).filter(|cpu| *cpu != 2).collect();
    both.host.node = Arc::new(node);
    both.set_cpus(0, 0, &set("1"));
    both.finds(&[(Kind::OnlineCpus, "")]);
    let mut both = Both::small();
    let mut node = Node::clone(&both.host.node);
    node.online.insert(40);
    both.host.node = Arc::new(node);
    let kinds: Vec<Kind> = both.findings().iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [Kind::OnlineCpus]);
}

#[test]
fn an_init_container_on_its_pods_cpus_and_a_pool_that_lacks_what_it_holds_are_none() {
    let mut both = Both::small();
    let pod = &mut both.host.pods.pods[0];
    pod.containers.push(host_container("kubepods/pod0", "init", &set("1-2")));
    both.finds(&[]);
    // CPUs kept for an init container that has ended: no container shows them, and all share what is left.
    let mut both = Both::small();
    for (pod, container) in [(2, 0), (3, 0), (3, 1), (4, 0)] {
        both.set_cpus(pod, container, &set("0,6-31"));
    }
    both.finds(&[]);
}

#[test]
fn containers_that_share_their_pods_own_cpus_are_none() {
    let mut both = Both::of(&[vec![0, 1], vec![0]]);
    both.told.pods[0].cpu_ids = vec![1, 2, 3];
    both.set_cpus(0, 0, &set("2-3"));
    both.set_cpus(1, 0, &set("0,4-31"));
    both.finds(&[]);
    both.set_cpus(1, 0, &set("0,3-31"));
    both.finds(&[(Kind::ExclusiveOverlap, "default/pod1/c0")]);
}

#[test]
fn another_kubelets_pods_are_not_this_ones() {
    let mut both = Both::small();
    both.host.pods.roots.push("other/kubepods".into());
    let mut pod = both.host.pods.pods[0].clone();
    pod.cgroup = "other/kubepods/podx".into();
    pod.name = Some(PodName { namespace: "default".into(), name: "elsewhere".into() });
    both.host.pods.pods.push(pod);
    both.finds(&[]);
}

#[test]
fn without_kubepods_nothing_is_said_of_pods() {
    let mut both = Both::small();
    (both.host.pods.roots, both.host.pods.pods) = (Vec::new(), Vec::new());
    both.finds(&[]);
}

fn pods() -> impl Strategy<Value = Vec<Vec<u32>>> {
    proptest::collection::vec(proptest::collection::vec(0_u32..3, 1..4), 3..6)
        .prop_filter("room for all, and somebody shares", |pods| pods.iter().flatten().sum::<u32>() < 24)
}

proptest! {
    #[test]
    fn whatever_agrees_shows_nothing_in_any_order(pods in pods(), by in 0_usize..6) {
        let mut both = Both::of(&pods);
        prop_assert_eq!(both.findings(), Vec::new());
        let len = both.told.pods.len();
        both.told.pods.rotate_left(by % len);
        both.host.pods.pods.reverse();
        prop_assert_eq!(both.findings(), Vec::new());
    }

    #[test]
    fn each_planted_drift_is_found_and_nothing_else_is(pods in pods(), pod in 0_usize..6, container in 0_usize..4, what in 0..6) {
        let mut both = Both::of(&pods);
        let pod = pod % pods.len();
        let container = container % pods[pod].len();
        let whose = format!("default/pod{pod}/c{container}");
        let own: CpuSet = both.told.pods[pod].containers[container].cpu_ids.iter().map(|&cpu| u32::try_from(cpu).unwrap()).collect();
        let others: CpuSet = both.told.pods.iter().enumerate().filter(|(at, _)| *at != pod).flat_map(|(_, pod)| &pod.containers)
            .flat_map(|container| &container.cpu_ids).map(|&cpu| u32::try_from(cpu).unwrap()).collect();
        let mut wide = both.host.pods.pods[pod].containers[container].cpus.clone().unwrap();
        let shared = pods.iter().flatten().filter(|count| **count == 0).count();
        let wanted = match what {
            0 if !own.is_empty() => {
                both.set_cpus(pod, container, &set("31"));
                (Kind::CpusNotInCpuset, whose)
            }
            1 if !own.is_empty() => {
                wide.insert(31);
                both.set_cpus(pod, container, &wide);
                (Kind::CpusetRewritten, whose)
            }
            1 if shared > 1 => {
                both.set_cpus(pod, container, &set("30"));
                (Kind::CpusetRewritten, whose)
            }
            2 if !others.is_empty() => {
                wide.insert(others.iter().next().unwrap());
                both.set_cpus(pod, container, &wide);
                (Kind::ExclusiveOverlap, whose)
            }
            3 => {
                let holds = both.told.pods[pod].containers.iter().any(|container| !container.cpu_ids.is_empty());
                both.host.pods.pods.remove(pod);
                (if holds { Kind::DevicesOfDeadPod } else { Kind::PodGone }, format!("default/pod{pod}"))
            }
            4 => {
                let holds = both.told.pods[pod].containers.iter().any(|container| !container.cpu_ids.is_empty());
                prop_assume!(!holds);
                both.told.pods.remove(pod);
                (Kind::CgroupWithoutPod, format!("default/pod{pod}"))
            }
            5 => {
                both.host.pods.pods[pod].left_over.push("kubepods/old".into());
                (Kind::CgroupWithoutPod, "kubepods/old".to_owned())
            }
            _ => return Err(TestCaseError::reject("nothing to plant")),
        };
        let found: Vec<(Kind, String)> = both.findings().iter().map(|finding| (finding.kind, finding.whose())).collect();
        prop_assert_eq!(found, vec![wanted]);
    }
}

#[test]
fn what_is_there_at_every_look_for_long_enough_is_confirmed_once_and_ends_once() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut both = Both::small();
    both.set_cpus(0, 0, &set("9"));
    let drift = both.findings();
    let mut confirmation = Confirmation::default();
    assert_eq!(confirmation.look(at(0), drift.clone()), News::default());
    assert_eq!(confirmation.due(), Some(at(4)));
    assert_eq!(confirmation.look(at(3), drift.clone()), News::default());
    assert_eq!(confirmation.look(at(4), drift.clone()), News { begun: drift.clone(), ended: Vec::new() });
    assert_eq!((confirmation.confirmed(), confirmation.due()), (drift.clone(), None));
    assert_eq!(confirmation.look(at(5), drift.clone()), News::default(), "told once");
    assert_eq!(confirmation.look(at(6), Vec::new()), News { begun: Vec::new(), ended: drift });
}

#[test]
fn what_comes_and_goes_between_looks_is_never_confirmed() {
    let start = Instant::now();
    let mut both = Both::small();
    both.set_cpus(0, 0, &set("9"));
    let drift = both.findings();
    let mut confirmation = Confirmation::default();
    for second in 0..60 {
        let findings = if second % 4 == 3 { Vec::new() } else { drift.clone() };
        assert_eq!(confirmation.look(start + Duration::from_secs(second), findings), News::default());
    }
    let mut at_once = Confirmation::with_patience(Some(Duration::ZERO));
    assert_eq!(at_once.look(start, drift.clone()), News::default(), "never at the first look");
    assert_eq!(at_once.look(start, drift.clone()).begun, drift);
}

#[test]
fn every_kind_has_a_name_of_its_own_and_the_same_in_json() {
    let names: std::collections::HashSet<_> = Kind::ALL.into_iter().map(Kind::name).collect();
    assert_eq!(names.len(), Kind::ALL.len());
    for kind in Kind::ALL {
        assert_eq!(serde_json::to_string(&kind).unwrap(), format!("{:?}", kind.name()));
    }
}
