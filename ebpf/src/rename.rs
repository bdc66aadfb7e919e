//! fexit on `vfs_rename`: files put in place in the kubelet's directories.

use aya_ebpf::macros::fexit;
use aya_ebpf::programs::FExitContext;
use core::ffi::c_void;
use podresources_proxy_ebpf_common::{Kind, Role, words};

use crate::counted::directory;
use crate::emit::{add, change, event, path};
use crate::kernel::{offset, read};

/// Before 5.12: `int vfs_rename(old_dir, old_dentry, new_dir, new_dentry, delegated_inode, flags)`
#[fexit(function = "vfs_rename")]
fn rename_args(ctx: FExitContext) -> i32 {
    let directory = ctx.arg::<*const c_void>(2) as u64;
    let dentry = ctx.arg::<*const c_void>(3) as u64;
    renamed(directory, dentry, ctx.arg::<i32>(6));
    0
}

/// Since 5.12: `int vfs_rename(struct renamedata *)`
#[fexit(function = "vfs_rename")]
fn rename_data(ctx: FExitContext) -> i32 {
    let [directory, dentry] = of_data(ctx.arg::<*const c_void>(0) as u64);
    renamed(directory, dentry, ctx.arg::<i32>(1));
    0
}

/// The new directory's inode and the new name's dentry.
#[inline(always)]
pub(crate) fn of_data(data: u64) -> [u64; 2] {
    let directory: u64 = read(data + offset!(OFFSETS.rename_new_dir));
    let directory =
        if offset!(OFFSETS.rename_dir_is_dentry) == 0 { directory } else { read(directory + offset!(OFFSETS.dentry_inode)) };
    [directory, read(data + offset!(OFFSETS.rename_new_dentry))]
}

/// A file was renamed into this directory, to this name.
#[inline(always)]
pub(crate) fn renamed(inode: u64, dentry: u64, result: i32) {
    if result != 0 {
        return;
    }
    let Some((role, place)) = directory(inode) else { return };
    let name: u64 = read(dentry + offset!(OFFSETS.dentry_name));
    // Temporary files begin with a dot, here as in the kubelet.
    if read::<u8>(name) == b'.' {
        return;
    }
    match role {
        Role::State => {}
        Role::Plugins => add(words::ALLOCATABLE),
        Role::Socket => {
            add(words::ALLOCATABLE);
            add(words::SOCKET);
        }
    }
    change(Kind::Rename);
    event(Kind::Rename, place, |record| path(record, name));
}
