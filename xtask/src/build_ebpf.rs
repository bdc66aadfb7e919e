//! `cargo xtask build-ebpf`: the objects in `ebpf/objects/`, from the sources beside them.
//!
//! The work is done by a crate of its own (`xtask/ebpf`), which brings a linker along and takes a while to build for the first time.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::shell;

/// Build the eBPF objects on stable Rust, or check that the committed ones are what the sources give
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write nothing: build, and compare with what is committed
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match build(args.check) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Builds and writes them, or compares.
pub(crate) fn build(check: bool) -> Result<()> {
    let mut command: Command = shell::cargo();
    command.args(["run", "--quiet", "--locked", "--manifest-path", "xtask/ebpf/Cargo.toml", "--target-dir"]);
    command.arg(shell::target().join("xtask-ebpf"));
    if check {
        command.args(["--", "--check"]);
    }
    shell::run(&mut command)
}
