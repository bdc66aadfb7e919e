//! The kernel's side: short programs that count changes to pods and say what they were.
//!
//! A change moves a word that the proxy has mapped; the promise of freshness rests on that word alone. Details go through a ring
//! buffer. Only kubepods' cgroups and the kubelet's directories count, so that nobody else's traffic costs more than a few reads.
//!
//! Most of this runs under a spinlock with interrupts off: no loop here is longer than a filter's list.
#![no_std]
#![no_main]

mod cgroup;
mod classic;
mod counted;
mod cpuset;
mod emit;
mod kernel;
mod kprobe;
mod maps;
mod rename;

// The kernel lends the helpers that read its memory only to programs that say so.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // Nothing here can get to this: the verifier would refuse an endless loop.
    loop {}
}
