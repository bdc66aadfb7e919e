//! The few calls that the compiler cannot check, each with its reason. `unsafe` stands here alone.
#![expect(unsafe_code, reason = "this is the place for it")]

mod words;

pub(crate) use words::MappedWords;
