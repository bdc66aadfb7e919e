//! After a kubelet restart: who is kept, who is not, and that nothing ever has two owners.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use prost::Message as _;

use super::super::resources::each_holding;
use super::super::{Allocatable, Lookup, LostDevice, PodList, PodRef, merge, merge_allocatable};
use super::generate::{Layout, Rng, devices, list, record};
use crate::proto::v1;

fn reply(pods: &[v1::PodResources]) -> PodList {
    PodList::build(&v1::ListPodResourcesResponse { pod_resources: pods.to_vec() }.encode_to_vec()).unwrap()
}

fn pod(name: &str, container: v1::ContainerResources) -> v1::PodResources {
    v1::PodResources { name: name.into(), namespace: "n".into(), containers: vec![container], ..Default::default() }
}

fn with_cpus(name: &str, cpus: &[i64]) -> v1::PodResources {
    pod(name, v1::ContainerResources { cpu_ids: cpus.to_vec(), ..Default::default() })
}

fn with_device(name: &str, resource: &str, id: &str) -> v1::PodResources {
    let devices = v1::ContainerDevices { resource_name: resource.into(), device_ids: vec![id.into()], topology: None };
    pod(name, v1::ContainerResources { devices: vec![devices], ..Default::default() })
}

fn with_claim(name: &str, device: &str, share: Option<&str>) -> v1::PodResources {
    let resource = v1::ClaimResource {
        driver_name: "driver".into(),
        pool_name: "pool".into(),
        device_name: device.into(),
        share_id: share.map(Into::into),
        ..Default::default()
    };
    let claim = v1::DynamicResource { claim_resources: vec![resource], ..Default::default() };
    pod(name, v1::ContainerResources { dynamic_resources: vec![claim], ..Default::default() })
}

/// What comes of the pods that only the old reply has: who is kept, and who is not over what.
#[track_caller]
fn check(old: &[v1::PodResources], new: &[v1::PodResources], kept: &[&str], conflicts: &[(&str, &str)]) {
    let merged = merge(&reply(old), reply(new), |_| true).unwrap();
    assert_eq!(merged.kept.iter().map(|pod| &pod.name).collect::<Vec<_>>(), kept);
    let found: Vec<_> = merged.conflicts.iter().map(|conflict| (&conflict.pod.name[..], &conflict.over[..])).collect();
    assert_eq!(found, conflicts);
    assert_eq!(merged.list.len(), new.len() + kept.len());
}

#[test]
fn a_lost_pod_keeps_its_old_bytes_behind_the_new_reply() {
    let rng = &mut Rng(3);
    let lost = Layout { rng, unknown: true, loose: true }.pod(&with_cpus("lost", &[1]));
    let old = PodList::build(&[&lost[..], &record(9, b"what the old reply said beside its pods")].concat()).unwrap();
    let new = [record(1, &record(1, b"new")), record(8, b"from a later version")].concat();
    let merged = merge(&old, PodList::build(&new).unwrap(), |_| true).unwrap();
    assert_eq!(merged.list.message(), [&new[..], &lost].concat());
    assert_eq!(merged.kept[0].to_string(), "n/lost");
    assert_eq!(merged.list.get("n", "lost"), old.get("n", "lost"));
}

#[test]
fn only_lost_pods_are_asked_for_and_a_no_drops_them() {
    let old = reply(&[with_cpus("a", &[1]), with_cpus("b", &[2]), with_cpus("c", &[3])]);
    let new = reply(&[with_cpus("b", &[2])]);
    let mut asked = Vec::new();
    let merged = merge(&old, new, |pod: &PodRef<'_>| {
        asked.push(format!("{}/{}", pod.namespace, pod.name));
        pod.name == "c"
    })
    .unwrap();
    assert_eq!(asked, ["n/a", "n/c"]);
    assert_eq!(merged.list.pods().map(|pod| pod.name).collect::<Vec<_>>(), ["b", "c"]);
    assert!(merged.conflicts.is_empty());
}

#[test]
fn where_nothing_is_lost_the_new_reply_stands_as_it_is() {
    let new = reply(&[with_cpus("b", &[2]), with_cpus("a", &[])]);
    let (message, digest) = (new.message().to_vec(), new.digest());
    let merged = merge(&reply(&[with_cpus("a", &[1])]), new, |_| panic!("nobody is lost")).unwrap();
    assert_eq!((merged.list.message(), merged.list.digest()), (&message[..], digest));
}

#[test]
fn an_empty_list_after_a_restart_loses_nobody() {
    let old = [with_cpus("a", &[1]), with_device("b", "r", "0"), with_claim("c", "x", None)];
    check(&old, &[], &["a", "b", "c"], &[]);
}

#[test]
fn a_pod_whose_cpu_has_a_new_owner_is_dropped() {
    check(&[with_cpus("a", &[1, 2])], &[with_cpus("b", &[2])], &[], &[("a", "CPU 2")]);
    check(&[with_cpus("a", &[1, 2])], &[with_cpus("b", &[3])], &["a"], &[]);
}

#[test]
fn cpus_of_a_pod_as_a_whole_and_of_its_containers_are_the_same_cpus() {
    let whole = |name, cpus: &[i64]| v1::PodResources { cpu_ids: cpus.to_vec(), ..with_cpus(name, &[]) };
    check(&[whole("a", &[1])], &[with_cpus("b", &[1])], &[], &[("a", "CPU 1")]);
    check(&[with_cpus("a", &[1])], &[whole("b", &[1])], &[], &[("a", "CPU 1")]);
}

#[test]
fn a_pod_whose_device_has_a_new_owner_is_dropped() {
    let conflict = [("a", "device 0 of r")];
    check(&[with_device("a", "r", "0")], &[with_device("b", "r", "0")], &[], &conflict);
    check(&[with_device("a", "r", "0")], &[with_device("b", "r", "1")], &["a"], &[]);
    check(&[with_device("a", "r", "0")], &[with_device("b", "s", "0")], &["a"], &[]);
}

#[test]
fn a_pod_whose_claimed_device_has_a_new_owner_is_dropped() {
    let conflict = [("a", "device driver/pool/x")];
    check(&[with_claim("a", "x", None)], &[with_claim("b", "x", None)], &[], &conflict);
    check(&[with_claim("a", "x", None)], &[with_claim("b", "y", None)], &["a"], &[]);
    check(&[with_claim("a", "x", Some("1"))], &[with_claim("b", "x", Some("2"))], &["a"], &[]);
    let conflict = [("a", "share 1 of device driver/pool/x")];
    check(&[with_claim("a", "x", Some("1"))], &[with_claim("b", "x", Some("1"))], &[], &conflict);
}

#[test]
fn pods_that_share_a_claim_stay_while_one_of_them_has_it_and_go_when_others_do() {
    let shared = [with_claim("a", "x", None), with_claim("b", "x", None)];
    check(&shared, &[with_claim("b", "x", None)], &["a"], &[]);
    check(&shared, &[with_claim("b", "x", None), with_claim("c", "x", None)], &["a"], &[]);
    let conflicts = [("a", "device driver/pool/x"), ("b", "device driver/pool/x")];
    check(&shared, &[with_claim("c", "x", None)], &[], &conflicts);
}

/// Kubelets up to 1.20 list the shared pool as every pod's CPUs (kubernetes 100211).
#[test]
fn the_shared_pool_listed_as_cpus_is_nobodys() {
    let old = [with_cpus("a", &[0, 2]), with_cpus("b", &[0, 2]), with_cpus("owner", &[1])];
    check(&old, &[with_cpus("b", &[0, 2])], &["a", "owner"], &[]);
    check(&old, &[with_cpus("c", &[0, 2]), with_cpus("d", &[0, 2])], &["a", "b", "owner"], &[]);
    // CPU 2 was shared and is one pod's now.
    check(&old, &[with_cpus("b", &[0]), with_cpus("c", &[2])], &["owner"], &[("a", "CPU 2")]);
    // CPU 1 had an owner and is in the pool again.
    check(&old, &[with_cpus("b", &[0, 1, 2]), with_cpus("a", &[0, 1, 2])], &[], &[("owner", "CPU 1")]);
}

#[test]
fn two_pods_of_one_name_are_lost_and_kept_together() {
    let twins = [with_cpus("a", &[1]), with_cpus("a", &[2])];
    check(&twins, &[with_cpus("b", &[3])], &["a", "a"], &[]);
    let merged = merge(&reply(&twins), reply(&[with_cpus("b", &[3])]), |_| true).unwrap();
    assert_eq!(merged.list.get("n", "a"), Lookup::Ambiguous);
    check(&twins, &[with_cpus("a", &[2])], &[], &[]);
}

/// What a pod holds, each thing once.
fn things(pod: &PodRef<'_>) -> BTreeSet<String> {
    let mut things = BTreeSet::new();
    each_holding(pod.record, |holding| things.extend([holding.to_string()])).unwrap();
    things
}

/// Who holds each thing; of two pods with one name both.
fn owners(list: &PodList) -> BTreeMap<String, Vec<String>> {
    let mut owners = BTreeMap::<_, Vec<_>>::new();
    for pod in list.pods() {
        for thing in things(&pod) {
            owners.entry(thing).or_default().push(pod.to_name().to_string());
        }
    }
    owners
}

/// A reply in which everything has one owner: who gets what of twelve things, and how many pods are listed.
fn exclusive() -> impl Strategy<Value = Vec<v1::PodResources>> {
    (vec(0usize..8, 12), btree_set(0usize..8, 0..8)).prop_map(|(owner_of, listed)| {
        let mut pods: BTreeMap<usize, v1::PodResources> =
            listed.into_iter().map(|index| (index, with_cpus(&format!("pod-{index}"), &[]))).collect();
        for (thing, owner) in owner_of.into_iter().enumerate() {
            let Some(pod) = pods.get_mut(&owner) else { continue };
            let id = thing.to_string();
            match thing % 4 {
                0 => pod.cpu_ids.push(i64::try_from(thing).unwrap()),
                1 => pod.containers[0].cpu_ids.push(i64::try_from(thing).unwrap()),
                2 => pod.containers.extend(with_device("", "r", &id).containers),
                _ => pod.containers.extend(with_claim("", &id, None).containers),
            }
        }
        pods.into_values().collect()
    })
}

proptest! {
    #[test]
    fn nothing_ever_has_two_owners(old in exclusive(), new in exclusive()) {
        let (old, new) = (reply(&old), reply(&new));
        let (before, lost) = (new.message().to_vec(), old.pods().filter(|pod| new.get(pod.namespace, pod.name) == Lookup::Absent).count());
        let merged = merge(&old, new, |_| true).unwrap();
        for (thing, owners) in owners(&merged.list) {
            prop_assert_eq!(owners.len(), 1, "{} is held by {:?}", thing, owners);
        }
        prop_assert!(merged.list.message().starts_with(&before));
        prop_assert_eq!(merged.kept.len() + merged.conflicts.len(), lost);
    }

    /// The rules, told a second time.
    #[test]
    fn what_is_shared_within_a_reply_follows_the_rules(old in list(), new in list(), answers: u64) {
        let build = |reply: &v1::ListPodResourcesResponse| PodList::build(&reply.encode_to_vec()).unwrap();
        let (old, new) = (build(&old), build(&new));
        let (old_owners, new_owners) = (owners(&old), owners(&new));
        let mut rng = Rng(answers);
        let of_new = new.len();
        let merged = merge(&old, new, |_| rng.below(4) > 0).unwrap();
        for pod in merged.list.pods().skip(of_new) {
            for thing in things(&pod) {
                let (Some(before), Some(now)) = (old_owners.get(&thing), new_owners.get(&thing)) else { continue };
                let carried = now.iter().any(|owner| before.contains(owner));
                let pool = thing.starts_with("CPU") && now.len() > 1;
                prop_assert!(before.len() > 1 && (carried || pool), "{} of {:?}, then of {:?}", thing, before, now);
            }
        }
        for conflict in &merged.conflicts {
            prop_assert!(new_owners.contains_key(&conflict.over), "{:?}", conflict);
        }
    }

    #[test]
    fn a_merged_allocatable_has_each_lost_device_once_and_all_of_the_new_reply(old in devices(), new in devices(), seed: u64) {
        let build = |devices: &[v1::ContainerDevices], rng: &mut Rng| {
            let records: Vec<_> = devices.iter().map(|devices| Layout { rng: &mut *rng, unknown: true, loose: true }.devices(1, devices)).collect();
            Allocatable::build(&[&records.concat()[..], &[0x10, 7]].concat()).unwrap()
        };
        let flat = |devices: &[v1::ContainerDevices]| {
            let pairs = devices.iter().flat_map(|devices| devices.device_ids.iter().map(|id| (devices.resource_name.clone(), id.clone(), devices.topology.clone())));
            let mut all: Vec<_> = pairs.collect();
            all.sort_by_key(|(resource, id, topology)| (resource.clone(), id.clone(), format!("{topology:?}")));
            all
        };
        let rng = &mut Rng(seed);
        let (before, after) = (build(&old, rng), build(&new, rng));
        let message = after.message().to_vec();
        let merged = merge_allocatable(&before, after, |_| true).unwrap();
        prop_assert!(merged.allocatable.message().starts_with(&message));
        let read = v1::AllocatableResourcesResponse::decode(merged.allocatable.message()).unwrap();
        prop_assert_eq!(read.cpu_ids, [7]);
        let (old, new) = (flat(&old), flat(&new));
        let lost = old.iter().filter(|(resource, id, _)| !new.iter().any(|other| (&other.0, &other.1) == (resource, id)));
        let mut expected: Vec<_> = new.iter().chain(lost).cloned().collect();
        expected.sort_by_key(|(resource, id, topology)| (resource.clone(), id.clone(), format!("{topology:?}")));
        // The order of a topology's nodes was shuffled too.
        let sorted = |all: Vec<(String, String, Option<v1::TopologyInfo>)>| {
            let one = |(resource, id, topology): (String, String, Option<v1::TopologyInfo>)| {
                let nodes = topology.map(|topology| topology.nodes.iter().map(|node| node.id).collect::<BTreeSet<_>>());
                (resource, id, nodes)
            };
            let mut all: Vec<_> = all.into_iter().map(one).collect();
            all.sort();
            all
        };
        prop_assert_eq!(sorted(flat(&read.devices)), sorted(expected));
    }
}

fn allocatable(devices: &[(&str, &[&str])], cpus: &[i64]) -> Allocatable {
    let one = |(resource, ids): &(&str, &[&str])| v1::ContainerDevices {
        resource_name: (*resource).into(),
        device_ids: ids.iter().map(ToString::to_string).collect(),
        topology: None,
    };
    let reply =
        v1::AllocatableResourcesResponse { devices: devices.iter().map(one).collect(), cpu_ids: cpus.to_vec(), memory: Vec::new() };
    Allocatable::build(&reply.encode_to_vec()).unwrap()
}

#[test]
fn devices_that_came_late_keep_their_old_bytes_and_cpus_are_the_new_ones() {
    let old = allocatable(&[("r", &["0"]), ("s", &["0"])], &[1, 2]);
    let merged = merge_allocatable(&old, allocatable(&[("s", &["0"])], &[3]), |_| true).unwrap();
    assert_eq!(merged.kept, 1);
    assert_eq!(merged.allocatable.digest(), allocatable(&[("s", &["0"]), ("r", &["0"])], &[3]).digest());
}

#[test]
fn of_a_record_with_several_devices_only_the_lost_ones_are_kept() {
    let old = allocatable(&[("r", &["0", "1", "2"])], &[]);
    let merged = merge_allocatable(&old, allocatable(&[("r", &["1"])], &[]), |_| true).unwrap();
    assert_eq!(merged.kept, 2);
    assert_eq!(merged.allocatable.digest(), allocatable(&[("r", &["1"]), ("r", &["0", "2"])], &[]).digest());
}

#[test]
fn the_caller_is_asked_once_for_each_lost_device_and_told_whether_its_plugin_is_back() {
    let old = allocatable(&[("r", &["0"]), ("r", &["0"]), ("r", &["1"]), ("s", &["0"])], &[]);
    let mut asked = Vec::new();
    let merged = merge_allocatable(&old, allocatable(&[("r", &["1"])], &[]), |lost: &LostDevice<'_>| {
        asked.push((format!("{}/{}", lost.device.resource, lost.device.id), lost.resource_is_back));
        !lost.resource_is_back
    })
    .unwrap();
    assert_eq!(asked, [("r/0".to_owned(), true), ("s/0".to_owned(), false)]);
    assert_eq!(merged.allocatable.digest(), allocatable(&[("r", &["1"]), ("s", &["0"])], &[]).digest());
}
