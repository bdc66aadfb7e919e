//! libFuzzer's way into one property of `tests/corpus/properties`: the one that the environment's `FUZZ_TARGET` names.

#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

#[path = "../tests/corpus/properties/mod.rs"]
mod properties;

use properties::{Check, TARGETS};

static CHECK: OnceLock<Check> = OnceLock::new();

fn chosen() -> Check {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let found = TARGETS.iter().find(|(target, _)| *target == name);
    found
        .map_or_else(|| panic!("FUZZ_TARGET is {name:?}; it names one of {:?}", TARGETS.map(|(name, _)| name)), |(_, check)| *check)
}

fuzz_target!(|input: &[u8]| CHECK.get_or_init(chosen)(input));
