//! What this process may do: everything that needs rights is bound and opened first, then all but what change sources need to attach
//! anew is dropped, as root too. Threads that start after that have no more.
//!
//! What a root without capabilities cannot do any more: reach files of other users that are closed to others. So the kubelet's
//! directory and the directory of our own socket have to belong to the uid that we run as; where a kubelet runs as another uid, so
//! must we. Nothing is kept for that: a capability that passes by file permissions is worth nearly all of root.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Gid, getegid, geteuid, getgroups};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities, capabilities_secure_bits, capability_is_in_bounding_set,
    clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits,
    set_no_new_privs, set_thread_groups,
};

/// What change sources need for as long as they run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needed {
    /// `CAP_BPF`: eBPF programs and maps.
    pub bpf: bool,
    /// `CAP_PERFMON`: attaching them to kernel functions and tracepoints.
    pub perfmon: bool,
    /// `CAP_SYS_ADMIN`: fanotify marks on file systems, kprobes on older kernels.
    pub sys_admin: bool,
}

/// What has been kept and dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    kept: CapabilitySet,
    dropped: CapabilitySet,
    missing: CapabilitySet,
    /// Whether the bounding set is empty.
    sealed: bool,
    /// Threads that had begun before, each with its rights for itself.
    others: usize,
}

/// Why rights could not be dropped.
#[derive(Debug, thiserror::Error)]
pub enum RightsError {
    /// A call that needs no rights was refused.
    #[error(
        "cannot {call}: {source}; dropping rights needs none, so a seccomp filter must forbid it: allow capget, capset and prctl"
    )]
    Call {
        /// What failed.
        call: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// Drops all capabilities but those, on the calling thread, which should be the only one.
///
/// Out of effective, permitted, inheritable and ambient set; out of the bounding set where that is allowed, and there with those
/// that are kept: nothing is ever executed. `no_new_privs` is set, so that even a root that executes a program gets no more than it
/// has, and where it is allowed `SECBIT_NOROOT` too, locked, by which uid 0 means nothing to `execve`.
pub fn keep(needed: Needed) -> Result<Rights, RightsError> {
    let failed = |call| move |error: Errno| RightsError::Call { call, source: error.into() };
    let others = fs::read_dir("/proc/self/task").map_or(0, |tasks| tasks.count().saturating_sub(1));
    let before = capabilities(None).map_err(failed("read the capabilities"))?;
    let kept = before.permitted & needed.set();
    // Both want CAP_SETPCAP: they come before it goes.
    let sealed = empty_bounding_set().map_err(failed("drop capabilities from the bounding set"))?;
    let bits = CapabilitiesSecureBits::NO_ROOT | CapabilitiesSecureBits::NO_ROOT_LOCKED;
    let bits = capabilities_secure_bits().unwrap_or(CapabilitiesSecureBits::empty()) | bits;
    match set_capabilities_secure_bits(bits) {
        Ok(()) | Err(Errno::PERM) => {}
        Err(error) => return Err(failed("set the secure bits")(error)),
    }
    set_no_new_privs(true).map_err(failed("set no_new_privs"))?;
    clear_ambient_capability_set().map_err(failed("clear the ambient set"))?;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).map_err(failed("drop capabilities"))?;
    Ok(Rights { kept, dropped: before.permitted - kept, missing: needed.set() - kept, sealed, others })
}

/// Makes the calling thread, which should be the only one, a member of a group: members may give their files to it without `CAP_CHOWN`.
pub fn join_group(group: u32) -> io::Result<()> {
    let group = Gid::from_raw(group);
    let mut groups = getgroups()?;
    if getegid() == group || groups.contains(&group) {
        return Ok(());
    }
    groups.push(group);
    Ok(set_thread_groups(&groups)?)
}

/// Does something as if all capabilities had been dropped already; on the calling thread.
pub fn without_any<T>(work: impl FnOnce() -> T) -> T {
    let Ok(sets) = capabilities(None) else { return work() };
    let lowered = set_capabilities(None, CapabilitySets { effective: CapabilitySet::empty(), ..sets });
    let done = work();
    if lowered.is_ok() {
        // What is permitted may be made effective again.
        let raised = set_capabilities(None, sets);
        debug_assert!(raised.is_ok(), "{raised:?}");
    }
    done
}

/// What to do where permission is denied on a path, if that is because it, or a directory that leads to it, is another user's.
pub fn denied_hint(path: &Path) -> Option<String> {
    let ours = geteuid().as_raw();
    let of = |path: &Path| fs::metadata(path).ok().map(|found| found.uid()).filter(|owner| *owner != ours && *owner != 0);
    // From the top: what is below a closed directory cannot be looked at.
    let ancestors: Vec<&Path> = path.ancestors().collect();
    let (path, owner) = ancestors.into_iter().rev().find_map(|path| of(path).map(|owner| (path, owner)))?;
    let path = path.display();
    Some(format!(
        "{path} belongs to uid {owner}, and uid {ours} has no right here to pass by file permissions: run the proxy as uid {owner}"
    ))
}

/// Whether that was allowed.
fn empty_bounding_set() -> Result<bool, Errno> {
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        match capability_is_in_bounding_set(capability) {
            Ok(false) => {}
            Ok(true) => match remove_capability_from_bounding_set(capability) {
                Ok(()) => {}
                Err(Errno::PERM) => return Ok(false),
                Err(error) => return Err(error),
            },
            // Beyond the last one that this kernel knows.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// As the kernel calls them.
fn names(set: CapabilitySet) -> Vec<String> {
    set.iter_names().map(|(name, _)| format!("CAP_{name}")).collect()
}

// === impl Needed ===

impl Needed {
    /// None at all.
    pub const NOTHING: Self = Self { bpf: false, perfmon: false, sys_admin: false };

    /// What either needs.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self { bpf: self.bpf || other.bpf, perfmon: self.perfmon || other.perfmon, sys_admin: self.sys_admin || other.sys_admin }
    }

    fn set(self) -> CapabilitySet {
        [(self.bpf, CapabilitySet::BPF), (self.perfmon, CapabilitySet::PERFMON), (self.sys_admin, CapabilitySet::SYS_ADMIN)]
            .into_iter()
            .filter_map(|(needed, capability)| needed.then_some(capability))
            .collect()
    }
}

// === impl Rights ===

impl Rights {
    /// Capabilities that are left, as `CAP_…`.
    pub fn kept(&self) -> Vec<String> {
        names(self.kept)
    }

    /// Capabilities that we had.
    pub fn dropped(&self) -> Vec<String> {
        names(self.dropped)
    }

    /// Capabilities that are needed and that we did not have.
    pub fn missing(&self) -> Vec<String> {
        names(self.missing)
    }

    /// Whether the bounding set could be emptied: that takes `CAP_SETPCAP`. `no_new_privs` holds either way.
    pub const fn sealed(&self) -> bool {
        self.sealed
    }

    /// Threads that had begun before, and have what they had: none, unless something in the process's environment (`LD_PRELOAD`)
    /// starts threads in it.
    pub const fn other_threads(&self) -> usize {
        self.others
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kept().join(" ") {
            none if none.is_empty() => f.write_str("no capabilities")?,
            kept => f.write_str(&kept)?,
        }
        write!(f, ", {} dropped", self.dropped.iter().count())?;
        if !self.missing.is_empty() {
            write!(f, ", {} missing", self.missing().join(" "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::process::Command;
    use std::thread;

    use super::*;

    /// Rights are a thread's own: each test has one to lose. Without root there is nothing to be lost, and only that is seen.
    fn on_a_thread<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
        thread::spawn(test).join().unwrap()
    }

    /// The `Cap…` and `NoNewPrivs` lines of a status file.
    fn status(text: &str) -> BTreeMap<String, u64> {
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let wanted = lines.filter(|(name, _)| name.starts_with("Cap") || *name == "NoNewPrivs");
        wanted.map(|(name, value)| (name.to_owned(), u64::from_str_radix(value.trim(), 16).unwrap())).collect()
    }

    #[test]
    fn what_is_needed_is_kept_as_far_as_it_was_there_and_threads_have_no_more() {
        on_a_thread(|| {
            let before = capabilities(None).unwrap();
            let needed = Needed { bpf: true, perfmon: true, sys_admin: false };
            let rights = keep(needed).unwrap();
            let wanted = CapabilitySet::BPF | CapabilitySet::PERFMON;
            assert_eq!(rights.kept | rights.missing, wanted);
            assert_eq!(rights.kept | rights.dropped, before.permitted);
            assert!(rights.other_threads() > 0, "the test's own");
            let kept = CapabilitySets { effective: rights.kept, permitted: rights.kept, inheritable: CapabilitySet::empty() };
            assert_eq!(capabilities(None).unwrap(), kept);
            assert_eq!(on_a_thread(|| capabilities(None).unwrap()), kept);
            let now = status(&fs::read_to_string("/proc/thread-self/status").unwrap());
            assert_eq!((now["CapAmb"], now["NoNewPrivs"]), (0, 1));
            if rights.sealed() {
                assert_eq!(now["CapBnd"], 0);
            }
        });
    }

    #[test]
    fn not_even_root_gets_anything_back_by_executing_a_program() {
        on_a_thread(|| {
            let rights = keep(Needed::NOTHING).unwrap();
            assert_eq!((rights.kept(), rights.missing()), (vec![], vec![]));
            let output = Command::new("/bin/cat").arg("/proc/self/status").output().unwrap();
            let child = status(&String::from_utf8(output.stdout).unwrap());
            for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
                assert_eq!(child[set], 0, "{set}");
            }
        });
    }

    #[test]
    fn what_is_tried_without_any_has_none_and_they_come_back_after_it() {
        on_a_thread(|| {
            let before = capabilities(None).unwrap();
            let during = without_any(|| capabilities(None).unwrap());
            assert_eq!((during.effective, during.permitted), (CapabilitySet::empty(), before.permitted));
            assert_eq!(capabilities(None).unwrap(), before);
        });
    }

    #[test]
    fn keeping_twice_is_no_error_and_brings_nothing_back() {
        on_a_thread(|| {
            keep(Needed::NOTHING).unwrap();
            let rights = keep(Needed { bpf: true, ..Needed::NOTHING }).unwrap();
            assert_eq!(rights.to_string(), "no capabilities, 0 dropped, CAP_BPF missing");
        });
    }
}
