//! Which of the eBPF programs each kernel must take: `tests/ebpf` asks what is attached, so that a refusal which nobody expects fails.

use vm_guest::Identity;

use super::kernel::{Arch, Version};

/// Where `tests/ebpf` looks for it.
pub(super) const VARIABLE: &str = "EBPF_EXPECTED";

const TYPED: [&str; 5] = [
    "tp_btf/cgroup_mkdir",
    "tp_btf/cgroup_rmdir",
    "tp_btf/cgroup_release",
    "tp_btf/cgroup_attach_task",
    "tp_btf/cgroup_notify_populated",
];
const EXITS: [&str; 3] = ["fexit/cpuset_write_resmask", "fexit/cgroup_file_write", "fexit/vfs_rename"];
const KPROBES: [&str; 3] = ["kprobe/cpuset_write_resmask", "kprobe/cgroup_file_write", "kprobe/vfs_rename"];
const CLASSIC: [&str; 3] = ["tracepoint/cgroup_mkdir", "tracepoint/cgroup_rmdir", "tracepoint/cgroup_release"];
/// No program at all.
const NOTHING: &str = "nothing";

/// The parts that must be attached, by their names; `None` where it is not known.
pub(super) fn of(version: Version, arch: Arch, identity: &Identity, lockdown: bool) -> Option<String> {
    let has = |name: &str| identity.capabilities.iter().flatten().any(|held| held.eq_ignore_ascii_case(name));
    let all = identity.uid == 0 && identity.capabilities.is_none();
    let two = has("cap_bpf") && has("cap_perfmon");
    if lockdown || !(all || has("cap_bpf") || has("cap_perfmon") || has("cap_sys_admin")) {
        return Some(NOTHING.to_owned());
    }
    if !all && !two {
        return None;
    }
    let mut parts = TYPED.to_vec();
    if fexit(version, arch) {
        parts.extend(EXITS);
    }
    // A kprobe made by perf_event_open takes CAP_SYS_ADMIN there, and the numbers of classic tracepoints are told to root alone.
    if all {
        parts.extend([KPROBES, CLASSIC].concat());
    }
    Some(parts.join(","))
}

/// Whether functions may be traced at their ends: on aarch64 since 6.4, when ftrace learnt to call a trampoline directly.
const fn fexit(version: Version, arch: Arch) -> bool {
    matches!((version, arch), (_, Arch::X86_64) | (Version::V6_12, Arch::Aarch64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(identity: &str, lockdown: bool) -> Option<String> {
        of(Version::V6_1, Arch::X86_64, &Identity::parse(identity).unwrap(), lockdown)
    }

    #[test]
    fn rights_decide_what_is_expected() {
        assert!(expected("root", false).unwrap().contains("tracepoint/cgroup_mkdir"));
        let two = expected("65534:cap_bpf,cap_perfmon", false).unwrap();
        assert!(two.contains("fexit/vfs_rename") && !two.contains("kprobe/") && !two.contains("tracepoint/"), "{two}");
        assert_eq!(expected("65534", false).unwrap(), NOTHING);
        assert_eq!(expected("root", true).unwrap(), NOTHING);
        assert_eq!(expected("65534:cap_bpf", false), None);
    }

    #[test]
    fn where_functions_cannot_be_traced_at_their_ends_kprobes_are_expected() {
        let parts = of(Version::V6_1, Arch::Aarch64, &Identity::parse("root").unwrap(), false).unwrap();
        assert!(!parts.contains("fexit/") && parts.contains("kprobe/vfs_rename"), "{parts}");
    }
}
