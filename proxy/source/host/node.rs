//! The machine: CPUs, memory nodes, memory and huge pages, from sysfs. Blocks.

use std::path::{Path, PathBuf};

use super::cdi::CdiDevice;
use super::cgroup::{ReadError, read};
use super::settings::Settings;
use super::skip::{Skipped, Why};
use crate::cpuset::CpuSet;

/// The machine as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// CPUs that are online.
    pub online: CpuSet,
    /// CPUs that the scheduler leaves alone (`isolcpus`). The kubelet gives them out like any other, so they are told, not taken out.
    pub isolated: CpuSet,
    /// NUMA nodes, by number.
    pub numa: Vec<NumaNode>,
    /// Devices with a name of their own.
    pub devices: Vec<CdiDevice>,
    /// What the kubelet's settings say.
    pub settings: Settings,
    /// What was passed over.
    pub skipped: Skipped,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaNode {
    /// Its number.
    pub id: u32,
    /// Its CPUs that are online.
    pub cpus: CpuSet,
    /// All of its memory in bytes, huge pages included.
    pub memory: u64,
    /// Size in KiB and count of its huge pages.
    pub hugepages: Vec<(u64, u64)>,
}

/// Why the machine's CPUs are not known.
#[derive(Debug, thiserror::Error)]
#[error("cannot read which CPUs are online from {}: {why}; is sysfs mounted there?", .path.display())]
pub struct NoCpus {
    path: PathBuf,
    why: String,
}

// === impl Node ===

impl Node {
    /// Reads CPUs and memory below `/sys` and `/proc`; devices and settings are the caller's to add.
    pub fn read(sys: &Path, proc: &Path) -> Result<Self, NoCpus> {
        let cpu = sys.join("devices/system/cpu");
        let online = cpu.join("online");
        let no_cpus = |why: ReadError| NoCpus { path: online.clone(), why: why.to_string() };
        let mut node = Self { online: set(&online).map_err(no_cpus)?, ..Self::default() };
        // Kernels without isolation have no such file.
        node.isolated = set(&cpu.join("isolated")).unwrap_or_default();
        node.read_numa(&sys.join("devices/system/node"));
        if node.numa.is_empty() {
            node.without_numa(sys, proc);
        }
        Ok(node)
    }

    fn read_numa(&mut self, dir: &Path) {
        let ids = match set(&dir.join("online")) {
            Ok(ids) => ids,
            // A kernel without NUMA.
            Err(ReadError::Vanished) => return,
            Err(error) => return self.skipped.add(Why::BadNode, dir.join("online").display().to_string(), error),
        };
        for id in ids.iter() {
            let dir = dir.join(format!("node{id}"));
            let cpus = set(&dir.join("cpulist")).unwrap_or_else(|error| {
                self.skipped.add(Why::BadNode, dir.join("cpulist").display().to_string(), error);
                CpuSet::new()
            });
            let memory = self.memory(&dir.join("meminfo"));
            let hugepages = hugepages(&dir.join("hugepages"));
            self.numa.push(NumaNode { id, cpus: self.online_of(&cpus), memory, hugepages });
        }
    }

    /// All in one node, as the kubelet has it then (cAdvisor).
    fn without_numa(&mut self, sys: &Path, proc: &Path) {
        let memory = self.memory(&proc.join("meminfo"));
        let hugepages = hugepages(&sys.join("kernel/mm/hugepages"));
        self.numa = vec![NumaNode { id: 0, cpus: self.online.clone(), memory, hugepages }];
    }

    fn memory(&mut self, meminfo: &Path) -> u64 {
        let text = read(meminfo).unwrap_or_default();
        // `Node 0 MemTotal:  4026532 kB`, or the same without the node.
        let total = text.lines().find_map(|line| {
            let (_, amount) = line.split_once("MemTotal:")?;
            amount.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
        });
        total.unwrap_or_else(|| {
            self.skipped.add(Why::BadNode, meminfo.display().to_string(), "it has no MemTotal in kB");
            0
        })
    }

    fn online_of(&self, cpus: &CpuSet) -> CpuSet {
        cpus.iter().filter(|cpu| self.online.contains(*cpu)).collect()
    }

    /// Sizes of huge pages, in KiB.
    #[must_use]
    pub fn page_sizes(&self) -> Vec<u64> {
        let mut sizes: Vec<u64> = self.numa.iter().flat_map(|node| node.hugepages.iter().map(|(size, _)| *size)).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}

fn set(path: &Path) -> Result<CpuSet, ReadError> {
    Ok(CpuSet::parse(&read(path)?)?)
}

/// Size in KiB and count: `hugepages-2048kB/nr_hugepages`.
fn hugepages(dir: &Path) -> Vec<(u64, u64)> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let pool = |entry: std::fs::DirEntry| {
        let name = entry.file_name();
        let size = name.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let count = read(&entry.path().join("nr_hugepages")).ok()?.trim().parse().ok()?;
        Some((size, count))
    };
    let mut pools: Vec<(u64, u64)> = entries.filter_map(pool).collect();
    pools.sort_unstable();
    pools
}

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
