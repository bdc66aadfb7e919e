//! What is kept from pods: by a flag, or by the kubelet's own configuration file where it can be read.
//!
//! The file alone is read: neither the kubelet's flags nor its drop-in directory. A flag of ours wins over it.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::Deserialize;

use super::quantity;
use super::skip::{Skipped, Why};
use crate::cpuset::CpuSet;

/// The longest configuration file that is read, in bytes.
const LONGEST: u64 = 1 << 20;

/// What pods can be given, and what not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Which CPUs can be given out.
    pub cpus: Cpus,
    /// Which memory can be given out.
    pub memory: Memory,
    /// CPUs that are in the shared pool at all times; `None` where that is not known.
    pub always_shared: Option<CpuSet>,
}

/// Which CPUs can be given out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cpus {
    /// All that are online, save these.
    AllBut(CpuSet),
    /// None, or it is not known which: the text says why and what to do.
    None(&'static str),
}

/// Which memory can be given out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Memory {
    /// All, save so much of a node's memory of a type, in bytes.
    AllBut(BTreeMap<(u32, String), u64>),
    /// None, by the text's reason.
    None(&'static str),
}

/// The parts of a `KubeletConfiguration` (`kubelet.config.k8s.io/v1beta1`) that matter here.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct KubeletConfiguration {
    cpu_manager_policy: Option<String>,
    cpu_manager_policy_options: BTreeMap<String, String>,
    memory_manager_policy: Option<String>,
    #[serde(rename = "reservedSystemCPUs")]
    reserved_system_cpus: Option<String>,
    system_reserved: BTreeMap<String, Amount>,
    kube_reserved: BTreeMap<String, Amount>,
    reserved_memory: Vec<ReservedMemory>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReservedMemory {
    numa_node: u32,
    limits: BTreeMap<String, Amount>,
}

/// An amount is a string or a number in YAML.
#[derive(Deserialize)]
#[serde(untagged)]
enum Amount {
    Number(u64),
    Text(String),
}

// === impl Settings ===

impl Settings {
    /// Goes by the flag and by the file, where there is one. What is wrong with the file is noted.
    pub(super) fn read(file: &Path, reserved: Option<&CpuSet>, skipped: &mut Skipped) -> Self {
        let mut settings = match read(file) {
            Ok(Some(text)) => match serde_norway::from_str(&text) {
                Ok(config) => Self::of(&config, file, skipped),
                Err(error) => {
                    skipped.add(Why::BadNode, file.display().to_string(), error);
                    Self::unreadable()
                }
            },
            // No kubelet, or one that has no file: nothing is kept from anybody.
            Ok(None) => Self::default(),
            Err(error) => {
                skipped.add(Why::BadNode, file.display().to_string(), error);
                Self::unreadable()
            }
        };
        if let Some(reserved) = reserved {
            settings.cpus = Cpus::AllBut(reserved.clone());
            settings.always_shared = Some(reserved.clone()).filter(|reserved| !reserved.is_empty());
        }
        settings
    }

    const fn unreadable() -> Self {
        const WHY: &str = "the kubelet's configuration file cannot be read; --reserved-cpus tells what is kept from pods";
        Self { cpus: Cpus::None(WHY), memory: Memory::None(WHY), always_shared: None }
    }

    fn of(config: &KubeletConfiguration, file: &Path, skipped: &mut Skipped) -> Self {
        let mut bad = |key: &str, text: &str| skipped.add(Why::BadNode, file.display().to_string(), format!("{key}: {text:?}"));
        let amount = |amounts: &BTreeMap<String, Amount>| amounts.get("cpu").is_some_and(|cpu| cpu.value() != Some(0));
        let listed = config.reserved_system_cpus.as_deref().filter(|list| !list.trim().is_empty());
        let cpus = match (config.cpu_manager_policy.as_deref(), listed) {
            (Some("static"), Some(list)) => CpuSet::parse(list).map_or_else(
                |_| {
                    bad("reservedSystemCPUs", list);
                    Cpus::None("the kubelet's reservedSystemCPUs are no list; --reserved-cpus tells which they are")
                },
                Cpus::AllBut,
            ),
            // The kubelet chooses so many by topology; which ones, it tells nobody.
            (Some("static"), None) if amount(&config.system_reserved) || amount(&config.kube_reserved) => Cpus::None(
                "the kubelet reserves an amount of CPU (systemReserved, kubeReserved) and does not say which; --reserved-cpus tells",
            ),
            (Some("static"), None) => Cpus::AllBut(CpuSet::new()),
            _ => Cpus::None(
                "the kubelet's CPU manager policy is none: no CPU can be had alone; --reserved-cpus tells them all the same",
            ),
        };
        let strict = config.cpu_manager_policy_options.get("strict-cpu-reservation").is_some_and(|value| value == "true");
        let always_shared = match &cpus {
            Cpus::AllBut(reserved) if !strict && !reserved.is_empty() => Some(reserved.clone()),
            Cpus::AllBut(_) | Cpus::None(_) => None,
        };
        let memory = if config.memory_manager_policy.as_deref() == Some("Static") {
            let mut kept = BTreeMap::new();
            for ReservedMemory { numa_node, limits } in &config.reserved_memory {
                for (kind, limit) in limits {
                    match limit.value() {
                        Some(bytes) => drop(kept.insert((*numa_node, kind.clone()), bytes)),
                        None => bad("reservedMemory", kind),
                    }
                }
            }
            Memory::AllBut(kept)
        } else {
            Memory::None("the kubelet's memory manager policy is none: it gives out no memory of a node")
        };
        Self { cpus, memory, always_shared }
    }
}

impl Default for Cpus {
    fn default() -> Self {
        Self::AllBut(CpuSet::new())
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::AllBut(BTreeMap::new())
    }
}

// === impl Amount ===

impl Amount {
    fn value(&self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(text) => quantity::parse(text),
        }
    }
}

/// What a kubelet's configuration file of this text means, and how much of it is wrong. For [`crate::fuzzing`].
#[cfg(feature = "fuzzing")]
pub fn kubelet_settings(text: &str) -> Result<(Settings, u64), String> {
    let mut skipped = Skipped::default();
    let config = serde_norway::from_str(text).map_err(|error| error.to_string())?;
    let settings = Settings::of(&config, Path::new("config.yaml"), &mut skipped);
    Ok((settings, skipped.count(Why::BadNode)))
}

/// The whole file; `None` where there is none.
fn read(file: &Path) -> io::Result<Option<String>> {
    use std::io::Read as _;

    let mut text = String::new();
    match std::fs::File::open(file) {
        Ok(file) => file.take(LONGEST + 1).read_to_string(&mut text)?,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(None),
        Err(error) => return Err(error),
    };
    if text.len() as u64 > LONGEST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is longer than {LONGEST} bytes")));
    }
    Ok(Some(text))
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
