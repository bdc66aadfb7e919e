//! Which CPUs are somebody's alone. Pure: facts in, verdicts out; nothing here reads a file.
//!
//! The kernel does not mark a cpuset as exclusive (kubernetes 87249), so it is inferred, and in doubt it is not said:
//! docs/HOST.md has the rules and what they cannot decide.

use crate::cpuset::CpuSet;

/// `cpu.shares` of one whole CPU.
const SHARES_PER_CPU: u64 = 1024;

/// The most that `cpu.shares` takes, and what the kubelet caps at (`MaxShares`).
const MOST_SHARES: u64 = 262_144;

/// What one kubelet's pods have to do with.
#[derive(Clone, Copy, Debug)]
pub struct Pool<'a> {
    /// The effective set of the kubepods root.
    pub cpus: &'a CpuSet,
    /// CPUs that are in the shared pool at all times: the reserved ones, where they are known and not kept from pods.
    pub always_shared: Option<&'a CpuSet>,
}

/// A container, or what may be one. Sandboxes are no containers: theirs is the set of whatever they were started in.
#[derive(Clone, Copy, Debug)]
pub struct Container<'a> {
    /// Its pod, as an index into the pods.
    pub pod: usize,
    /// Its effective set; `None` where it cannot be read, so that it may be anything.
    pub cpus: Option<&'a CpuSet>,
    /// Whether it is known to be a container, with a name.
    pub known: bool,
    /// Whether the set is a valid partition root: then the kernel itself keeps it from all others.
    pub partition: bool,
    /// What it may use; `None`: nobody has looked.
    pub entitlement: Option<Entitlement>,
}

/// A pod.
#[derive(Clone, Copy, Debug)]
pub struct Pod<'a> {
    /// Whether it sits directly below the kubepods root.
    pub guaranteed: bool,
    /// What all of it may use; `None`: nobody has looked.
    pub entitlement: Option<Entitlement>,
    /// Its kubelet's pool.
    pub pool: Pool<'a>,
}

/// How much CPU time a cgroup may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entitlement {
    /// CFS quota and period in microseconds; `None` where there is no quota.
    pub quota: Option<(u64, u64)>,
    /// Its share against others; `None` where it cannot be read.
    pub weight: Option<Weight>,
}

/// A cgroup's share of CPU time, in the unit of its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// `cpu.shares` of v1.
    Shares(u64),
    /// `cpu.weight` of v2.
    Weight(u64),
}

/// What is said of a container's CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They are its own.
    Exclusive,
    /// They are not, or that cannot be shown.
    Not(Because),
}

/// Why CPUs are not called exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// It is not known what it is.
    Unknown,
    /// Its set cannot be read.
    Unreadable,
    /// Its set is empty: it is half made.
    Empty,
    /// Its pod is burstable or best effort.
    NotGuaranteed,
    /// Its set is not a proper part of what kubepods has.
    WholePool,
    /// It has a CPU that is in the shared pool at all times.
    Shared,
    /// Another container has one of its CPUs, or may have.
    Overlaps,
    /// It may not use a whole number of CPUs, or another one than its set has.
    Fraction,
}

/// What is said of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// Of each container, in the order given.
    pub containers: Vec<Verdict>,
    /// Of each pod, in the order given: the CPUs that are the pod's as a whole (`PodLevelResourceManagers`, Kubernetes 1.37).
    pub pods: Vec<Option<CpuSet>>,
}

/// Who has each CPU, as far as it matters.
#[derive(Default)]
struct Holders {
    /// CPUs that more than one container has.
    several: CpuSet,
    /// Some set is not known: it may hold anything.
    unknown: bool,
}

/// The containers and pods whose entitlement decides. To look at each would cost three files a container, and few are asked about.
#[must_use]
pub fn undecided(pods: &[Pod<'_>], containers: &[Container<'_>]) -> (Vec<usize>, Vec<usize>) {
    let holders = Holders::of(containers);
    let mine = (0..containers.len()).filter(|&at| standing(pods, &containers[at], &holders).is_ok()).collect();
    let sets = pod_sets(pods, containers, &holders);
    let pods = sets.iter().enumerate().filter(|(_, set)| set.is_some()).map(|(at, _)| at).collect();
    (mine, pods)
}

/// Decides. What [`undecided`] names must have its entitlement by then; whose is missing is not called exclusive.
#[must_use]
pub fn decide(pods: &[Pod<'_>], containers: &[Container<'_>]) -> Verdicts {
    let holders = Holders::of(containers);
    let verdict = |container: &Container<'_>| {
        let cpus = match standing(pods, container, &holders) {
            Ok(cpus) => cpus,
            Err(because) => return Verdict::Not(because),
        };
        let agrees = container.entitlement.is_some_and(|entitlement| entitlement.agrees_with(cpus.len()));
        // A partition needs no further witness.
        if agrees || container.partition { Verdict::Exclusive } else { Verdict::Not(Because::Fraction) }
    };
    let verdicts: Vec<Verdict> = containers.iter().map(verdict).collect();
    let mut sets = pod_sets(pods, containers, &holders);
    for (pod, set) in pods.iter().zip(&mut sets) {
        let size = set.as_ref().map_or(0, CpuSet::len);
        if !pod.entitlement.is_some_and(|entitlement| entitlement.agrees_with(size)) {
            *set = None;
        }
    }
    // Where each container has CPUs of its own, they are the containers'.
    let mut some_share = vec![false; pods.len()];
    for (container, verdict) in containers.iter().zip(&verdicts) {
        some_share[container.pod] |= *verdict != Verdict::Exclusive;
    }
    for (set, share) in sets.iter_mut().zip(some_share) {
        if !share {
            *set = None;
        }
    }
    Verdicts { containers: verdicts, pods: sets }
}

/// The CPUs that are a container's alone if its entitlement says so.
fn standing<'a>(pods: &[Pod<'_>], container: &Container<'a>, holders: &Holders) -> Result<&'a CpuSet, Because> {
    let pod = &pods[container.pod];
    let cpus = container.cpus.ok_or(Because::Unreadable)?;
    if !container.known {
        return Err(Because::Unknown);
    }
    if cpus.is_empty() {
        return Err(Because::Empty);
    }
    if !pod.guaranteed {
        return Err(Because::NotGuaranteed);
    }
    // A partition's CPUs are taken out of the sets of those above it.
    if !container.partition && !cpus.is_proper_subset(pod.pool.cpus) {
        return Err(Because::WholePool);
    }
    if pod.pool.always_shared.is_some_and(|shared| !cpus.is_disjoint(shared)) {
        return Err(Because::Shared);
    }
    if (holders.unknown && !container.partition) || !cpus.is_disjoint(&holders.several) {
        return Err(Because::Overlaps);
    }
    Ok(cpus)
}

/// For each pod the union of its containers' sets, where it could be the pod's as a whole. A container of a pod with CPUs of its own
/// looks like one in a small shared pool: only what is known to be always in the shared pool tells them apart.
fn pod_sets(pods: &[Pod<'_>], containers: &[Container<'_>], holders: &Holders) -> Vec<Option<CpuSet>> {
    let mut unions = vec![CpuSet::new(); pods.len()];
    let mut whole: Vec<bool> =
        pods.iter().map(|pod| !holders.unknown && pod.guaranteed && pod.pool.always_shared.is_some()).collect();
    // What the pods that are out of the question have is one set: most pods are.
    let (mut once, mut several) = (CpuSet::new(), CpuSet::new());
    for container in containers {
        match container.cpus {
            Some(cpus) if pods[container.pod].guaranteed => {
                unions[container.pod].union_with(cpus);
                whole[container.pod] &= container.known && !cpus.is_empty();
            }
            Some(cpus) => once.union_with(cpus),
            None => whole[container.pod] = false,
        }
    }
    for set in &unions {
        set.count_in(&mut once, &mut several);
    }
    let sets = pods.iter().zip(unions).zip(whole);
    sets.map(|((pod, set), whole)| {
        let possible = whole
            && pod.guaranteed
            && !set.is_empty()
            && set.is_proper_subset(pod.pool.cpus)
            && pod.pool.always_shared.is_some_and(|shared| set.is_disjoint(shared))
            && set.is_disjoint(&several);
        possible.then_some(set)
    })
    .collect()
}

// === impl Holders ===

impl Holders {
    fn of(containers: &[Container<'_>]) -> Self {
        let (mut once, mut holders) = (CpuSet::new(), Self::default());
        for container in containers {
            match container.cpus {
                Some(cpus) => cpus.count_in(&mut once, &mut holders.several),
                None => holders.unknown = true,
            }
        }
        holders
    }
}

// === impl Entitlement ===

impl Entitlement {
    /// Whether this is what a container with so many whole CPUs has. All that is there must agree, and something must be there. The
    /// kubelet has set no quota for exclusive containers since 1.33.
    #[must_use]
    pub fn agrees_with(&self, cpus: usize) -> bool {
        let cpus = cpus as u64;
        let quota = self.quota.map(|(quota, period)| quota == cpus * period);
        let weight = self.weight.map(|weight| weight.is_of(cpus));
        match (quota, weight) {
            (None, None) => false,
            (quota, weight) => cpus > 0 && quota.unwrap_or(true) && weight.unwrap_or(true),
        }
    }
}

// === impl Weight ===

impl Weight {
    /// Whether it is what a request for so many whole CPUs comes to.
    fn is_of(self, cpus: u64) -> bool {
        let shares = (cpus * SHARES_PER_CPU).min(MOST_SHARES);
        match self {
            Self::Shares(is) => is == shares,
            Self::Weight(is) => is == linear_weight(shares) || is == fitted_weight(shares),
        }
    }
}

/// runc's first formula from shares to weight (KEP-2254), in use until 2025: linear.
fn linear_weight(shares: u64) -> u64 {
    1 + (shares.saturating_sub(2) * 9999) / 262_142
}

/// The second one (opencontainers/cgroups 0.0.3, `ConvertCPUSharesToCgroupV2Value`): through minimum, default and maximum.
fn fitted_weight(shares: u64) -> u64 {
    match shares {
        0..=2 => 1,
        MOST_SHARES.. => 10_000,
        _ => {
            #[expect(clippy::cast_precision_loss, reason = "below 2^18")]
            let log = (shares as f64).log2();
            let exponent = (log * log + 125.0 * log) / 612.0 - 7.0 / 34.0;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and 10,000")]
            let weight = 10_f64.powf(exponent).ceil() as u64;
            weight
        }
    }
}

#[cfg(test)]
#[path = "exclusive_tests.rs"]
mod tests;
