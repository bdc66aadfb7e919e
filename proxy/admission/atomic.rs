//! The atomics of a client's state. Named in one place, so that `tests/loom` can put loom's in theirs.

pub(super) use std::sync::atomic::AtomicU64;
