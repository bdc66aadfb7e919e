//! What clients are answered from: the kubelet's replies as the exact bytes they came in, framed once, indexed by pod, with a digest
//! of their content. It reads no clock and does no I/O; the only chance in it is the seed of an index's hash.
//!
//! Nothing is decoded into types and encoded again here: a field that a later Kubernetes adds goes out as it came.

mod allocatable;
mod digest;
mod framed;
mod merge;
mod pod_list;
mod resources;
mod schema;
mod wire;

pub use allocatable::Allocatable;
pub use merge::{Conflict, LostDevice, MAX_HOLDINGS, Merged, MergedAllocatable, merge, merge_allocatable};
pub use pod_list::{Lookup, MAX_PODS, PodList, PodName, PodRef};
pub use resources::PluginDevice;
pub use wire::Malformed;

#[cfg(test)]
mod tests;
