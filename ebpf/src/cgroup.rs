//! `tp_btf`: cgroups that come and go, and who is in them.

use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use core::ffi::c_void;
use podresources_proxy_ebpf_common::{Kind, words};

use crate::counted::{Place, Verdict, is_root_name, of_cgroup};
use crate::emit::{add, change, chatter, event, path};
use crate::kernel::{offset, read};

#[inline(always)]
fn pointer(ctx: &BtfTracePointContext, argument: usize) -> u64 {
    ctx.arg::<*const c_void>(argument) as u64
}

/// `cgroup_mkdir(cgroup, path)`
#[btf_tracepoint(function = "cgroup_mkdir")]
fn cgroup_mkdir(ctx: BtfTracePointContext) -> i32 {
    let cgroup = pointer(&ctx, 0);
    let place = Place::of(cgroup);
    let verdict = of_cgroup(cgroup, place);
    match verdict {
        Verdict::Inside => {}
        Verdict::Foreign => return 0,
        Verdict::Outside | Verdict::Unknown => {
            let kn: u64 = read(cgroup + offset!(OFFSETS.cgroup_kn));
            if is_root_name(read(kn + offset!(OFFSETS.kn_name))) {
                // From here on everything counts, until the proxy has looked where the roots are.
                add(words::LATE);
            } else if verdict == Verdict::Outside {
                return 0;
            }
        }
    }
    change(Kind::Mkdir);
    event(Kind::Mkdir, place, |record| path(record, pointer(&ctx, 1)));
    0
}

/// `cgroup_rmdir(cgroup, path)`
#[btf_tracepoint(function = "cgroup_rmdir")]
fn cgroup_rmdir(ctx: BtfTracePointContext) -> i32 {
    gone(&ctx, Kind::Rmdir)
}

/// `cgroup_release(cgroup, path)`
#[btf_tracepoint(function = "cgroup_release")]
fn cgroup_release(ctx: BtfTracePointContext) -> i32 {
    gone(&ctx, Kind::Release)
}

#[inline(always)]
fn gone(ctx: &BtfTracePointContext, kind: Kind) -> i32 {
    let cgroup = pointer(ctx, 0);
    let place = Place::of(cgroup);
    if matches!(of_cgroup(cgroup, place), Verdict::Inside | Verdict::Unknown) {
        change(kind);
        event(kind, place, |record| path(record, pointer(ctx, 1)));
    }
    0
}

/// `cgroup_attach_task(destination, path, task, threadgroup)`
#[btf_tracepoint(function = "cgroup_attach_task")]
fn cgroup_attach_task(ctx: BtfTracePointContext) -> i32 {
    let cgroup = pointer(&ctx, 0);
    let place = Place::of(cgroup);
    if matches!(of_cgroup(cgroup, place), Verdict::Inside | Verdict::Unknown) {
        chatter(Kind::Attach, place, |record| {
            let pid: u32 = read(pointer(&ctx, 2) + offset!(OFFSETS.task_pid));
            // SAFETY: the record is ours until it is submitted.
            unsafe { (*record).pid = pid };
            path(record, pointer(&ctx, 1));
        });
    }
    0
}

/// `cgroup_notify_populated(cgroup, path, populated)`
#[btf_tracepoint(function = "cgroup_notify_populated")]
fn cgroup_notify_populated(ctx: BtfTracePointContext) -> i32 {
    let cgroup = pointer(&ctx, 0);
    let place = Place::of(cgroup);
    if matches!(of_cgroup(cgroup, place), Verdict::Inside | Verdict::Unknown) {
        chatter(Kind::Populated, place, |record| {
            let populated: i32 = ctx.arg(2);
            // SAFETY: as above.
            unsafe { (*record).value = u32::from(populated != 0) };
            path(record, pointer(&ctx, 1));
        });
    }
    0
}
