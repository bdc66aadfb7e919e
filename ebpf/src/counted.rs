//! Which cgroups count: those of the kubepods subtrees, in the hierarchies that matter.

use core::hint::black_box;

use podresources_proxy_ebpf_common::{DIRECTORIES, Directory, Filter, Filters, ROOTS, Role, words};

use crate::emit::word;
use crate::kernel::{offset, read, read_words};
use crate::maps::FILTERS;

/// A cgroup, to those who look from outside. In a directory's record, the directory.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) hierarchy: i32,
    pub(crate) id: u64,
}

/// Whether a cgroup counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is a kubepods root, or below one.
    Inside,
    /// Nobody knows yet: a root has appeared, or there are more than the filter holds. It counts.
    Unknown,
    /// It is somewhere else in a hierarchy that matters.
    Outside,
    /// Its hierarchy does not matter.
    Foreign,
}

// === impl Place ===

impl Place {
    /// Where a `struct cgroup` is.
    #[inline(always)]
    pub(crate) fn of(cgroup: u64) -> Self {
        let root: u64 = read(cgroup + offset!(OFFSETS.cgroup_root));
        Self { hierarchy: read(root + offset!(OFFSETS.root_hierarchy)), id: id(cgroup) }
    }
}

/// A `struct cgroup`'s id.
#[inline(always)]
fn id(cgroup: u64) -> u64 {
    let kn: u64 = read(cgroup + offset!(OFFSETS.cgroup_kn));
    read(kn + offset!(OFFSETS.kn_id))
}

/// The filter in force.
#[inline(always)]
pub(crate) fn filter() -> Option<&'static Filter> {
    let filters: *const Filters = FILTERS.get_ptr(0)?;
    // SAFETY: the map's memory lives as long as the program. Volatile, because the proxy writes `active` while we run; it writes the
    // bank itself only while the other one is active.
    unsafe {
        let active = (&raw const (*filters).active).read_volatile() & 1;
        Some(&*(&raw const (*filters).banks).cast::<Filter>().add(active as usize))
    }
}

// === impl Filter, as the programs use it ===

/// What is known of a hierarchy before its cgroups are looked at; `None` where that must be done.
#[inline(always)]
pub(crate) fn of_hierarchy(filter: &Filter, hierarchy: i32) -> Option<Verdict> {
    if hierarchy != filter.hierarchies[0] && hierarchy != filter.hierarchies[1] {
        return Some(Verdict::Foreign);
    }
    if filter.everything != 0 || word(words::LATE) != filter.late_seen {
        return Some(Verdict::Unknown);
    }
    None
}

/// Whether a `struct cgroup` counts.
#[inline(always)]
pub(crate) fn of_cgroup(cgroup: u64, place: Place) -> Verdict {
    let Some(filter) = filter() else { return Verdict::Foreign };
    if let Some(verdict) = of_hierarchy(filter, place.hierarchy) {
        return verdict;
    }
    let level: u32 = read(cgroup + offset!(OFFSETS.cgroup_level));
    // Loops count up to a constant, and the compiler must not know how the list's length bears on that: else it counts in a way that
    // no verifier sees the end of.
    let mut index = 0;
    while index < ROOTS {
        if index as u32 >= black_box(filter.roots_len) {
            break;
        }
        let root = &filter.roots[index];
        if root.hierarchy == place.hierarchy && root.level <= level && ancestor(cgroup, root.level) == root.id {
            return Verdict::Inside;
        }
        index += 1;
    }
    Verdict::Outside
}

/// The id of the cgroup's ancestor at this level, which is not below the cgroup's own.
#[inline(always)]
fn ancestor(cgroup: u64, level: u32) -> u64 {
    let found: u64 = read(cgroup + offset!(OFFSETS.cgroup_ancestors) + u64::from(level) * 8);
    if offset!(OFFSETS.ancestors_are_pointers) == 0 { found } else { id(found) }
}

/// Whether this is the name of a kubepods root: `kubepods`, `kubepods.slice`, or something that ends with `-kubepods.slice`.
#[inline(always)]
pub(crate) fn is_root_name(name: u64) -> bool {
    const KUBEPODS: u64 = u64::from_le_bytes(*b"kubepods");
    const SLICE: u64 = u64::from_le_bytes(*b".slice\0\0");
    const DASH: u64 = u64::from_le_bytes(*b"-kubepod");
    const REST: u64 = u64::from_le_bytes(*b"s.slice\0");
    let (words, length) = read_words::<{ podresources_proxy_ebpf_common::NAME_BYTES / 8 }>(name);
    if words[0] == KUBEPODS && (length == 9 || (length == 15 && words[1] == SLICE)) {
        return true;
    }
    if length < 17 {
        return false;
    }
    let (words, _) = read_words::<2>(name + (length as u64) - 16);
    words[0] == DASH && words[1] == REST
}

/// Which of the kubelet's directories a `struct inode` is.
#[inline(always)]
pub(crate) fn directory(inode: u64) -> Option<(Role, Place)> {
    let filter = filter()?;
    if filter.directories_len == 0 {
        return None;
    }
    let number: u64 = read(inode + offset!(OFFSETS.inode_number));
    let mut index = 0;
    while index < DIRECTORIES {
        if index as u32 >= black_box(filter.directories_len) {
            break;
        }
        let directory: &Directory = &filter.directories[index];
        if directory.inode == number {
            let superblock: u64 = read(inode + offset!(OFFSETS.inode_superblock));
            let device: u32 = read(superblock + offset!(OFFSETS.superblock_device));
            if device == directory.device {
                let role = match directory.role {
                    0 => Role::State,
                    1 => Role::Plugins,
                    _ => Role::Socket,
                };
                return Some((role, Place { hierarchy: role as i32, id: number }));
            }
        }
        index += 1;
    }
    None
}
