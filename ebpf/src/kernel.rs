//! Reads the kernel's structs. The helper checks every address, and a read that fails gives zeros.

use core::ffi::c_void;
use core::mem::MaybeUninit;

use aya_ebpf::helpers::generated::{bpf_probe_read_kernel, bpf_probe_read_kernel_str};
use podresources_proxy_ebpf_common::{Offsets, TracepointOffsets};

/// Set before the programs are loaded.
#[unsafe(no_mangle)]
pub(crate) static OFFSETS: Offsets = Offsets {
    file_kn: 0,
    kn_parent: 0,
    kn_name: 0,
    kn_id: 0,
    kn_priv: 0,
    cgroup_kn: 0,
    cgroup_level: 0,
    cgroup_root: 0,
    cgroup_ancestors: 0,
    ancestors_are_pointers: 0,
    root_hierarchy: 0,
    task_pid: 0,
    rename_new_dentry: 0,
    rename_new_dir: 0,
    rename_dir_is_dentry: 0,
    dentry_inode: 0,
    dentry_name: 0,
    inode_number: 0,
    inode_superblock: 0,
    superblock_device: 0,
};

/// Set before the programs are loaded.
#[unsafe(no_mangle)]
pub(crate) static TRACEPOINT: TracepointOffsets = TracepointOffsets { hierarchy: 0, id: 0, path: 0, known: 0 };

/// The value of a constant that is set at load. The compiler must not take what stands here for it.
macro_rules! offset {
    ($of:ident . $field:ident) => {
        // SAFETY: a static of this type; volatile, because the loader replaces its bytes.
        u64::from(unsafe { core::ptr::read_volatile(&raw const $crate::kernel::$of.$field) })
    };
}
pub(crate) use offset;

/// A value at an address in the kernel; zero where it cannot be read.
///
/// `T` is an integer.
#[inline(always)]
pub(crate) fn read<T: Copy>(address: u64) -> T {
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: the helper writes `size_of::<T>()` bytes to our own variable, and checks the address.
    unsafe {
        bpf_probe_read_kernel(value.as_mut_ptr().cast(), size_of::<T>() as u32, address as *const c_void);
        value.assume_init()
    }
}

/// Copies a string with its NUL to `to`, at most `size` bytes; returns how many, or a negative number.
///
/// # Safety
/// `to` has room for `size` bytes.
#[inline(always)]
pub(crate) unsafe fn read_string(to: *mut u8, size: u32, address: u64) -> i64 {
    // SAFETY: the caller vouches for `to`; the helper checks the address.
    unsafe { bpf_probe_read_kernel_str(to.cast(), size, address as *const c_void) }
}

/// A string as words, with zeros behind it, and how many bytes it has with its NUL.
#[inline(always)]
pub(crate) fn read_words<const N: usize>(address: u64) -> ([u64; N], i64) {
    let mut words = [0u64; N];
    // SAFETY: the room is our own variable's.
    let length = unsafe { read_string(words.as_mut_ptr().cast(), (N * 8) as u32, address) };
    (words, length)
}
