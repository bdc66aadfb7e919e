//! What is published after a kubelet restart: the new reply, and the pods that the kubelet has not found again yet.
//!
//! Right after a restart a kubelet lists nobody, then some pods, and its plugins' devices come last, while all their containers run
//! on. So a pod that the new reply lacks keeps its old bytes for as long as the caller says, unless something it holds shows up
//! under another pod: **never two owners of one device**.
//!
//! Within one reply things may well be shared (a DRA claim of two pods); only old against new matters:
//!
//! - What one old pod held alone must not be held by anybody in the new reply.
//! - A device that several old pods held together may stay with any of them. Where it is now held by new holders only, it was given
//!   away, and a pod kept would be a second owner.
//! - A CPU that several pods list is evidently not exclusive: kubelets up to 1.20 list the shared pool under every pod. Such a
//!   listing claims nothing, on either side. Only where exactly one pod holds that CPU now, and did not hold it before, it has become
//!   exclusive. A CPU that was exclusive and has gone back to the shared pool is no longer its old owner's: that is a conflict.
//!
//! In doubt the pod goes: a pod missing for a moment can be asked for again, a device given away twice cannot.

use foldhash::{HashMap, HashMapExt as _, HashSet, HashSetExt as _};

use super::allocatable::Allocatable;
use super::pod_list::{PodList, PodName, PodRef};
use super::resources::{Holding, PluginDevice, each_device, each_holding};
use super::wire::{Fields, Malformed, Value};

/// The most CPUs and devices that are compared, over both replies: a bound for broken bytes.
pub const MAX_HOLDINGS: usize = 1 << 20;

/// A List reply after a restart.
#[derive(Debug)]
pub struct Merged {
    /// The new reply, byte for byte, and behind it the records of the pods that were kept.
    pub list: PodList,
    /// Pods that the new reply lacks and `list` has.
    pub kept: Vec<PodName>,
    /// Pods that would have been kept, were it not for what they held.
    pub conflicts: Vec<Conflict>,
}

/// A pod that was not kept because something it held has a new owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The pod.
    pub pod: PodName,
    /// What it held, for people: "CPU 3", "device dev-1 of example.com/gpu".
    pub over: String,
}

/// A `GetAllocatableResources` reply after a restart.
#[derive(Debug)]
pub struct MergedAllocatable {
    /// The new reply, byte for byte, and behind it the devices that were kept.
    pub allocatable: Allocatable,
    /// How many devices were kept.
    pub kept: usize,
}

/// A device that the new reply lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostDevice<'a> {
    /// The device.
    pub device: PluginDevice<'a>,
    /// The new reply has other devices of this resource. A plugin tells all its devices at once, so this one is then gone or ill, and
    /// not just late.
    pub resource_is_back: bool,
}

/// How many pods hold a thing.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    old: u32,
    new: u32,
    /// A pod that holds it now held it before.
    carried: bool,
}

/// Who holds what, in both replies.
struct Tallies<'a>(HashMap<Holding<'a>, Tally>);

/// Merges the last good reply into the one that came after a restart. `keep` is asked once for each pod that the new reply lacks:
/// whether its processes live, or how long ago the restart was. Where nothing is kept, `new` comes back as it is.
pub fn merge(old: &PodList, new: PodList, mut keep: impl FnMut(&PodRef<'_>) -> bool) -> Result<Merged, Malformed> {
    let lost = old.pods().filter(|pod| new.place(pod.namespace, pod.name).is_none());
    let wanted: Vec<_> = lost.filter(|pod| keep(pod)).collect();
    let mut conflicts = Vec::new();
    let mut kept = Vec::new();
    if wanted.is_empty() {
        return Ok(Merged { list: new, kept, conflicts });
    }
    let tallies = Tallies::of(old, &new)?;
    let mut message = new.message().to_vec();
    for pod in wanted {
        if let Some(holding) = tallies.conflict(&pod)? {
            conflicts.push(Conflict { pod: pod.to_name(), over: holding.to_string() });
        } else {
            message.extend_from_slice(pod.record);
            kept.push(pod.to_name());
        }
    }
    let list = if kept.is_empty() { new } else { PodList::build(&message)? };
    Ok(Merged { list, kept, conflicts })
}

/// The same for allocatable devices: `keep` is asked once for each that the new reply lacks. CPUs and memory are always the new
/// reply's. Of a record with several devices only the kept ones' ids remain; all else in it stays as it was.
pub fn merge_allocatable(
    old: &Allocatable,
    new: Allocatable,
    mut keep: impl FnMut(&LostDevice<'_>) -> bool,
) -> Result<MergedAllocatable, Malformed> {
    let mut present = HashSet::new();
    let mut resources = HashSet::new();
    for (_, devices) in new.device_records() {
        each_device(&devices, |device| {
            present.insert(device);
            resources.insert(device.resource);
        })?;
    }
    // The same device may have a record for each NUMA node: one answer for all of them.
    let mut answers = HashMap::new();
    let mut message = new.message().to_vec();
    for (record, devices) in old.device_records() {
        let (mut any, mut all) = (false, true);
        each_device(&devices, |device| {
            let stays = *answers.entry(device).or_insert_with(|| {
                let resource_is_back = resources.contains(device.resource);
                !present.contains(&device) && keep(&LostDevice { device, resource_is_back })
            });
            any |= stays;
            all &= stays;
        })?;
        match (any, all) {
            (false, _) => {}
            (true, true) => message.extend_from_slice(record),
            (true, false) => push_part(&mut message, &devices, &answers)?,
        }
    }
    let kept = answers.values().filter(|stays| **stays).count();
    drop((answers, present, resources));
    let allocatable = if kept == 0 { new } else { Allocatable::build(&message)? };
    Ok(MergedAllocatable { allocatable, kept })
}

/// Appends a `ContainerDevices` without the ids that do not stay.
fn push_part(message: &mut Vec<u8>, devices: &Fields<'_>, answers: &HashMap<PluginDevice<'_>, bool>) -> Result<(), Malformed> {
    let mut ids = Vec::new();
    each_device(devices, |device| ids.push(answers.get(&device).copied().unwrap_or_default()))?;
    let mut ids = ids.into_iter();
    let mut body = Vec::new();
    let mut fields = devices.clone();
    while let Some(field) = fields.next()? {
        let is_id = matches!(field.value, Value::Bytes(_)) && field.number == 2;
        if !is_id || ids.next().unwrap_or_default() {
            body.extend_from_slice(field.record);
        }
    }
    prost::encoding::encode_key(1, prost::encoding::WireType::LengthDelimited, message);
    prost::encoding::encode_varint(body.len() as u64, message);
    message.extend_from_slice(&body);
    Ok(())
}

// === impl Tallies ===

impl<'a> Tallies<'a> {
    fn of(old: &'a PodList, new: &'a PodList) -> Result<Self, Malformed> {
        let mut tallies: HashMap<Holding<'a>, Tally> = HashMap::new();
        // By the pod's place in the old reply. Of pods with one name the first stands for all: the new one may be any of them.
        let mut held: HashSet<(usize, Holding<'a>)> = HashSet::new();
        let mut holdings = HashSet::new();
        for pod in old.pods() {
            let place = old.place(pod.namespace, pod.name).unwrap_or_default();
            distinct(&pod, &mut holdings)?;
            for holding in holdings.drain() {
                tallies.entry(holding).or_default().old += 1;
                held.insert((place, holding));
            }
            bounded(held.len())?;
        }
        for pod in new.pods() {
            let before = old.place(pod.namespace, pod.name);
            distinct(&pod, &mut holdings)?;
            for holding in holdings.drain() {
                let tally = tallies.entry(holding).or_default();
                tally.new += 1;
                tally.carried |= before.is_some_and(|place| held.contains(&(place, holding)));
            }
            bounded(tallies.len())?;
        }
        Ok(Self(tallies))
    }

    /// What of this pod, which only the old reply has, is somebody else's now.
    fn conflict(&self, pod: &PodRef<'a>) -> Result<Option<Holding<'a>>, Malformed> {
        let mut first = None;
        each_holding(pod.record, |holding| {
            if first.is_none() && self.0.get(&holding).is_some_and(|tally| tally.conflicts(&holding)) {
                first = Some(holding);
            }
        })?;
        Ok(first)
    }
}

fn distinct<'a>(pod: &PodRef<'a>, into: &mut HashSet<Holding<'a>>) -> Result<(), Malformed> {
    each_holding(pod.record, |holding| {
        if into.len() <= MAX_HOLDINGS {
            into.insert(holding);
        }
    })?;
    bounded(into.len())
}

fn bounded(holdings: usize) -> Result<(), Malformed> {
    if holdings > MAX_HOLDINGS {
        return Err(Malformed::TooMany { what: "CPUs and devices", limit: MAX_HOLDINGS });
    }
    Ok(())
}

// === impl Tally ===

impl Tally {
    /// Whether an old holder that the new reply lacks may not keep it. See the module's rules.
    fn conflicts(self, holding: &Holding<'_>) -> bool {
        match (self.old, self.new, holding) {
            (_, 0, _) => false,
            (0 | 1, _, _) => true,
            (_, new, Holding::Cpu(_)) => new == 1 && !self.carried,
            _ => !self.carried,
        }
    }
}
