//! What the synthetic node has: CPUs, memory and devices, laid out over its NUMA nodes.

use rand::Rng;

use super::node::NodeSpec;

/// Everything that can be given out, and what is reserved.
#[derive(Clone, Debug)]
pub(super) struct Inventory {
    /// CPUs that the kubelet gives out, by NUMA node.
    pub(super) cpus: Vec<Vec<u32>>,
    /// CPUs kept for the system; part of the shared pool.
    pub(super) reserved: Vec<u32>,
    /// Memory that the kubelet gives out, in bytes, on each NUMA node.
    pub(super) memory: u64,
    /// 1 GiB pages on each NUMA node, in bytes.
    pub(super) hugepages: u64,
    /// Devices of plugins.
    pub(super) devices: Vec<Device>,
    /// Devices that claims are made on.
    pub(super) claimable: Vec<String>,
}

/// A device of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) resource: &'static str,
    pub(super) id: String,
    /// The NUMA nodes that it is near to; empty where its plugin reports no topology.
    pub(super) numa_nodes: Vec<usize>,
    pub(super) healthy: bool,
}

pub(super) const GIB: u64 = 1 << 30;

const GPU: &str = "nvidia.com/gpu";
const VF: &str = "intel.com/sriov_netdevice";
const HCA: &str = "rdma/hca_shared_devices";
const FUSE: &str = "github.com/fuse";

/// CPUs for the system on each NUMA node.
const RESERVED_PER_NUMA_NODE: u32 = 2;

// === impl Inventory ===

impl Inventory {
    /// A node big enough for the pods of `spec`: three CPUs that can be exclusive for each two, and 4 GiB for each.
    pub(super) fn new(spec: &NodeSpec, rng: &mut impl Rng) -> Self {
        let numa_nodes = spec.numa_nodes.max(1);
        let per_node =
            u32::try_from((spec.pods + spec.pods / 2 + 8).div_ceil(numa_nodes).next_multiple_of(2)).unwrap_or(u32::MAX >> 8);
        let stride = per_node + RESERVED_PER_NUMA_NODE;
        let (mut cpus, mut reserved, mut first) = (Vec::new(), Vec::new(), 0);
        for _ in 0..numa_nodes {
            reserved.extend(first..first + RESERVED_PER_NUMA_NODE);
            cpus.push((first + RESERVED_PER_NUMA_NODE..first + stride).collect());
            first += stride;
        }
        Self {
            cpus,
            reserved,
            memory: (64 + 4 * spec.pods.div_ceil(numa_nodes) as u64) * GIB,
            hugepages: (16 + spec.pods.div_ceil(numa_nodes) as u64) * GIB,
            devices: (0..spec.devices).map(|i| Device::nth(i, numa_nodes, rng)).collect(),
            claimable: (0..spec.claims).map(|i| format!("gpu-{i}")).collect(),
        }
    }

    /// Where a CPU that can be given out is.
    pub(super) fn numa_node_of(&self, cpu: u32) -> Option<usize> {
        self.cpus.iter().position(|cpus| cpus.binary_search(&cpu).is_ok())
    }
}

// === impl Device ===

impl Device {
    /// Out of eight: four GPUs, three virtual functions, and one without topology or near to all NUMA nodes.
    fn nth(i: usize, numa_nodes: usize, rng: &mut impl Rng) -> Self {
        let numa_node = i % numa_nodes;
        let (resource, id, near) = match i % 8 {
            0..4 => (GPU, format!("GPU-{}", uuid(rng)), vec![numa_node]),
            4..7 => {
                (VF, format!("{:04x}:{:02x}:{:02x}.{}", i >> 13, 0x3b + numa_node, 1 + (i >> 3 & 0xff), i & 7), vec![numa_node])
            }
            _ if i & 8 == 0 => (FUSE, format!("fuse-{}", i >> 4), Vec::new()),
            _ => (HCA, format!("hca-{}", i >> 4), (0..numa_nodes).collect()),
        };
        Self { resource, id, numa_nodes: near, healthy: true }
    }
}

/// A random UUID, version 4.
pub(super) fn uuid(rng: &mut impl Rng) -> String {
    let high: u64 = rng.random();
    let low: u64 = rng.random();
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        low >> 48 & 0x3fff | 0x8000,
        low & 0xffff_ffff_ffff
    )
}
