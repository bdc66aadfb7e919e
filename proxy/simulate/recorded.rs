//! Replies recorded from a real kubelet: read from a file, and looked up by pod without changing a byte.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint};

use super::pod::PodKey;
use crate::proto::{v1, v1alpha1};

/// A recorded reply cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordedError {
    /// The file cannot be read.
    #[error("cannot read the recorded reply {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is neither the bytes of a List reply nor their hex.
    #[error("{path} holds no List reply: give the message without its gRPC prefix, as bytes or as hex")]
    NotAList {
        /// The file.
        path: PathBuf,
        /// Why.
        source: prost::DecodeError,
    },
}

/// The List reply in `path`, as bytes or as hex text with any white space.
pub(super) fn load(path: &Path) -> Result<Bytes, RecordedError> {
    let content = std::fs::read(path).map_err(|source| RecordedError::Read { path: path.to_owned(), source })?;
    let reply = Bytes::from(from_hex(&content).unwrap_or(content));
    match v1::ListPodResourcesResponse::decode(reply.clone()) {
        Ok(_) => Ok(reply),
        Err(source) => Err(RecordedError::NotAList { path: path.to_owned(), source }),
    }
}

/// The bytes, if this is hex and nothing else. No List reply is: it begins with 0x0a, and `\n` alone is white space.
fn from_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text
        .iter()
        .filter(|byte| !byte.is_ascii_whitespace())
        .map(|byte| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// The answer to a Get, out of a List reply: the same tag, so the same bytes.
pub(super) fn get(list: &Bytes, key: &PodKey) -> Option<Bytes> {
    let mut rest = list.clone();
    while !rest.is_empty() {
        let field = rest.clone();
        let (tag, wire_type) = decode_key(&mut rest).ok()?;
        if wire_type != WireType::LengthDelimited {
            return None;
        }
        let len = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
        if len > rest.len() {
            return None;
        }
        let pod = rest.split_to(len);
        let found =
            tag == 1 && v1::PodResources::decode(pod).is_ok_and(|pod| pod.name == key.name && pod.namespace == key.namespace);
        if found {
            return Some(field.slice(..field.len() - rest.len()));
        }
    }
    None
}

/// What a node with these pods must at least be able to give.
pub(super) fn allocatable(list: &Bytes) -> v1::AllocatableResourcesResponse {
    let mut sum = v1::AllocatableResourcesResponse::default();
    for pod in v1::ListPodResourcesResponse::decode(list.clone()).unwrap_or_default().pod_resources {
        sum.cpu_ids.extend(pod.cpu_ids);
        for container in pod.containers {
            sum.cpu_ids.extend(container.cpu_ids);
            sum.devices.extend(container.devices);
        }
    }
    sum.cpu_ids.sort_unstable();
    sum.cpu_ids.dedup();
    sum
}

/// The same pods in the words of `v1alpha1`.
pub(super) fn alpha_list(list: &Bytes) -> v1alpha1::ListPodResourcesResponse {
    let pods = v1::ListPodResourcesResponse::decode(list.clone()).unwrap_or_default().pod_resources.into_iter().map(|pod| {
        let containers = pod.containers.into_iter().map(|container| v1alpha1::ContainerResources {
            name: container.name,
            devices: container
                .devices
                .into_iter()
                .map(|device| v1alpha1::ContainerDevices { resource_name: device.resource_name, device_ids: device.device_ids })
                .collect(),
        });
        v1alpha1::PodResources { name: pod.name, namespace: pod.namespace, containers: containers.collect() }
    });
    v1alpha1::ListPodResourcesResponse { pod_resources: pods.collect() }
}
