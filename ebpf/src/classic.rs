//! Classic tracepoints, for kernels without BTF: their records name hierarchy, id and path themselves, so roots are known by path.

use core::hint::black_box;

use aya_ebpf::EbpfContext as _;
use aya_ebpf::macros::tracepoint;
use aya_ebpf::programs::TracePointContext;
use podresources_proxy_ebpf_common::{Filter, Kind, PREFIX_WORDS, ROOTS, words};

use crate::counted::{Place, Verdict, filter, is_root_name, of_hierarchy};
use crate::emit::{add, change, event, path};
use crate::kernel::{offset, read, read_string};
use crate::maps::{SCRATCH, Scratch};

/// How much of a path is looked at; a power of two.
const COMPARED: usize = 256;

const _: () = assert!(COMPARED.is_power_of_two() && COMPARED >= PREFIX_WORDS * 8 && size_of::<Scratch>() > COMPARED);

#[tracepoint]
fn classic_mkdir(ctx: TracePointContext) -> u32 {
    seen(&ctx, Kind::Mkdir)
}

#[tracepoint]
fn classic_rmdir(ctx: TracePointContext) -> u32 {
    seen(&ctx, Kind::Rmdir)
}

#[tracepoint]
fn classic_release(ctx: TracePointContext) -> u32 {
    seen(&ctx, Kind::Release)
}

#[inline(always)]
fn seen(ctx: &TracePointContext, kind: Kind) -> u32 {
    let record = ctx.as_ptr() as u64;
    let place = Place { hierarchy: read(record + offset!(TRACEPOINT.hierarchy)), id: read(record + offset!(TRACEPOINT.id)) };
    let Some(filter) = filter() else { return 0 };
    // The path's place in the record: its offset below, its length above.
    let location: u32 = read(record + offset!(TRACEPOINT.path));
    let address = record + u64::from(location & 0xffff);
    let verdict = of_hierarchy(filter, place.hierarchy);
    if verdict == Some(Verdict::Foreign) {
        return 0;
    }
    let Some((inside, length)) = of_path(filter, address) else { return 0 };
    if !inside {
        let named = kind == Kind::Mkdir && ends_like_root(address, length);
        if named {
            add(words::LATE);
        } else if verdict.is_none() {
            return 0;
        }
    }
    change(kind);
    event(kind, place, |record| path(record, address));
    0
}

/// Whether a path is one of the roots' or below it, and how long it is with its NUL.
#[inline(always)]
fn of_path(filter: &Filter, address: u64) -> Option<(bool, u64)> {
    let scratch = SCRATCH.get_ptr_mut(0)?;
    // SAFETY: this CPU's own memory, and tracepoints do not interrupt each other; `last` is less than `COMPARED`, and the scratch has
    // eight bytes more.
    let length = unsafe {
        let bytes = scratch.cast::<u8>();
        let length = read_string(bytes, COMPARED as u32, address);
        if length <= 0 {
            return None;
        }
        // The mask is for the verifier, which must see it: hence the box.
        let last = (black_box(length as usize) - 1) & (COMPARED - 1);
        bytes.add(last).write(b'/');
        bytes.add(last + 1).write(0);
        last as u64 + 1
    };
    let mut index = 0;
    while index < ROOTS {
        if index as u32 >= black_box(filter.roots_len) {
            break;
        }
        let prefix = &filter.prefixes[index];
        let mut differ = 0;
        let mut word = 0;
        while word < PREFIX_WORDS {
            // SAFETY: the scratch is longer than a prefix.
            differ |= (unsafe { (*scratch)[word] } ^ prefix.words[word]) & prefix.masks[word];
            word += 1;
        }
        if differ == 0 {
            return Some((true, length));
        }
        index += 1;
    }
    Some((false, length))
}

/// Whether a path's last name is a kubepods root's. Only its end is looked at.
#[inline(always)]
fn ends_like_root(address: u64, length: u64) -> bool {
    // `/kubepods` and `/kubepods.slice`, without the slash; `-kubepods.slice` needs sixteen bytes more to be sure of.
    let is_name =
        |bytes: u64| length > bytes && read::<u8>(address + length - bytes - 1) == b'/' && is_root_name(address + length - bytes);
    is_name(9) || is_name(15) || (length > 17 && is_root_name(address + length - 17))
}
