//! One array of `u64` words, which the programs add to and the proxy maps read-only. Each word only grows.

/// Changes: the word that every request looks at. Alone on its cache line, with the two that move with it.
pub const CHANGES: u32 = 0;
/// The changes that GetAllocatableResources may show as well.
pub const ALLOCATABLE: u32 = 1;
/// The changes that were about the kubelet's own sockets.
pub const SOCKET: u32 = 2;

/// Cgroups made whose name is a kubepods root's. While this differs from [`crate::Filter::late_seen`], everything counts.
pub const LATE: u32 = 8;
/// Records that found the event ring full.
pub const EVENTS_LOST: u32 = 9;
/// Records that found the ring for chatter (attach, populated) full.
pub const CHATTER_LOST: u32 = 10;

/// Events that passed the filter, by [`crate::Kind`]: this plus the kind's number.
pub const SEEN: u32 = 16;

/// How many words there are.
pub const COUNT: u32 = 32;
