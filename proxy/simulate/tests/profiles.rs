//! What differs from one Kubernetes version to the next.

use super::*;
use crate::proto::v1alpha1;
use crate::simulate::{Phase, Profile, Rate};

async fn lab(profile: Profile) -> Lab {
    Lab::start(|config| (config.profile, config.pods, config.claims) = (profile, 300, 40)).await
}

/// Whether any container (or pod) of the node's List has something.
async fn some(lab: &Lab, has: impl Fn(&v1::PodResources) -> bool) -> bool {
    lab.client().await.list().await.pod_resources.iter().any(has)
}

#[tokio::test]
async fn get_is_missing_in_1_20_switched_off_in_1_27_and_there_since_1_34() {
    let codes = async |profile| match lab(profile).await.client().await.get("nowhere", "nobody").await {
        Outcome::Status(code, text) => (code, text),
        other => panic!("{other:?}"),
    };
    let missing = (Code::Unimplemented, "unknown method Get for service v1.PodResourcesLister".to_owned());
    assert_eq!(codes(Profile::V1_20).await, missing);
    assert_eq!(codes(Profile::V1_27).await, (Code::Unknown, "PodResources API Get method disabled".to_owned()));
    for profile in [Profile::V1_34, Profile::V1_37] {
        assert_eq!(codes(profile).await, (Code::Unknown, "pod nobody in namespace nowhere not found".to_owned()));
    }
}

#[tokio::test]
async fn allocatable_is_missing_in_1_20_and_there_since_1_27() {
    let text = "unknown method GetAllocatableResources for service v1.PodResourcesLister".to_owned();
    let old = lab(Profile::V1_20).await.client().await.ask(Method::Allocatable).await;
    assert_eq!(old, Outcome::Status(Code::Unimplemented, text));
    assert!(!lab(Profile::V1_27).await.client().await.allocatable().await.memory.is_empty());
}

#[tokio::test]
async fn a_container_of_the_shared_pool_reports_it_in_1_20_and_nothing_later() {
    let without = |pod: &v1::PodResources| pod.containers.iter().any(|container| container.cpu_ids.is_empty());
    assert!(!some(&lab(Profile::V1_20).await, without).await);
    assert!(some(&lab(Profile::V1_27).await, without).await);
}

#[tokio::test]
async fn memory_comes_after_1_20_and_claims_come_with_1_34() {
    let memory = |pod: &v1::PodResources| pod.containers.iter().any(|container| !container.memory.is_empty());
    let claims = |pod: &v1::PodResources| pod.containers.iter().any(|container| !container.dynamic_resources.is_empty());
    for (profile, expected) in [
        (Profile::V1_20, (false, false)),
        (Profile::V1_27, (true, false)),
        (Profile::V1_34, (true, true)),
        (Profile::V1_37, (true, true)),
    ] {
        let lab = lab(profile).await;
        assert_eq!((some(&lab, memory).await, some(&lab, claims).await), expected, "{profile}");
    }
}

#[tokio::test]
async fn pods_hold_cpus_as_a_whole_and_claims_have_shares_in_1_37_alone() {
    let whole = |pod: &v1::PodResources| !pod.cpu_ids.is_empty() && !pod.memory.is_empty();
    let share = |pod: &v1::PodResources| {
        let claims = pod.containers.iter().flat_map(|container| &container.dynamic_resources);
        claims.flat_map(|claim| &claim.claim_resources).any(|resource| resource.share_id.is_some())
    };
    for (profile, expected) in [(Profile::V1_34, (false, false)), (Profile::V1_37, (true, true))] {
        let lab = lab(profile).await;
        assert_eq!((some(&lab, whole).await, some(&lab, share).await), expected, "{profile}");
    }
}

#[tokio::test]
async fn sidecars_are_listed_first_since_1_34_and_never_in_v1alpha1() {
    let first = |pod: &v1::PodResources| pod.containers[0].name == "istio-proxy";
    assert!(!some(&lab(Profile::V1_27).await, first).await);
    let lab = lab(Profile::V1_34).await;
    assert!(some(&lab, first).await);
    let alpha: v1alpha1::ListPodResourcesResponse = lab.client().await.ask(Method::AlphaList).await.decode();
    assert!(alpha.pod_resources.iter().flat_map(|pod| &pod.containers).all(|container| container.name != "istio-proxy"));
}

#[tokio::test]
async fn ended_pods_are_in_v1_list_until_1_27_and_in_v1alpha1_and_get_for_ever() {
    for (profile, listed) in [(Profile::V1_27, 303), (Profile::V1_34, 300)] {
        let lab = lab(profile).await;
        let mut client = lab.client().await;
        assert_eq!(client.list().await.pod_resources.len(), listed, "{profile}");
        let alpha: v1alpha1::ListPodResourcesResponse = client.ask(Method::AlphaList).await.decode();
        assert_eq!(alpha.pod_resources.len(), 303, "{profile}");
    }
    let lab = lab(Profile::V1_37).await;
    let ended = lab.sim.node().pods().find(|pod| pod.phase == Phase::Terminated).unwrap().key.clone();
    let got: v1::GetPodResourcesResponse = lab.client().await.get(&ended.namespace, &ended.name).await.decode();
    assert_eq!(got.pod_resources.unwrap().name, ended.name);
}

#[tokio::test]
async fn the_rate_limit_is_not_there_before_1_27() {
    let limited = async |profile| {
        let rate = Some(Rate { per_second: 0.001, burst: 2 });
        let lab = Lab::start(|config| (config.profile, config.rate) = (profile, rate)).await;
        let mut client = lab.client().await;
        for _ in 0..5 {
            client.ask(Method::List).await;
        }
        lab.sim.refused()
    };
    assert_eq!(limited(Profile::V1_20).await, 0);
    assert_eq!(limited(Profile::V1_27).await, 3);
}
