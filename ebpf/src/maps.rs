//! What the programs share with the proxy, and with each other.

use aya_ebpf::bindings::BPF_F_MMAPABLE;
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, LruHashMap, PerCpuArray, RingBuf};
use podresources_proxy_ebpf_common::{Filters, PATH_BYTES, words};

/// See [`words`].
#[map]
pub(crate) static WORDS: Array<u64> = Array::with_max_entries(words::COUNT, BPF_F_MMAPABLE);

/// What counts. One element.
#[map]
pub(crate) static FILTERS: Array<Filters> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// Records of changes. Some 450 of them.
#[map]
pub(crate) static EVENTS: RingBuf = RingBuf::with_byte_size(256 * 1024, 0);

/// Records of attach and populated, which exec probes make all day: a ring of their own, so that they push no change out.
#[map]
pub(crate) static CHATTER: RingBuf = RingBuf::with_byte_size(64 * 1024, 0);

/// What was last written to a cpuset file, as a hash. What was pushed out of here counts as a change when it is written again.
#[map]
pub(crate) static LAST: LruHashMap<LastKey, u64> = LruHashMap::with_max_entries(8192, 0);

/// The arguments of calls that kretprobes will see the end of, by thread.
#[map]
pub(crate) static PENDING: LruHashMap<u64, [u64; 2]> = LruHashMap::with_max_entries(1024, 0);

/// A path and a slash, while it is compared.
#[map]
pub(crate) static SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(1, 0);

/// Which file of which cgroup.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct LastKey {
    pub(crate) cgroup: u64,
    /// A hash of the file's name.
    pub(crate) file: u64,
    pub(crate) hierarchy: i32,
    pub(crate) reserved: u32,
}

/// Words, so that they are aligned.
pub(crate) type Scratch = [u64; PATH_BYTES / 8];
