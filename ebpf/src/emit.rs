//! Moves the words and sends the records.

use core::sync::atomic::{AtomicU64, Ordering};

use aya_ebpf::bindings::BPF_RB_NO_WAKEUP;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::bpf_ktime_get_ns;
use aya_ebpf::maps::RingBuf;
use podresources_proxy_ebpf_common::{Kind, PATH_BYTES, Record, words};

use crate::counted::Place;
use crate::kernel::read_string;
use crate::maps::{CHATTER, EVENTS, WORDS};

/// Adds one to a word.
#[inline(always)]
pub(crate) fn add(word: u32) {
    if let Some(word) = WORDS.get_ptr_mut(word) {
        // SAFETY: the map's memory is aligned and lives as long as the program.
        unsafe { AtomicU64::from_ptr(word) }.fetch_add(1, Ordering::Relaxed);
    }
}

/// A word's value.
#[inline(always)]
pub(crate) fn word(word: u32) -> u64 {
    WORDS.get_ptr(word).map_or(0, |word| {
        // SAFETY: as in `add`; volatile, because others write it.
        unsafe { word.read_volatile() }
    })
}

/// Counts a change: first the word, so that whoever is woken by the record finds it moved.
#[inline(always)]
pub(crate) fn change(kind: Kind) {
    add(words::CHANGES);
    add(words::SEEN + kind as u32);
}

/// Sends a record of a change, and wakes the reader.
#[inline(always)]
pub(crate) fn event(kind: Kind, place: Place, fill: impl FnOnce(*mut Record)) {
    send(&EVENTS, words::EVENTS_LOST, 0, kind, place, fill);
}

/// Sends a record that nobody waits for: it is read along with the next one that somebody does.
#[inline(always)]
pub(crate) fn chatter(kind: Kind, place: Place, fill: impl FnOnce(*mut Record)) {
    add(words::SEEN + kind as u32);
    send(&CHATTER, words::CHATTER_LOST, u64::from(BPF_RB_NO_WAKEUP), kind, place, fill);
}

#[inline(always)]
fn send(ring: &RingBuf, lost: u32, flags: u64, kind: Kind, place: Place, fill: impl FnOnce(*mut Record)) {
    let Some(mut entry) = ring.reserve::<Record>(0) else {
        add(lost);
        return;
    };
    let record = entry.as_mut_ptr();
    // SAFETY: reserved for a record, and ours until it is submitted.
    unsafe {
        (*record).ktime = bpf_ktime_get_ns();
        (*record).id = place.id;
        (*record).kind = kind as u32;
        (*record).hierarchy = place.hierarchy;
        (*record).pid = (bpf_get_current_pid_tgid() >> 32) as u32;
        (*record).value = 0;
        (*record).flags = 0;
        (*record).path_len = 0;
        (*record).text_len = 0;
        (*record).reserved = 0;
    }
    fill(record);
    entry.submit(flags);
}

/// Copies a path into a record.
#[inline(always)]
pub(crate) fn path(record: *mut Record, address: u64) {
    // SAFETY: the record is ours until it is submitted, and has room for that many bytes.
    unsafe {
        let length = read_string((&raw mut (*record).path).cast(), PATH_BYTES as u32, address);
        if length > 0 {
            (*record).path_len = length as u32;
        }
    }
}
