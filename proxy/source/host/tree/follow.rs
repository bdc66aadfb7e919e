//! Following changes: what they name and what was in doubt is read again, and all is judged anew, once.
//!
//! A change is told when the kernel has it, which is a little before all of it can be read or is there: a cgroup is announced before its
//! directory can be seen, a container's cgroup before its bundle, on cgroup v1 a container's cpuset before its share. So what was not
//! there yet, and what is in doubt, is read with every look, and not only when something names it.

use std::collections::BTreeMap;

use super::super::cgroup::ReadError;
use super::super::exclusive::{Because, Verdict};
use super::{Change, ChangeKind, Known, Member, Pod, Role, Root, Tree, could_be_root};
use crate::cpuset::CpuSet;

/// With more than this, everything is read: it would not be less.
const MOST: usize = 256;

// === impl Tree ===

impl Tree {
    /// Takes in all that has changed since the last look, and settles. `false`: the changes do not tell what to read; rescan.
    pub fn follow(&mut self, changes: &[Change], known: &Known) -> bool {
        // Several of one cgroup are one: what counts is what is there now.
        let mut cgroups: BTreeMap<String, ChangeKind> = std::mem::take(&mut self.announced);
        cgroups.extend(changes.iter().map(|change| (change.cgroup.trim_matches('/').to_owned(), change.kind)));
        if cgroups.len() > MOST || self.roots_have_changed() {
            return false;
        }
        self.names.begin();
        for (cgroup, kind) in cgroups {
            if self.root_of(&cgroup).is_none() && !could_be_root(&cgroup, &self.roots) {
                continue;
            }
            if kind == ChangeKind::Made && !self.hierarchies.mount().join(&cgroup).is_dir() {
                self.announced.insert(cgroup.clone(), kind);
            }
            if !self.touch(&cgroup, known) {
                return false;
            }
        }
        let doubtful: Vec<(usize, bool, String)> = self
            .pods
            .iter()
            .filter(|(_, pod)| pod.is_in_doubt())
            .map(|(cgroup, pod)| (pod.root, pod.guaranteed, cgroup.clone()))
            .collect();
        if doubtful.len() > MOST {
            return false;
        }
        for (root, guaranteed, cgroup) in doubtful {
            self.reread_pod(root, guaranteed, cgroup, known);
        }
        self.settle(known);
        true
    }

    /// A partition takes its CPUs from all above it, and CPUs go offline: of neither need an event name the root.
    fn roots_have_changed(&self) -> bool {
        let is = |now: Result<Option<CpuSet>, ReadError>, before: &CpuSet| now.is_ok_and(|now| now.unwrap_or_default() == *before);
        let same = |root: &Root| {
            is(self.hierarchies.cpus(&root.cgroup), &root.cpus) && is(self.hierarchies.mems(&root.cgroup), &root.mems)
        };
        !self.roots.iter().all(same)
    }
}

// === impl Pod ===

impl Pod {
    /// Whether what was read of it may be other now without any event: something is not there yet, or does not fit yet.
    fn is_in_doubt(&self) -> bool {
        let member = |member: &Member| {
            let nothing_yet = member.cpus.as_ref().is_none_or(CpuSet::is_empty);
            member.role == Role::Unknown
                || (member.role != Role::Sandbox && nothing_yet)
                || member.verdict == Verdict::Not(Because::Fraction)
        };
        self.name.is_none() || self.members.is_empty() || self.skipped.total() > 0 || self.members.values().any(member)
    }
}
