//! The kubelet's state files, whose renames tell a watcher that an allocation happened. They look like a kubelet's and are not meant
//! to be read by one: their checksums cover the text, not Go's dump of the structure.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::inventory::Device;
use super::node::Node;
use super::pod::{Container, MemoryBlock, Pod};

/// A state file, or the directory for it, cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}")]
pub struct StateFileError {
    pub(super) path: PathBuf,
    pub(super) source: io::Error,
}

/// The files in a kubelet's root directory.
pub(super) struct StateFiles {
    root: PathBuf,
    /// Makes temporary names unique.
    serial: u64,
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum File {
    Cpus,
    Memory,
    AllocatedPods,
    Devices,
    Claims,
}

// === impl StateFiles ===

impl StateFiles {
    /// Makes the directories where they are missing.
    pub(super) fn create(root: &Path) -> Result<Self, StateFileError> {
        for (folder, mode) in [("device-plugins", 0o750), ("pod-resources", 0o750)] {
            let path = root.join(folder);
            let made = fs::DirBuilder::new().recursive(true).mode(mode).create(&path);
            made.map_err(|source| StateFileError { path, source })?;
        }
        Ok(Self { root: root.to_owned(), serial: 0 })
    }

    /// Puts new content in place by a rename.
    pub(super) fn write(&mut self, file: File, content: &str) -> Result<(), StateFileError> {
        let path = self.root.join(file.name());
        self.serial += 1;
        let temporary = path.with_file_name(format!(".{}", 1_000_000_000 + self.serial));
        let written = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)
            .and_then(|mut open| io::Write::write_all(&mut open, content.as_bytes()))
            .and_then(|()| fs::rename(&temporary, &path));
        written.map_err(|source| {
            // A half-written file is of no use; that it could not be written is what is worth telling.
            drop(fs::remove_file(&temporary));
            StateFileError { path, source }
        })
    }
}

// === impl File ===

impl File {
    pub(super) const ALL: [Self; 5] = [Self::Devices, Self::Cpus, Self::Memory, Self::AllocatedPods, Self::Claims];

    /// Its path below the root directory.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Cpus => "cpu_manager_state",
            Self::Memory => "memory_manager_state",
            Self::AllocatedPods => "allocated_pods_state",
            Self::Devices => "device-plugins/kubelet_internal_checkpoint",
            Self::Claims => "dra_manager_state",
        }
    }

    /// What it says about the node.
    pub(super) fn render(self, node: &Node) -> String {
        let value = match self {
            Self::Cpus => with_checksum(cpus(node)),
            Self::Memory => with_checksum(memory(node)),
            Self::AllocatedPods => {
                let pods = by_pod(node, |container| Some(json!({ "cpus": container.cpus.len() })));
                as_text("data", "checksum", &json!({ "entries": pods }))
            }
            Self::Devices => {
                let data = devices(node);
                let checksum = fnv1a(&data.to_string());
                json!({ "Data": data, "Checksum": checksum })
            }
            Self::Claims => as_text("Data", "Checksum", &claims(node)),
        };
        value.to_string()
    }
}

fn with_checksum(data: Value) -> Value {
    let checksum = fnv1a(&data.to_string());
    match data {
        Value::Object(mut fields) => {
            fields.insert("checksum".to_owned(), checksum.into());
            Value::Object(fields)
        }
        other => other,
    }
}

/// JSON within JSON, as newer state files have it.
fn as_text(data: &str, checksum: &str, content: &Value) -> Value {
    let text = content.to_string();
    let sum = fnv1a(&text);
    Value::Object(Map::from_iter([(data.to_owned(), text.into()), (checksum.to_owned(), sum.into())]))
}

fn cpus(node: &Node) -> Value {
    let entries = by_pod(node, |container| (!container.cpus.is_empty()).then(|| cpu_set(&container.cpus).into()));
    let pods = node.holders().filter(|pod| !pod.cpus.is_empty());
    let pod_entries: Map<_, _> = pods.map(|pod| (pod.uid.clone(), cpu_set(&pod.cpus).into())).collect();
    json!({
        "policyName": "static",
        "defaultCpuSet": cpu_set(&node.shared_pool()),
        "entries": entries,
        "podEntries": pod_entries,
    })
}

fn memory(node: &Node) -> Value {
    let machine: Map<_, _> = (0..node.inventory().cpus.len())
        .map(|numa_node| {
            let (all, free) = (node.inventory().memory, node.free_memory(numa_node));
            let table = json!({ "total": all, "systemReserved": 0, "allocatable": all, "reserved": all - free, "free": free });
            (numa_node.to_string(), json!({ "memoryMap": { "memory": table }, "cells": [numa_node] }))
        })
        .collect();
    let blocks = |blocks: &[MemoryBlock]| -> Value {
        blocks.iter().map(|b| json!({ "numaAffinity": [b.numa_node], "type": b.memory_type, "size": b.size })).collect()
    };
    let entries = by_pod(node, |container| (!container.memory.is_empty()).then(|| blocks(&container.memory)));
    json!({ "policyName": "Static", "machineState": machine, "entries": entries })
}

fn devices(node: &Node) -> Value {
    let inventory = &node.inventory().devices;
    let mut registered: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for device in inventory {
        let healthy = registered.entry(device.resource).or_default();
        if device.healthy {
            healthy.push(&device.id);
        }
    }
    let mut entries = Vec::new();
    for (pod, name, container) in containers(node) {
        let mut held: BTreeMap<&str, Vec<&Device>> = BTreeMap::new();
        for device in container.devices.iter().map(|i| &inventory[*i]) {
            held.entry(device.resource).or_default().push(device);
        }
        entries.extend(held.into_iter().map(|(resource, devices)| {
            json!({
                "PodUID": pod.uid, "ContainerName": name, "ResourceName": resource, "DeviceIDs": by_numa_node(&devices),
                "AllocResp": "",
            })
        }));
    }
    json!({ "PodDeviceEntries": entries, "RegisteredDevices": registered })
}

/// Device ids by NUMA node; -1 stands for no topology.
fn by_numa_node<'a>(devices: &[&'a Device]) -> BTreeMap<String, Vec<&'a str>> {
    let mut ids: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for device in devices {
        if device.numa_nodes.is_empty() {
            ids.entry("-1".to_owned()).or_default().push(&device.id);
        }
        for numa_node in &device.numa_nodes {
            ids.entry(numa_node.to_string()).or_default().push(&device.id);
        }
    }
    ids
}

fn claims(node: &Node) -> Value {
    let list: Vec<_> = containers(node)
        .flat_map(|(pod, _, container)| container.claims.iter().map(move |claim| (pod, claim)))
        .map(|(pod, claim)| {
            let device = &node.inventory().claimable[claim.device];
            json!({ "ClaimName": claim.name, "Namespace": pod.key.namespace, "PodUIDs": { &pod.uid: {} }, "DeviceName": device })
        })
        .collect();
    json!({ "kind": "DRACheckpoint", "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1", "ClaimInfoStateList": list })
}

/// Pod UID → container → what `of` has to say.
fn by_pod(node: &Node, of: impl Fn(&Container) -> Option<Value>) -> Value {
    let mut pods: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for (pod, name, container) in containers(node) {
        if let Some(value) = of(container) {
            pods.entry(&pod.uid).or_default().insert(name.to_owned(), value);
        }
    }
    json!(pods)
}

fn containers(node: &Node) -> impl Iterator<Item = (&Pod, &str, &Container)> {
    node.holders().flat_map(|pod| {
        let named = pod.request.containers.iter().zip(&pod.containers);
        named.map(move |(request, container)| (pod, request.name.as_str(), container))
    })
}

/// A CPU list as the kernel writes it: `0-3,8`.
pub(super) fn cpu_set(cpus: &[u32]) -> String {
    let mut sorted = cpus.to_vec();
    sorted.sort_unstable();
    let ranges = sorted.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        run => run.iter().map(u32::to_string).collect(),
    });
    ranges.collect::<Vec<_>>().join(",")
}

/// FNV-1a, 32 bits, which the kubelet uses for its checksums.
fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_written_as_the_kernel_writes_them() {
        assert_eq!(cpu_set(&[8, 0, 2, 1, 3]), "0-3,8");
        assert_eq!(cpu_set(&[]), "");
    }
}
