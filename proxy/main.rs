//! The `podresources-proxy` command.

fn main() {}
