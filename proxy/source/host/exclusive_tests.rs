//! The judgement: its rules one by one, what it cannot decide, and what must never happen.

use proptest::prelude::*;

use super::*;

/// A pod in words: guaranteed or not, with the shares of its own cgroup.
#[derive(Clone, Debug)]
struct PodCase {
    guaranteed: bool,
    entitlement: Option<Entitlement>,
    containers: Vec<ContainerCase>,
}

#[derive(Clone, Debug)]
struct ContainerCase {
    cpus: Option<CpuSet>,
    known: bool,
    partition: bool,
    entitlement: Option<Entitlement>,
}

fn set(list: &str) -> CpuSet {
    CpuSet::parse(list).unwrap()
}

#[expect(clippy::unnecessary_wraps, reason = "as a container has it")]
fn shares(cpus: f64) -> Option<Entitlement> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
    let shares = (cpus * 1024.0) as u64;
    Some(Entitlement { quota: None, weight: Some(Weight::Shares(shares)) })
}

fn container(cpus: &str, entitlement: Option<Entitlement>) -> ContainerCase {
    ContainerCase { cpus: Some(set(cpus)), known: true, partition: false, entitlement }
}

fn guaranteed(entitlement: Option<Entitlement>, containers: &[ContainerCase]) -> PodCase {
    PodCase { guaranteed: true, entitlement, containers: containers.to_vec() }
}

fn burstable(containers: &[ContainerCase]) -> PodCase {
    PodCase { guaranteed: false, entitlement: None, containers: containers.to_vec() }
}

/// Judges pods of one kubelet, which has the CPUs of `pool`.
fn judge(pool: &CpuSet, always_shared: Option<&CpuSet>, cases: &[PodCase]) -> Verdicts {
    let pool = Pool { cpus: pool, always_shared };
    let pods: Vec<Pod<'_>> =
        cases.iter().map(|pod| Pod { guaranteed: pod.guaranteed, entitlement: pod.entitlement, pool }).collect();
    let containers = cases.iter().enumerate().flat_map(|(at, pod)| pod.containers.iter().map(move |container| (at, container)));
    let containers: Vec<Container<'_>> = containers
        .map(|(pod, case)| Container {
            pod,
            cpus: case.cpus.as_ref(),
            known: case.known,
            partition: case.partition,
            entitlement: case.entitlement,
        })
        .collect();
    // Nobody may depend on what is not asked for.
    let (asked, asked_pods) = undecided(&pods, &containers);
    let mut fewer = containers.clone();
    for (at, container) in fewer.iter_mut().enumerate() {
        container.entitlement = container.entitlement.filter(|_| asked.contains(&at));
    }
    let mut fewer_pods = pods.clone();
    for (at, pod) in fewer_pods.iter_mut().enumerate() {
        pod.entitlement = pod.entitlement.filter(|_| asked_pods.contains(&at));
    }
    let verdicts = decide(&pods, &containers);
    assert_eq!(decide(&fewer_pods, &fewer), verdicts, "the entitlements that were not asked for made a difference");
    verdicts
}

/// What is said of one container beside a container in the shared pool 0,2-7 of a node with CPUs 0-7, the first of which is reserved.
fn of_one(pod: PodCase) -> Verdict {
    let shared = burstable(&[container("0,2-7", shares(0.1))]);
    judge(&set("0-7"), Some(&set("0")), &[shared, pod]).containers[1]
}

// === the rules ===

#[test]
fn a_guaranteed_container_with_a_set_of_its_own_and_as_many_cpus_as_it_may_use_has_them_alone() {
    assert_eq!(of_one(guaranteed(None, &[container("1", shares(1.0))])), Verdict::Exclusive);
}

#[test]
fn a_container_that_shares_one_of_its_cpus_has_none_alone() {
    assert_eq!(of_one(guaranteed(None, &[container("1-2", shares(2.0))])), Verdict::Not(Because::Overlaps));
}

#[test]
fn a_burstable_pods_container_has_none_alone() {
    assert_eq!(of_one(burstable(&[container("1", shares(1.0))])), Verdict::Not(Because::NotGuaranteed));
}

#[test]
fn a_fraction_of_a_cpu_or_another_number_than_the_sets_is_none() {
    for cpus in [0.5, 0.999, 1.001, 2.0] {
        assert_eq!(of_one(guaranteed(None, &[container("1", shares(cpus))])), Verdict::Not(Because::Fraction), "{cpus}");
    }
    assert_eq!(of_one(guaranteed(None, &[container("1", Some(Entitlement::default()))])), Verdict::Not(Because::Fraction));
}

#[test]
fn a_quota_must_agree_where_there_is_one_and_need_not_be_there() {
    let with = |quota| Some(Entitlement { quota: Some(quota), weight: Some(Weight::Shares(1024)) });
    assert_eq!(of_one(guaranteed(None, &[container("1", with((100_000, 100_000)))])), Verdict::Exclusive);
    assert_eq!(of_one(guaranteed(None, &[container("1", with((99_000, 100_000)))])), Verdict::Not(Because::Fraction));
}

#[test]
fn both_of_runcs_weights_for_whole_cpus_are_known() {
    let of = |weight, cpus| Entitlement { quota: None, weight: Some(Weight::Weight(weight)) }.agrees_with(cpus);
    // As opencontainers/cgroups 0.0.7 gives them, and the formula before it.
    let known =
        [(1, 39, 100), (2, 79, 174), (3, 118, 240), (4, 157, 303), (64, 2500, 3023), (128, 5000, 5478), (256, 10_000, 10_000)];
    for (cpus, first, second) in known {
        assert!(of(first, cpus), "{cpus}: {first}");
        assert!(of(second, cpus), "{cpus}: {second} against {}", fitted_weight(cpus as u64 * 1024));
        assert!(!of(first - 1, cpus) && !of(second + 1, cpus), "{cpus}");
    }
}

#[test]
fn the_most_shares_stand_for_every_number_of_cpus_from_there_on() {
    let most = Entitlement { quota: None, weight: Some(Weight::Shares(262_144)) };
    assert!(most.agrees_with(256) && most.agrees_with(300) && !most.agrees_with(255) && !most.agrees_with(0));
}

#[test]
fn under_the_policy_none_a_guaranteed_pod_has_the_whole_node_and_nothing_alone() {
    let verdicts = judge(&set("0-7"), None, &[guaranteed(None, &[container("0-7", shares(8.0))])]);
    assert_eq!(verdicts.containers, [Verdict::Not(Because::WholePool)]);
}

#[test]
fn a_set_with_a_reserved_cpu_is_the_shared_pool_even_where_nobody_else_is_in_it() {
    let verdicts = judge(&set("0-3"), Some(&set("0")), &[guaranteed(shares(2.0), &[container("0-1", shares(2.0))])]);
    assert_eq!(verdicts.containers, [Verdict::Not(Because::Shared)]);
    assert_eq!(verdicts.pods, [None]);
}

#[test]
fn a_partitions_cpus_are_its_own_although_its_parent_has_them_no_more() {
    let partition = ContainerCase { partition: true, ..container("6-7", None) };
    let shared = burstable(&[container("0-5", None)]);
    let verdicts = judge(&set("0-5"), None, &[shared, guaranteed(None, &[partition])]);
    assert_eq!(verdicts.containers[1], Verdict::Exclusive);
}

#[test]
fn a_container_whose_set_cannot_be_read_may_have_any_cpu() {
    let odd = ContainerCase { cpus: None, ..container("", None) };
    let verdicts = judge(&set("0-7"), None, &[burstable(&[odd]), guaranteed(None, &[container("1", shares(1.0))])]);
    assert_eq!(verdicts.containers, [Verdict::Not(Because::Unreadable), Verdict::Not(Because::Overlaps)]);
}

#[test]
fn a_container_that_nobody_names_has_nothing_and_keeps_others_from_its_cpus() {
    let nobody = ContainerCase { known: false, ..container("1", shares(1.0)) };
    let verdicts = judge(
        &set("0-7"),
        None,
        &[guaranteed(None, std::slice::from_ref(&nobody)), guaranteed(None, &[container("2", shares(1.0))])],
    );
    assert_eq!(verdicts.containers, [Verdict::Not(Because::Unknown), Verdict::Exclusive]);
    let verdicts = judge(&set("0-7"), None, &[guaranteed(None, &[nobody]), guaranteed(None, &[container("1", shares(1.0))])]);
    assert_eq!(verdicts.containers[1], Verdict::Not(Because::Overlaps));
}

#[test]
fn a_half_made_container_without_a_set_has_nothing_and_harms_nobody() {
    let pods = [guaranteed(None, &[container("", shares(1.0))]), guaranteed(None, &[container("1", shares(1.0))])];
    assert_eq!(judge(&set("0-7"), None, &pods).containers, [Verdict::Not(Because::Empty), Verdict::Exclusive]);
}

// === CPUs of a pod as a whole ===

#[test]
fn containers_that_share_a_set_that_no_other_pod_has_share_their_pods_cpus() {
    let pod = guaranteed(shares(2.0), &[container("4-5", shares(0.5)), container("4-5", shares(1.0))]);
    let verdicts = judge(&set("0-7"), Some(&set("0")), &[pod]);
    assert_eq!(verdicts.pods, [Some(set("4-5"))]);
    assert!(verdicts.containers.iter().all(|verdict| *verdict == Verdict::Not(Because::Overlaps)));
}

#[test]
fn a_container_with_cpus_of_its_own_in_a_pod_with_more_has_them_beside_the_pods() {
    let containers = [container("4-5", shares(2.0)), container("6", shares(0.5)), container("6", shares(0.5))];
    let verdicts = judge(&set("0-7"), Some(&set("0")), &[guaranteed(shares(3.0), &containers)]);
    assert_eq!(verdicts.pods, [Some(set("4-6"))]);
    assert_eq!(verdicts.containers[0], Verdict::Exclusive);
}

#[test]
fn a_pod_whose_containers_all_have_cpus_of_their_own_has_none_as_a_whole() {
    let verdicts = judge(
        &set("0-7"),
        Some(&set("0")),
        &[guaranteed(shares(2.0), &[container("4", shares(1.0)), container("5", shares(1.0))])],
    );
    assert_eq!(verdicts.pods, [None]);
    assert_eq!(verdicts.containers, [Verdict::Exclusive; 2]);
}

#[test]
fn a_pod_with_a_container_in_the_shared_pool_has_none_as_a_whole() {
    let verdicts = judge(
        &set("0-7"),
        Some(&set("0")),
        &[guaranteed(shares(2.0), &[container("4", shares(1.0)), container("0-3,5-7", shares(1.0))])],
    );
    assert_eq!((verdicts.pods, verdicts.containers[0]), (vec![None], Verdict::Exclusive));
}

#[test]
fn where_it_is_not_known_what_is_always_shared_no_pod_has_cpus_as_a_whole() {
    // A lone guaranteed pod in a shared pool of two CPUs looks just like this.
    let pod = guaranteed(shares(2.0), &[container("0-1", shares(0.5)), container("0-1", shares(1.5))]);
    assert_eq!(judge(&set("0-7"), None, &[pod]).pods, [None]);
}

#[test]
fn a_pod_one_of_whose_containers_is_missing_has_none_as_a_whole() {
    // It has three CPUs, and two are in sight: the third's container is in back-off.
    let pod = guaranteed(shares(3.0), &[container("4-5", shares(0.5)), container("4-5", shares(0.5))]);
    assert_eq!(judge(&set("0-7"), Some(&set("0")), &[pod]).pods, [None]);
}

// === what cannot be decided: what we say then ===

#[test]
fn undecidable_a_lone_container_in_the_shared_part_of_its_pods_cpus_is_said_to_have_that_part_alone() {
    // The kubelet says that the pod has 4-7, its first container 4-5, its second none. Nobody else can run on 6-7 either way.
    let pod = guaranteed(shares(4.0), &[container("4-5", shares(2.0)), container("6-7", shares(2.0))]);
    let verdicts = judge(&set("0-7"), Some(&set("0")), &[pod]);
    assert_eq!((verdicts.containers, verdicts.pods), (vec![Verdict::Exclusive; 2], vec![None]));
}

#[test]
fn undecidable_an_init_container_that_runs_on_its_pods_cpus_is_said_to_have_them() {
    // The kubelet never lists plain init containers; their set is handed on to the containers that come after.
    assert_eq!(of_one(guaranteed(None, &[container("1", shares(1.0))])), Verdict::Exclusive);
}

#[test]
fn undecidable_a_container_in_back_off_has_no_cgroup_and_so_no_cpus() {
    let verdicts = judge(&set("0-7"), Some(&set("0")), &[guaranteed(shares(1.0), &[])]);
    assert_eq!((verdicts.containers.len(), verdicts.pods), (0, vec![None]));
}

#[test]
fn undecidable_on_v2_a_weight_stands_for_several_requests_and_a_quota_tells_them_apart() {
    // 990m and 1 CPU are both weight 39. A container of 990m has a quota, and one with a CPU of its own has none or a whole one.
    let weight = Some(Weight::Weight(39));
    let fraction = Some(Entitlement { quota: Some((99_000, 100_000)), weight });
    assert_eq!(of_one(guaranteed(None, &[container("1", fraction)])), Verdict::Not(Because::Fraction));
    // Without CFS quotas on the node nothing tells them apart; its set is still its alone.
    assert_eq!(of_one(guaranteed(None, &[container("1", Some(Entitlement { quota: None, weight }))])), Verdict::Exclusive);
}

// === what must never happen ===

fn any_set() -> impl Strategy<Value = CpuSet> {
    prop_oneof![
        // Sets as a kubelet makes them, and any others.
        3 => (0..8_u32, 1..3_u32).prop_map(|(first, len)| (first..(first + len).min(8)).collect()),
        1 => proptest::collection::btree_set(0..8_u32, 0..8).prop_map(|cpus| cpus.into_iter().collect()),
    ]
}

fn any_entitlement(cpus: usize) -> impl Strategy<Value = Option<Entitlement>> {
    let whole = cpus as u64;
    let weights = prop_oneof![
        4 => Just(Weight::Shares(whole * 1024)),
        2 => Just(Weight::Weight(linear_weight(whole * 1024))),
        1 => Just(Weight::Weight(fitted_weight(whole * 1024))),
        1 => (0..4096_u64).prop_map(Weight::Shares),
    ];
    let quota = proptest::option::weighted(0.2, (0..4_u64).prop_map(|cpus| (cpus * 100_000, 100_000)));
    proptest::option::weighted(
        0.9,
        (proptest::option::weighted(0.9, weights), quota).prop_map(|(weight, quota)| Entitlement { quota, weight }),
    )
}

fn any_container() -> impl Strategy<Value = ContainerCase> {
    (any_set(), any::<bool>()).prop_flat_map(|(cpus, _)| {
        let entitlement = any_entitlement(cpus.len());
        (Just(cpus), proptest::bool::weighted(0.95), proptest::bool::weighted(0.05), proptest::bool::weighted(0.02), entitlement)
            .prop_map(|(cpus, known, partition, odd, entitlement)| ContainerCase {
                cpus: (!odd).then_some(cpus),
                known,
                partition,
                entitlement,
            })
    })
}

fn any_pods() -> impl Strategy<Value = Vec<PodCase>> {
    let pod = (proptest::bool::weighted(0.7), proptest::collection::vec(any_container(), 0..4)).prop_flat_map(
        |(guaranteed, containers)| {
            let mut cpus = CpuSet::new();
            containers.iter().filter_map(|container| container.cpus.as_ref()).for_each(|set| cpus.union_with(set));
            (Just(guaranteed), Just(containers), any_entitlement(cpus.len()))
                .prop_map(|(guaranteed, containers, entitlement)| PodCase { guaranteed, entitlement, containers })
        },
    );
    proptest::collection::vec(pod, 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_cpu_has_two_owners_and_the_shared_pool_has_none(pods in any_pods(), reserved in proptest::option::of(0..3_u32)) {
        let pool = set("0-7");
        let reserved: Option<CpuSet> = reserved.map(|last| (0..=last).collect());
        let verdicts = judge(&pool, reserved.as_ref(), &pods);
        let containers: Vec<(usize, &ContainerCase)> =
            pods.iter().enumerate().flat_map(|(at, pod)| pod.containers.iter().map(move |container| (at, container))).collect();
        let mut taken = CpuSet::new();
        for (at, verdict) in verdicts.containers.iter().enumerate() {
            if *verdict != Verdict::Exclusive {
                continue;
            }
            let (pod, case) = containers[at];
            let cpus = case.cpus.as_ref().unwrap();
            prop_assert!(!cpus.is_empty() && cpus.is_disjoint(&taken));
            prop_assert!(pods[pod].guaranteed && case.known);
            prop_assert!(case.partition || cpus.is_proper_subset(&pool));
            prop_assert!(reserved.as_ref().is_none_or(|reserved| cpus.is_disjoint(reserved)));
            let others = containers.iter().enumerate().filter(|(other, _)| *other != at);
            for (_, (_, other)) in others {
                prop_assert!(other.cpus.as_ref().map_or(case.partition, |other| other.is_disjoint(cpus)));
            }
            taken.union_with(cpus);
        }
        for (at, cpus) in verdicts.pods.iter().enumerate() {
            let Some(cpus) = cpus else { continue };
            prop_assert!(pods[at].guaranteed && cpus.is_proper_subset(&pool));
            prop_assert!(reserved.as_ref().is_some_and(|reserved| cpus.is_disjoint(reserved)));
            for (pod, other) in &containers {
                prop_assert!(*pod == at || other.cpus.as_ref().is_some_and(|other| other.is_disjoint(cpus)));
            }
        }
    }
}
