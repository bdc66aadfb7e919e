//! `cargo xtask`: the project's one entry for checks and tests.

mod bench;
mod build_ebpf;
mod fuzz;
mod lab;
mod links;
mod means;
mod report;
mod rules;
mod shell;
mod test;
mod tidy;
mod vm;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

/// Checks, tests and benches of podresources-proxy
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Verb {
    Tidy(tidy::Args),
    Test(test::Args),
    Bench(bench::Args),
    BuildEbpf(build_ebpf::Args),
    Fuzz(fuzz::Args),
    #[command(subcommand)]
    Lab(lab::Verb),
    Vm(Box<vm::Args>),
}

fn main() -> ExitCode {
    run(&Verb::parse()).unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(verb: &Verb) -> Result<ExitCode> {
    std::env::set_current_dir(shell::root())?;
    Ok(match verb {
        Verb::Tidy(args) => tidy::run(args),
        Verb::Test(args) => test::run(args),
        Verb::Bench(args) => bench::run(args),
        Verb::BuildEbpf(args) => build_ebpf::run(args),
        Verb::Fuzz(args) => fuzz::run(args),
        Verb::Lab(verb) => lab::run(verb)?,
        Verb::Vm(args) => vm::run(args)?,
    })
}
