//! The guest is as it was ordered: kernel, NUMA nodes, cgroups, what eBPF needs, and who runs the program. Runs in the guest alone:
//! `cargo xtask vm --package vm-guest --test ordered -- --include-ignored`.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should say where")]

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use rustix::thread::CapabilitySet;
use vm_guest::{Cgroups, JOB, Job};

const KPROBE_EVENTS: &str = "/sys/kernel/tracing/kprobe_events";

fn job() -> Job {
    let text = fs::read_to_string(JOB).expect("a guest has its job");
    Job::from_text(&text).unwrap()
}

/// A file's text without the line end.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}")).trim_end().to_owned()
}

/// Mount point to file system type.
fn mounts() -> BTreeMap<String, String> {
    let text = read("/proc/self/mounts");
    let rows = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    rows.map(|row| (row[1].to_owned(), row[2].to_owned())).collect()
}

/// The numbers of a list such as `0-1,3`.
fn count(list: &str) -> u32 {
    let ranges = list.split(',').filter(|range| !range.is_empty());
    ranges
        .map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            last.parse::<u32>().unwrap() - first.parse::<u32>().unwrap() + 1
        })
        .sum()
}

#[test]
#[ignore = "asks the virtual machine"]
fn the_kernel_is_the_one_that_was_ordered() {
    let release = read("/proc/sys/kernel/osrelease");
    assert!(release.starts_with(&format!("{}.", job().machine.kernel)), "{release}");
}

#[test]
#[ignore = "asks the virtual machine"]
fn every_node_has_its_share_of_the_cpus_and_memory_of_its_own() {
    let machine = job().machine;
    assert_eq!(count(&read("/sys/devices/system/cpu/online")), machine.cpus);
    assert_eq!(count(&read("/sys/devices/system/node/has_memory")), machine.nodes);
    for node in 0..machine.nodes {
        let cpus = read(&format!("/sys/devices/system/node/node{node}/cpulist"));
        assert_eq!(count(&cpus), machine.cpus / machine.nodes, "node {node} has CPUs {cpus}");
    }
}

#[test]
#[ignore = "asks the virtual machine"]
fn the_cgroup_hierarchies_are_those_that_were_ordered_and_have_cpusets() {
    let mounts = mounts();
    let kind = |at: &str| mounts.get(at).map(String::as_str);
    match job().cgroups {
        Cgroups::V2 => {
            assert_eq!(kind("/sys/fs/cgroup"), Some("cgroup2"));
            let given = read("/sys/fs/cgroup/cgroup.subtree_control");
            assert!(given.split(' ').any(|name| name == "cpuset"), "{given}");
        }
        v1 @ (Cgroups::V1 | Cgroups::Hybrid) => {
            assert_eq!(kind("/sys/fs/cgroup"), Some("tmpfs"));
            assert_eq!(kind("/sys/fs/cgroup/pids"), Some("cgroup"));
            // Debian builds 6.12 without CPUSETS_V1.
            let cpuset = job().machine.kernel != "6.12";
            assert_eq!(kind("/sys/fs/cgroup/cpuset"), cpuset.then_some("cgroup"));
            assert_eq!(Path::new("/sys/fs/cgroup/cpuset/cpuset.cpus").exists(), cpuset);
            assert_eq!(kind("/sys/fs/cgroup/unified"), (v1 == Cgroups::Hybrid).then_some("cgroup2"));
        }
    }
}

#[test]
#[ignore = "asks the virtual machine"]
fn the_kernel_describes_its_types() {
    let btf = fs::read("/sys/kernel/btf/vmlinux").unwrap();
    assert_eq!(btf.get(..2), Some(&0xeb9f_u16.to_ne_bytes()[..]));
}

#[test]
#[ignore = "asks the virtual machine"]
fn a_kprobe_is_taken_from_root_unless_the_kernel_is_locked_down() {
    let job = job();
    if job.identity.uid != 0 || job.identity.capabilities.is_some() {
        let refused = fs::read_to_string(KPROBE_EVENTS).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        return;
    }
    let made = fs::write(KPROBE_EVENTS, "p:vm_guest vfs_rename");
    if job.machine.lockdown {
        assert_eq!(made.unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert!(read("/sys/kernel/security/lockdown").contains("[confidentiality]"));
    } else {
        made.unwrap();
        assert!(read(KPROBE_EVENTS).contains("vm_guest vfs_rename"));
    }
}

#[test]
#[ignore = "asks the virtual machine"]
fn the_program_has_the_ordered_rights_and_no_others() {
    let identity = job().identity;
    let status = read("/proc/self/status");
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name} in {status}")).trim().to_owned()
    };
    let uid = identity.uid.to_string();
    assert!(field("Uid:").split('\t').all(|id| id == uid), "{}", field("Uid:"));
    let set = |name: &str| u64::from_str_radix(&field(name), 16).unwrap();
    let Some(names) = identity.capabilities else {
        assert_eq!(set("CapEff:") == 0, identity.uid != 0);
        return;
    };
    let wanted = names.iter().fold(CapabilitySet::empty(), |set, name| {
        set | CapabilitySet::from_name(&name.to_uppercase().replace("CAP_", "")).unwrap()
    });
    for name in ["CapEff:", "CapPrm:", "CapBnd:"] {
        assert_eq!(set(name), wanted.bits(), "{name}");
    }
}
