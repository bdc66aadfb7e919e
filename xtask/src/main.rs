//! `cargo xtask`: the project's one entry for checks and tests.

fn main() {}
