//! See docs/ARCHITECTURE.md.

pub mod gather;
pub mod mend;
