//! What the programs in the kernel and the proxy tell each other: words, the filter, struct offsets, event records.
//!
//! Both sides read the same memory, so every type is `repr(C)`, without padding, of plain integers: any bytes are a valid value.
//! A test here and constant assertions below hold the layout, on whichever side they are compiled.
#![no_std]

mod filter;
mod offsets;
mod record;
pub mod words;

pub use filter::{DIRECTORIES, Directory, Filter, Filters, NO_HIERARCHY, PREFIX_WORDS, Prefix, ROOTS, Role, Root};
pub use offsets::{Offsets, TracepointOffsets};
pub use record::{Kind, NAMES_LEAF_FIRST, PATH_BYTES, Record, TEXT_BYTES};

/// The longest file or cgroup name that is looked at, with its NUL.
pub const NAME_BYTES: usize = 128;
