//! fexit on the kernel's writers of `cpuset.*` files: what was written, after it took effect.

use core::hint::black_box;

use aya_ebpf::macros::fexit;
use aya_ebpf::programs::FExitContext;
use core::ffi::c_void;
use podresources_proxy_ebpf_common::{Kind, NAMES_LEAF_FIRST, PATH_BYTES, Record, TEXT_BYTES};

use crate::counted::{Place, Verdict, of_cgroup};
use crate::emit::{change, event};
use crate::kernel::{offset, read, read_string, read_words};
use crate::maps::{LAST, LastKey};

/// The longest part of a path that is copied when a path is put together from names, with its NUL.
const PART_BYTES: usize = 128;
/// Where the last part may begin, at most; a power of two less one.
const LAST_PART: usize = 255;

const _: () = assert!((LAST_PART + 1).is_power_of_two() && LAST_PART + PART_BYTES <= PATH_BYTES);

/// `ssize_t cpuset_write_resmask(of, buf, nbytes, off)`: `cpuset.cpus`, `cpuset.mems`, `cpuset.cpus.exclusive`.
#[fexit(function = "cpuset_write_resmask")]
fn cpuset_write_resmask(ctx: FExitContext) -> i32 {
    exit(&ctx)
}

/// `ssize_t cgroup_file_write(of, buf, nbytes, off)`: every cgroup file; of those, what begins with `cpuset.`, which is
/// `cpuset.cpus.partition` above all: its own writer has had two names.
#[fexit(function = "cgroup_file_write")]
fn cgroup_file_write(ctx: FExitContext) -> i32 {
    exit(&ctx)
}

#[inline(always)]
fn exit(ctx: &FExitContext) -> i32 {
    let file = ctx.arg::<*const c_void>(0) as u64;
    let buffer = ctx.arg::<*const c_void>(1) as u64;
    // The value returned stands behind the arguments; the helper for it is younger than 5.10.
    let written: i64 = ctx.arg(4);
    wrote(file, buffer, written);
    0
}

/// A `kernfs_open_file` was written.
#[inline(always)]
pub(crate) fn wrote(file: u64, buffer: u64, written: i64) {
    const CPUSET: u64 = u64::from_le_bytes(*b"cpuset.\0");
    if written <= 0 {
        return;
    }
    let kn: u64 = read(file + offset!(OFFSETS.file_kn));
    let (name, _) = read_words::<4>(read(kn + offset!(OFFSETS.kn_name)));
    if name[0] & 0x00ff_ffff_ffff_ffff != CPUSET {
        return;
    }
    let parent: u64 = read(kn + offset!(OFFSETS.kn_parent));
    let cgroup: u64 = read(parent + offset!(OFFSETS.kn_priv));
    let place = Place::of(cgroup);
    if !matches!(of_cgroup(cgroup, place), Verdict::Inside | Verdict::Unknown) {
        return;
    }
    let (text, length) = read_words::<{ TEXT_BYTES / 8 }>(buffer);
    let key = LastKey { cgroup: place.id, file: hash(&name), hierarchy: place.hierarchy, reserved: 0 };
    if (length as usize) < TEXT_BYTES {
        let now = hash(&text);
        // SAFETY: nobody keeps the reference; a value that changes meanwhile is a whole word all the same.
        if unsafe { LAST.get(key) }.is_some_and(|last| *last == now) {
            return;
        }
        // Where it cannot be kept, the next write counts, whatever it says.
        let _kept = LAST.insert(key, now, 0);
    }
    change(Kind::Cpuset);
    event(Kind::Cpuset, place, |record| {
        // SAFETY: the record is ours until it is submitted, and has room for that many bytes.
        unsafe {
            let length = read_string((&raw mut (*record).text).cast(), TEXT_BYTES as u32, buffer);
            if length > 0 {
                (*record).text_len = length as u32;
            }
        }
        names(record, parent);
    });
}

/// Puts the names of a cgroup and of those above it into a record, the cgroup's own first.
#[inline(always)]
fn names(record: *mut Record, mut kn: u64) {
    let mut length = 0usize;
    let mut count = 0;
    while count < 8 {
        let above: u64 = read(kn + offset!(OFFSETS.kn_parent));
        // The hierarchy's own root has no name.
        if above == 0 || length > LAST_PART {
            break;
        }
        let name: u64 = read(kn + offset!(OFFSETS.kn_name));
        // The mask is for the verifier, which must see it: hence the box.
        let begin = black_box(length) & LAST_PART;
        // SAFETY: a part that begins there has room.
        let part = unsafe { read_string((&raw mut (*record).path).cast::<u8>().add(begin), PART_BYTES as u32, name) };
        if part <= 0 {
            break;
        }
        length += part as usize;
        kn = above;
        count += 1;
    }
    // SAFETY: as above.
    unsafe {
        (*record).path_len = length as u32;
        (*record).flags = NAMES_LEAF_FIRST;
    }
}

/// Good enough to tell what was written from what was there: FNV-1a, a word at a time.
#[inline(always)]
fn hash<const N: usize>(words: &[u64; N]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut index = 0;
    while index < N {
        hash = (hash ^ words[index]).wrapping_mul(0x0000_0100_0000_01b3);
        hash ^= hash >> 29;
        index += 1;
    }
    hash
}
