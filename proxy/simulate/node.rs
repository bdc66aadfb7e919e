//! The synthetic node: who holds which CPU, device, memory and claim. Pure: no I/O, no clock; all dice come from its seed.
//!
//! A pod goes `admit` → `allocate` → `prepare`, and then `remove` → `release`, as in a kubelet; nothing ever has two owners.

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::free::Free;
use super::inventory::{Inventory, uuid};
use super::pod::{Claim, Container, Phase, Pod, PodKey, PodRequest};
use super::workload::{Workload, finished_job, suffix};

/// What a node is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    /// Active pods.
    pub pods: usize,
    /// Ended pods that the kubelet knows still.
    pub terminated: usize,
    /// Devices of device plugins.
    pub devices: usize,
    /// Devices that resource claims are made on.
    pub claims: usize,
    /// NUMA nodes, at least one.
    pub numa_nodes: usize,
    /// Some pods hold CPUs and memory as a whole.
    pub pod_level: bool,
    /// The same seed makes the same node.
    pub seed: u64,
}

/// A pod cannot come, or cannot have what it asks for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocateError {
    /// There is a pod of this namespace and name.
    #[error("pod {0} is on the node already")]
    Exists(PodKey),
    /// There is none.
    #[error("pod {0} is not on the node")]
    UnknownPod(PodKey),
    /// It was given its resources before, or has ended.
    #[error("pod {0} is past that step")]
    OutOfOrder(PodKey),
    /// Too few exclusive CPUs are left.
    #[error("{asked} CPUs asked for, {free} are free")]
    Cpus {
        /// CPUs asked for.
        asked: usize,
        /// CPUs that nobody has.
        free: usize,
    },
    /// Too few healthy devices are left.
    #[error("{asked} devices of {resource:?} asked for, {free} are free")]
    Devices {
        /// The resource's name.
        resource: String,
        /// Devices asked for.
        asked: usize,
        /// Healthy devices that nobody has.
        free: usize,
    },
    /// Too little memory is left.
    #[error("{asked} bytes of {memory_type} asked for, {free} are free")]
    Memory {
        /// `memory` or `hugepages-1Gi`.
        memory_type: &'static str,
        /// Bytes asked for.
        asked: u64,
        /// Bytes that nobody has.
        free: u64,
    },
    /// Too few devices for claims are left.
    #[error("{asked} claims asked for, {free} devices are free")]
    Claims {
        /// Claims asked for.
        asked: usize,
        /// Devices that no claim is on.
        free: usize,
    },
}

/// A node and its pods.
#[derive(Clone, Debug)]
pub struct Node {
    inventory: Inventory,
    free: Free,
    pods: BTreeMap<PodKey, Pod>,
    /// Gone from every answer; their resources are not let go of yet.
    leaving: Vec<Pod>,
    workload: Workload,
    rng: SmallRng,
}

// === impl Node ===

impl Node {
    /// The node that `spec` describes, all of its pods running.
    pub fn new(spec: &NodeSpec) -> Self {
        let mut node = Self::empty(spec);
        for _ in 0..spec.pods {
            let key = node.admit_next();
            node.settle(&key);
        }
        for _ in 0..spec.terminated {
            let request = loop {
                let request = finished_job(&mut node.rng);
                if !node.pods.contains_key(&request.key) {
                    break request;
                }
            };
            node.insert(request, Phase::Terminated);
        }
        node
    }

    /// The same node without pods.
    pub fn empty(spec: &NodeSpec) -> Self {
        let mut rng = SmallRng::seed_from_u64(spec.seed);
        let inventory = Inventory::new(spec, &mut rng);
        let resources = inventory.devices.iter().map(|device| device.resource).collect();
        Self {
            free: Free::all_of(&inventory),
            workload: Workload::new(spec, resources),
            inventory,
            pods: BTreeMap::new(),
            leaving: Vec::new(),
            rng,
        }
    }

    /// Lists a pod; it holds nothing yet.
    pub fn admit(&mut self, request: PodRequest) -> Result<(), AllocateError> {
        if self.pods.contains_key(&request.key) {
            return Err(AllocateError::Exists(request.key));
        }
        self.insert(request, Phase::Admitted);
        Ok(())
    }

    /// Lists an invented pod whose name is not taken, and tells its name.
    pub fn admit_next(&mut self) -> PodKey {
        loop {
            let request = self.workload.next(&mut self.rng);
            if !self.pods.contains_key(&request.key) {
                let key = request.key.clone();
                self.insert(request, Phase::Admitted);
                return key;
            }
        }
    }

    /// Gives an admitted pod its CPUs, memory and plugin devices: all of them or none.
    pub fn allocate(&mut self, key: &PodKey) -> Result<(), AllocateError> {
        let pod = self.pods.get_mut(key).ok_or_else(|| AllocateError::UnknownPod(key.clone()))?;
        if pod.phase != Phase::Admitted {
            return Err(AllocateError::OutOfOrder(key.clone()));
        }
        let granted = self.free.grant(pod, &self.inventory.devices);
        if granted.is_err() {
            self.free.put_back(pod, &self.inventory);
            pod.drop_resources();
            return granted;
        }
        pod.phase = Phase::Allocated;
        Ok(())
    }

    /// Prepares the claims of a pod that has been allocated.
    pub fn prepare(&mut self, key: &PodKey) -> Result<(), AllocateError> {
        let pod = self.pods.get_mut(key).ok_or_else(|| AllocateError::UnknownPod(key.clone()))?;
        if pod.phase != Phase::Allocated {
            return Err(AllocateError::OutOfOrder(key.clone()));
        }
        let asked = pod.request.containers.iter().map(|container| container.claims).sum();
        let mut devices = self.free.take_claimable(asked)?.into_iter();
        for (container, request) in pod.containers.iter_mut().zip(&pod.request.containers) {
            for device in devices.by_ref().take(request.claims) {
                let name = format!("{}-gpu-{}", pod.key.name, suffix(5, &mut self.rng));
                let share_id = (device % 4 == 3).then(|| uuid(&mut self.rng));
                container.claims.push(Claim { name, device, share_id });
            }
        }
        pod.phase = Phase::Prepared;
        Ok(())
    }

    /// Takes a pod out of every answer, and tells its UID. What it holds stays held until [`Node::release`].
    pub fn remove(&mut self, key: &PodKey) -> Result<String, AllocateError> {
        let pod = self.pods.remove(key).ok_or_else(|| AllocateError::UnknownPod(key.clone()))?;
        let uid = pod.uid.clone();
        self.leaving.push(pod);
        Ok(uid)
    }

    /// Lets go of what the removed pod of this UID held.
    pub fn release(&mut self, uid: &str) {
        for pod in self.leaving.extract_if(.., |pod| pod.uid == uid) {
            self.free.put_back(&pod, &self.inventory);
        }
    }

    /// Ends a pod: it holds nothing any more, and stays known.
    pub fn terminate(&mut self, key: &PodKey) -> Result<(), AllocateError> {
        let pod = self.pods.get_mut(key).ok_or_else(|| AllocateError::UnknownPod(key.clone()))?;
        self.free.put_back(pod, &self.inventory);
        pod.drop_resources();
        pod.phase = Phase::Terminated;
        Ok(())
    }

    /// Marks every device of this id; whether there is one. A sick device stays with the pod that has it.
    pub fn set_device_health(&mut self, id: &str, healthy: bool) -> bool {
        let mut found = false;
        for device in self.inventory.devices.iter_mut().filter(|device| device.id == id) {
            device.healthy = healthy;
            found = true;
        }
        found
    }

    /// All pods, in the order of their keys.
    pub fn pods(&self) -> impl ExactSizeIterator<Item = &Pod> {
        self.pods.values()
    }

    /// The pod of this key.
    pub fn pod(&self, key: &PodKey) -> Option<&Pod> {
        self.pods.get(key)
    }

    /// Some pod that has all it asked for.
    pub fn some_running_pod(&mut self) -> Option<PodKey> {
        let running: Vec<_> = self.pods.values().filter(|pod| pod.phase == Phase::Prepared).collect();
        (!running.is_empty()).then(|| running[self.rng.random_range(0..running.len())].key.clone())
    }

    /// Resource name, id and health of each device.
    pub fn devices(&self) -> impl Iterator<Item = (&str, &str, bool)> {
        self.inventory.devices.iter().map(|device| (device.resource, device.id.as_str(), device.healthy))
    }

    /// CPUs that no pod has alone, the reserved ones among them.
    pub fn shared_pool(&self) -> Vec<u32> {
        let mut cpus = self.inventory.reserved.clone();
        cpus.extend(self.free.cpus.iter().flatten());
        cpus.sort_unstable();
        cpus
    }

    pub(super) fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// Pods that hold resources, whether an answer shows them or not.
    pub(super) fn holders(&self) -> impl Iterator<Item = &Pod> {
        self.pods.values().chain(&self.leaving)
    }

    /// Free bytes of memory on a NUMA node.
    pub(super) fn free_memory(&self, numa_node: usize) -> u64 {
        self.free.memory[numa_node]
    }

    /// Allocates and prepares an admitted pod at once; where the node is full, it makes do with the shared pool.
    fn settle(&mut self, key: &PodKey) {
        if self.allocate(key).and_then(|()| self.prepare(key)).is_err() {
            self.make_do(key);
        }
    }

    /// Forgets a pod that could not have what it wanted.
    pub(super) fn turn_away(&mut self, key: &PodKey) {
        if let Some(pod) = self.pods.remove(key) {
            self.free.put_back(&pod, &self.inventory);
        }
    }

    /// [`Node::prepare`], unless the pod is there already because it made do.
    pub(super) fn finish(&mut self, key: &PodKey) -> Result<(), AllocateError> {
        match self.pods.get(key) {
            Some(pod) if pod.phase == Phase::Prepared => Ok(()),
            _ => self.prepare(key),
        }
    }

    /// Leaves a pod that could not have what it wanted with nothing, running in the shared pool.
    pub(super) fn make_do(&mut self, key: &PodKey) {
        if let Some(mut pod) = self.pods.remove(key) {
            self.free.put_back(&pod, &self.inventory);
            pod.request = pod.request.without_resources();
            self.insert(pod.request, Phase::Prepared);
        }
    }

    fn insert(&mut self, request: PodRequest, phase: Phase) {
        let pod = Pod {
            key: request.key.clone(),
            uid: uuid(&mut self.rng),
            phase,
            containers: vec![Container::default(); request.containers.len()],
            request,
            cpus: Vec::new(),
            memory: Vec::new(),
        };
        self.pods.insert(pod.key.clone(), pod);
    }
}
