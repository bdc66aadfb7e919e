//! Replays what fuzzing has kept: inputs that reach all of what was reached, and those that once broke something.
//!
//! `inputs/<target>.bin` holds many, each behind its length (4 bytes, little-endian); `found/<target>/` one a file, named for what it broke.
//! See docs/FUZZING.md.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod properties;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use properties::TARGETS;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(name)
}

/// The inputs of a pack.
fn unpacked(mut pack: &[u8]) -> Vec<&[u8]> {
    let mut inputs = Vec::new();
    while let Some((len, rest)) = pack.split_first_chunk() {
        let (input, rest) = rest.split_at(u32::from_le_bytes(*len).try_into().unwrap());
        inputs.push(input);
        pack = rest;
    }
    assert!(pack.is_empty(), "the pack is cut off");
    inputs
}

#[test]
fn every_input_that_was_kept_holds() {
    for (target, check) in TARGETS {
        let path = folder("inputs").join(format!("{target}.bin"));
        let pack = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let inputs = unpacked(&pack);
        assert!(inputs.len() > 10, "{target} has {} inputs", inputs.len());
        for (at, input) in inputs.into_iter().enumerate() {
            let held = catch_unwind(AssertUnwindSafe(|| check(input)));
            assert!(held.is_ok(), "input {at} of {target} breaks it: {}", input.escape_ascii());
        }
    }
}

#[test]
fn nothing_that_was_found_comes_back() {
    let known = TARGETS.map(|(name, _)| folder("found").join(name));
    let folders: Vec<PathBuf> = fs::read_dir(folder("found")).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    for found in &folders {
        assert!(known.contains(found), "{} is no target's", found.display());
    }
    for (target, check) in TARGETS {
        for file in fs::read_dir(folder("found").join(target)).into_iter().flatten() {
            let file = file.unwrap().path();
            let input = fs::read(&file).unwrap();
            assert!(catch_unwind(AssertUnwindSafe(|| check(&input))).is_ok(), "{} breaks it again", file.display());
        }
    }
}

#[test]
fn every_input_with_one_byte_changed_holds() {
    for (target, check) in TARGETS {
        let pack = fs::read(folder("inputs").join(format!("{target}.bin"))).unwrap();
        for (at, input) in unpacked(&pack).into_iter().enumerate().filter(|(_, input)| !input.is_empty()) {
            let mut input = input.to_vec();
            let place = at * 7 % input.len();
            input[place] ^= 1 << (at % 8);
            let held = catch_unwind(AssertUnwindSafe(|| check(&input)));
            assert!(held.is_ok(), "{target}: {}", input.escape_ascii());
        }
    }
}
