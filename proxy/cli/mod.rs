//! The command line: one file for each verb, tables for people, exit codes for scripts.

mod allocatable;
mod ask;
#[cfg(feature = "server")]
mod check;
mod config;
mod cpus;
mod fault;
mod get;
mod list;
pub mod logs;
mod message;
mod output;
mod quantity;
mod room;
#[cfg(feature = "server")]
mod run;
#[cfg(feature = "server")]
mod simulate;
mod status;
mod table;
#[cfg(test)]
mod tests;
mod version;
mod view;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use fault::Fault;

/// Stands in front of the kubelet's podresources API, and reads it.
///
/// `run` is the proxy; `list`, `get` and `allocatable` ask any podresources socket, the proxy's or the kubelet's.
#[derive(Debug, Parser)]
#[command(
    name = "podresources-proxy",
    version,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
#[command(after_help = "Exit codes: 0 well, 1 failed, 64 bad usage or configuration, 69 the socket cannot be reached.")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    #[cfg(feature = "server")]
    Run(run::Args),
    List(list::Args),
    Get(get::Args),
    Allocatable(allocatable::Args),
    Status(status::Args),
    #[cfg(feature = "server")]
    Check(Box<check::Args>),
    #[cfg(feature = "server")]
    Simulate(Box<simulate::Args>),
    #[command(subcommand)]
    Config(config::Verb),
    Version(version::Args),
}

/// The whole program: reads the process's arguments, does what they say, and tells how it went.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nobody may be there to read it (a closed pipe): nothing else could be said either.
            let _unread = error.print();
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                _ => ExitCode::from(fault::USAGE),
            };
        }
    };
    match cli.verb.carry_out() {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => fault.report(),
    }
}

// === impl Verb ===

impl Verb {
    fn carry_out(self) -> Result<(), Fault> {
        match self {
            #[cfg(feature = "server")]
            Self::Run(args) => run::run(&args),
            Self::List(args) => list::run(&args),
            Self::Get(args) => get::run(&args),
            Self::Allocatable(args) => allocatable::run(&args),
            Self::Status(args) => status::run(&args),
            #[cfg(feature = "server")]
            Self::Check(args) => check::run(&args),
            #[cfg(feature = "server")]
            Self::Simulate(args) => simulate::run(&args),
            Self::Config(verb) => config::run(&verb),
            Self::Version(args) => version::run(&args),
        }
    }
}
