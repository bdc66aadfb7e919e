//! kprobe and kretprobe, for kernels that refuse fexit: the first keeps the arguments, the second sees that the call went well.

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::macros::{kprobe, kretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};

use crate::cpuset::wrote;
use crate::maps::PENDING;
use crate::rename::renamed;

/// `cgroup_file_write` calls `cpuset_write_resmask`, so one thread may be in both. A process id has no more than 22 bits, which leaves
/// the key's uppermost ones free.
const RESMASK: u64 = 1 << 62;
const FILE_WRITE: u64 = 2 << 62;
const RENAME: u64 = 3 << 62;

#[inline(always)]
fn keep(which: u64, ctx: &ProbeContext, arguments: [usize; 2]) -> u32 {
    let kept = [ctx.arg(arguments[0]).unwrap_or(0), ctx.arg(arguments[1]).unwrap_or(0)];
    let _kept = PENDING.insert(bpf_get_current_pid_tgid() | which, kept, 0);
    0
}

#[inline(always)]
fn kept(which: u64) -> Option<[u64; 2]> {
    let key = bpf_get_current_pid_tgid() | which;
    // SAFETY: the copy is made at once, and only this thread has this key.
    let kept = unsafe { PENDING.get(key) }.copied();
    let _gone = PENDING.remove(key);
    kept
}

#[kprobe]
fn kprobe_resmask(ctx: ProbeContext) -> u32 {
    keep(RESMASK, &ctx, [0, 1])
}

#[kretprobe]
fn kretprobe_resmask(ctx: RetProbeContext) -> u32 {
    if let Some([file, buffer]) = kept(RESMASK) {
        wrote(file, buffer, ctx.ret());
    }
    0
}

#[kprobe]
fn kprobe_file_write(ctx: ProbeContext) -> u32 {
    keep(FILE_WRITE, &ctx, [0, 1])
}

#[kretprobe]
fn kretprobe_file_write(ctx: RetProbeContext) -> u32 {
    if let Some([file, buffer]) = kept(FILE_WRITE) {
        wrote(file, buffer, ctx.ret());
    }
    0
}

/// Before 5.12: `vfs_rename(old_dir, old_dentry, new_dir, new_dentry, …)`
#[kprobe]
fn kprobe_rename_args(ctx: ProbeContext) -> u32 {
    keep(RENAME, &ctx, [2, 3])
}

/// Since 5.12: `vfs_rename(renamedata)`
#[kprobe]
fn kprobe_rename_data(ctx: ProbeContext) -> u32 {
    let data: u64 = ctx.arg(0).unwrap_or(0);
    let kept = crate::rename::of_data(data);
    let _kept = PENDING.insert(bpf_get_current_pid_tgid() | RENAME, kept, 0);
    0
}

#[kretprobe]
fn kretprobe_rename(ctx: RetProbeContext) -> u32 {
    if let Some([directory, dentry]) = kept(RENAME) {
        renamed(directory, dentry, ctx.ret());
    }
    0
}
