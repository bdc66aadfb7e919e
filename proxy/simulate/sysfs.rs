//! Which CPU of the simulated node is on which NUMA node, in files as the kernel has them in sysfs. The podresources API does not tell, so
//! whoever reads it looks there.

use std::fs;
use std::path::Path;

use super::inventory::Inventory;
use super::state_files::{StateFileError, cpu_set};

/// The directory in the kubelet's root directory that stands for `/sys`.
pub const SYSFS: &str = "sys";

/// Writes `devices/system/node/node<N>/cpulist` (Documentation/ABI/stable/sysfs-devices-node).
pub(super) fn write(root: &Path, inventory: &Inventory) -> Result<(), StateFileError> {
    for (numa_node, cpus) in inventory.cpus.iter().enumerate() {
        let folder = root.join(SYSFS).join(format!("devices/system/node/node{numa_node}"));
        // The reserved ones lie before those that are given out.
        let reserved = inventory.reserved.chunks(inventory.reserved.len() / inventory.cpus.len()).nth(numa_node);
        let all = [reserved.unwrap_or_default(), cpus].concat();
        let path = folder.join("cpulist");
        let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&path, format!("{}\n", cpu_set(&all))));
        written.map_err(|source| StateFileError { path, source })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;
    use crate::simulate::Config;

    #[test]
    fn every_cpu_of_the_node_is_in_one_list_as_the_kernel_writes_it() {
        let spec = Config { pods: 20, numa_nodes: 2, ..Config::default() }.node();
        let inventory = Inventory::new(&spec, &mut SmallRng::seed_from_u64(1));
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &inventory).unwrap();
        let list = |node: &str| fs::read_to_string(dir.path().join("sys/devices/system/node").join(node).join("cpulist")).unwrap();
        assert_eq!([list("node0"), list("node1")], ["0-21\n", "22-43\n"]);
    }
}
