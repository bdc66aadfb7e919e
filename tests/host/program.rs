//! The program on machines without a kubelet.

use std::fs;

use podresources_proxy::proto::v1;
use prost::Message as _;

use crate::harness::{Place, eventually, of_pod};

const LIST: &str = "v1.PodResourcesLister/List";
const ALLOCATABLE: &str = "v1.PodResourcesLister/GetAllocatableResources";
const GET: &str = "v1.PodResourcesLister/Get";
const ALPHA_LIST: &str = "v1alpha1.PodResourcesLister/List";

/// The CPUs of this machine that are online.
fn online() -> Vec<i64> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    podresources_proxy::cpuset::CpuSet::parse(&text).unwrap().iter().map(i64::from).collect()
}
