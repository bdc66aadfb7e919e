//! Replies that real kubelets gave (`tests/cases/kubelet`), whole and broken.

use std::path::Path;

use prost::Message as _;

use super::super::{Allocatable, Lookup, PodList, merge, merge_allocatable};
use super::generate::{Rng, shuffle_allocatable, shuffle_list};
use crate::proto::{v1, v1alpha1};

/// The recorded messages whose file name begins with `prefix`.
fn recorded(prefix: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/kubelet");
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.starts_with(prefix) && path.extension().is_some_and(|extension| extension == "hex") {
            let text = std::fs::read_to_string(path).unwrap();
            let digits: Vec<u8> = text.trim().chars().map(|digit| u8::try_from(digit.to_digit(16).unwrap()).unwrap()).collect();
            cases.push((name, digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()));
        }
    }
    assert!(!cases.is_empty(), "no recorded {prefix}");
    cases
}

#[test]
fn every_recorded_list_goes_out_byte_for_byte() {
    for (case, message) in recorded("list-") {
        let list = PodList::build(&message).unwrap();
        assert_eq!(list.message(), message, "{case}");
        assert_eq!(list.framed()[5..], message, "{case}");
        assert_eq!(list.framed()[1..5], u32::try_from(message.len()).unwrap().to_be_bytes(), "{case}");
    }
}

#[test]
fn get_gives_every_recorded_pod_as_the_list_has_it() {
    for (case, message) in recorded("list-") {
        let list = PodList::build(&message).unwrap();
        let pods = v1::ListPodResourcesResponse::decode(&message[..]).unwrap().pod_resources;
        assert_eq!(list.len(), pods.len(), "{case}");
        for pod in pods {
            let Lookup::Found(framed) = list.get(&pod.namespace, &pod.name) else { panic!("{case}: {}", pod.name) };
            let answer = v1::GetPodResourcesResponse::decode(&framed[5..]).unwrap();
            assert_eq!(answer.pod_resources, Some(pod), "{case}");
        }
        assert_eq!(list.get("default", "nobody"), Lookup::Absent, "{case}");
    }
}

#[test]
fn every_recorded_allocatable_goes_out_byte_for_byte() {
    for (case, message) in recorded("alloc-") {
        let allocatable = Allocatable::build(&message).unwrap();
        assert_eq!(allocatable.message(), message, "{case}");
        assert_eq!(allocatable.framed()[5..], message, "{case}");
    }
}

#[test]
fn a_recorded_reply_shuffled_and_encoded_anew_has_the_same_digest() {
    let mut rng = Rng(7);
    for (case, message) in recorded("list-") {
        let digest = PodList::build(&message).unwrap().digest();
        let mut reply = v1::ListPodResourcesResponse::decode(&message[..]).unwrap();
        for _ in 0..8 {
            shuffle_list(&mut reply, &mut rng);
            assert_eq!(PodList::build(&reply.encode_to_vec()).unwrap().digest(), digest, "{case}");
        }
    }
    for (case, message) in recorded("alloc-") {
        let digest = Allocatable::build(&message).unwrap().digest();
        let mut reply = v1::AllocatableResourcesResponse::decode(&message[..]).unwrap();
        for _ in 0..8 {
            shuffle_allocatable(&mut reply, &mut rng);
            assert_eq!(Allocatable::build(&reply.encode_to_vec()).unwrap().digest(), digest, "{case}");
        }
    }
}

#[test]
fn v1alpha1_is_read_by_the_same_code() {
    for (case, message) in recorded("list-v1alpha1-") {
        let list = PodList::build(&message).unwrap();
        let mut pods = v1alpha1::ListPodResourcesResponse::decode(&message[..]).unwrap().pod_resources;
        let digest = list.digest();
        assert!(list.pods().map(|pod| pod.name).eq(pods.iter().map(|pod| &pod.name)), "{case}");
        pods.reverse();
        let reversed = v1alpha1::ListPodResourcesResponse { pod_resources: pods }.encode_to_vec();
        assert_eq!(PodList::build(&reversed).unwrap().digest(), digest, "{case}");
    }
}

#[test]
fn recorded_replies_of_different_nodes_have_different_digests() {
    let mut digests: Vec<_> = recorded("list-").iter().map(|(_, message)| PodList::build(message).unwrap().digest()).collect();
    let all = digests.len();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), all);
}

/// Changes a few bytes: flips, overwrites, cuts, repeats.
fn mutate(bytes: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..=rng.below(2) {
        if bytes.is_empty() {
            return;
        }
        let at = rng.below(bytes.len());
        match rng.below(16) {
            0..8 => bytes[at] ^= 1 << rng.below(8),
            8..12 => bytes[at] = u8::try_from(rng.below(256)).unwrap(),
            12 => bytes.truncate(at),
            13 => bytes.insert(at, 0xff),
            14 => drop(bytes.remove(at)),
            _ => {
                let end = at + rng.below(bytes.len() - at).min(64);
                let part = bytes[at..end].to_vec();
                let to = rng.below(bytes.len());
                bytes.splice(to..to, part);
            }
        }
    }
}

/// Whatever builds, of a thousand broken copies of each recorded reply, is served as it came, and its pods by name.
#[test]
fn broken_copies_of_recorded_replies_are_refused_or_served_byte_for_byte() {
    let mut rng = Rng(42);
    let (mut built, mut refused) = (0, 0);
    for (case, original) in recorded("") {
        let rounds = if original.len() > 4_096 { 200 } else { 1_000 };
        for round in 0..rounds {
            let mut message = original.clone();
            mutate(&mut message, &mut rng);
            if let Ok(allocatable) = Allocatable::build(&message) {
                assert_eq!(allocatable.message(), message, "{case}, {round}");
                let before = Allocatable::build(&original);
                if let Ok(before) = before {
                    merge_allocatable(&before, allocatable, |_| true).unwrap();
                }
            }
            let Ok(list) = PodList::build(&message) else {
                refused += 1;
                continue;
            };
            built += 1;
            assert_eq!(list.message(), message, "{case}, {round}");
            for pod in list.pods() {
                match list.get(pod.namespace, pod.name) {
                    Lookup::Found(framed) => assert_eq!(framed[5..], *pod.record, "{case}, {round}"),
                    Lookup::Ambiguous => {}
                    Lookup::Absent => panic!("{case}, {round}: {pod:?} is not found"),
                }
            }
            if let Ok(old) = PodList::build(&original) {
                merge(&list, old, |_| true).unwrap();
            }
        }
    }
    assert!(built > 1_000 && refused > 1_000, "{built} built, {refused} refused: the mutations reach one side only");
}
