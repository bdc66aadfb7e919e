//! Types and clients generated from `proto/`.
#![allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    let_underscore_drop,
    clippy::pedantic,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]

/// `v1`, the API as of Kubernetes 1.37.
pub mod v1 {
    tonic::include_proto!("v1");
}

/// `v1alpha1`, the API of Kubernetes 1.13, still served today; also the Pods API, whose package has the same name.
pub mod v1alpha1 {
    tonic::include_proto!("v1alpha1");
}

/// The descriptors of everything here, as an encoded `google.protobuf.FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/podresources.binpb"));
