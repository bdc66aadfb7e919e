//! What clients are answered from: the kubelet's replies as the exact bytes they came in, framed once, indexed by pod, with a digest
//! of their content. It reads no clock and does no I/O; the only chance in it is the seed of an index's hash.
//!
//! Nothing is decoded into types and encoded again here: a field that a later Kubernetes adds goes out as it came.

mod digest;
mod framed;
mod pod_list;
mod schema;
mod wire;

pub use pod_list::{Lookup, MAX_PODS, PodList, PodName, PodRef};
pub use wire::Malformed;
