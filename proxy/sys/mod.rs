//! The few calls that the compiler cannot check, each with its reason. `unsafe` stands here alone.
#![expect(unsafe_code, reason = "this is the place for it")]

pub mod rights;
#[cfg(feature = "ebpf")]
mod shared;
mod words;

#[cfg(feature = "ebpf")]
pub(crate) use shared::SharedWords;
pub(crate) use words::MappedWords;
