//! What of the node nobody has. Whatever is taken from here has its one owner until it is put back.

use std::collections::BTreeSet;

use super::inventory::{Device, Inventory};
use super::node::AllocateError;
use super::pod::{MemoryBlock, Pod};

/// What nobody has.
#[derive(Clone, Debug)]
pub(super) struct Free {
    /// By NUMA node.
    pub(super) cpus: Vec<BTreeSet<u32>>,
    /// Bytes by NUMA node.
    pub(super) memory: Vec<u64>,
    /// Likewise.
    hugepages: Vec<u64>,
    /// By device.
    devices: Vec<bool>,
    claimable: Vec<bool>,
}

// === impl Free ===

impl Free {
    /// A node that nobody uses.
    pub(super) fn all_of(inventory: &Inventory) -> Self {
        let numa_nodes = inventory.cpus.len();
        Self {
            cpus: inventory.cpus.iter().map(|cpus| cpus.iter().copied().collect()).collect(),
            memory: vec![inventory.memory; numa_nodes],
            hugepages: vec![inventory.hugepages; numa_nodes],
            devices: vec![true; inventory.devices.len()],
            claimable: vec![true; inventory.claimable.len()],
        }
    }

    /// Writes what the pod asks for into it. On an error it has a part, which is to be put back.
    pub(super) fn grant(&mut self, pod: &mut Pod, devices: &[Device]) -> Result<(), AllocateError> {
        for (container, request) in pod.containers.iter_mut().zip(&pod.request.containers) {
            for (resource, count) in &request.devices {
                container.devices.extend(self.take_devices(devices, resource, *count)?);
            }
            container.cpus = self.take_cpus(request.cpus)?;
            container.memory.extend(self.take_memory("memory", request.memory)?);
            container.memory.extend(self.take_memory("hugepages-1Gi", request.hugepages)?);
        }
        pod.cpus = self.take_cpus(pod.request.pod_cpus)?;
        pod.memory.extend(self.take_memory("memory", pod.request.pod_memory)?);
        Ok(())
    }

    /// From one NUMA node where one has enough, else from as few as possible.
    fn take_cpus(&mut self, asked: usize) -> Result<Vec<u32>, AllocateError> {
        let free = self.cpus.iter().map(BTreeSet::len).sum();
        if asked > free {
            return Err(AllocateError::Cpus { asked, free });
        }
        let mut taken = Vec::with_capacity(asked);
        while taken.len() < asked {
            let missing = asked - taken.len();
            let fullest = self.cpus.iter_mut().max_by_key(|cpus| cpus.len());
            let Some(cpus) = fullest.filter(|cpus| !cpus.is_empty()) else { break };
            let some: Vec<_> = cpus.iter().copied().take(missing).collect();
            for cpu in &some {
                cpus.remove(cpu);
            }
            taken.extend(some);
        }
        Ok(taken)
    }

    /// From one NUMA node, the one with the most left.
    fn take_memory(&mut self, memory_type: &'static str, asked: u64) -> Result<Option<MemoryBlock>, AllocateError> {
        if asked == 0 {
            return Ok(None);
        }
        let table = if memory_type == "memory" { &mut self.memory } else { &mut self.hugepages };
        match table.iter_mut().enumerate().max_by_key(|(_, free)| **free) {
            Some((numa_node, free)) if *free >= asked => {
                *free -= asked;
                Ok(Some(MemoryBlock { memory_type, size: asked, numa_node }))
            }
            fullest => Err(AllocateError::Memory { memory_type, asked, free: fullest.map_or(0, |(_, free)| *free) }),
        }
    }

    fn take_devices(&mut self, devices: &[Device], resource: &str, asked: usize) -> Result<Vec<usize>, AllocateError> {
        let fits = |i: &usize| self.devices[*i] && devices[*i].healthy && devices[*i].resource == resource;
        let mut free: Vec<_> = (0..devices.len()).filter(fits).collect();
        if asked > free.len() {
            return Err(AllocateError::Devices { resource: resource.to_owned(), asked, free: free.len() });
        }
        free.truncate(asked);
        for i in &free {
            self.devices[*i] = false;
        }
        Ok(free)
    }

    /// Devices for so many claims.
    pub(super) fn take_claimable(&mut self, asked: usize) -> Result<Vec<usize>, AllocateError> {
        let mut free: Vec<_> = (0..self.claimable.len()).filter(|i| self.claimable[*i]).collect();
        if asked > free.len() {
            return Err(AllocateError::Claims { asked, free: free.len() });
        }
        free.truncate(asked);
        for i in &free {
            self.claimable[*i] = false;
        }
        Ok(free)
    }

    /// Frees all that the pod holds; the pod is to forget it, or to go.
    pub(super) fn put_back(&mut self, pod: &Pod, inventory: &Inventory) {
        for cpu in pod.containers.iter().flat_map(|container| &container.cpus).chain(&pod.cpus) {
            if let Some(numa_node) = inventory.numa_node_of(*cpu) {
                self.cpus[numa_node].insert(*cpu);
            }
        }
        for block in pod.containers.iter().flat_map(|container| &container.memory).chain(&pod.memory) {
            let table = if block.memory_type == "memory" { &mut self.memory } else { &mut self.hugepages };
            table[block.numa_node] += block.size;
        }
        for container in &pod.containers {
            for i in &container.devices {
                self.devices[*i] = true;
            }
            for claim in &container.claims {
                self.claimable[claim.device] = true;
            }
        }
    }
}
