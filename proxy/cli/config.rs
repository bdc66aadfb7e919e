//! `config`: what holds, and whether a file is right.

use std::path::PathBuf;

use clap::Subcommand;

use super::fault::Fault;
use super::output::{print, remark};
use crate::config::{self, args::Args};

/// Show the configuration that holds, or check a file
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Print the configuration that `run` would go by, as TOML, each value with where it came from
    ///
    /// Takes all of `run`'s flags. The output is a configuration file.
    Show(Args),
    /// Check the configuration that `run` would go by: says nothing, or all that is wrong with it
    ///
    /// Takes all of `run`'s flags.
    Check {
        /// The configuration file, TOML; the same as --config
        #[arg(conflicts_with = "config")]
        file: Option<PathBuf>,
        /// `run`'s flags
        #[command(flatten)]
        args: Args,
    },
}

pub(super) fn run(verb: &Verb) -> Result<(), Fault> {
    let resolved = match verb {
        Verb::Show(args) | Verb::Check { file: None, args } => config::load(args)?,
        Verb::Check { file, args } => {
            let mut args = args.clone();
            args.config.clone_from(file);
            config::load(&args)?
        }
    };
    for warning in &resolved.warnings {
        remark(&format!("warning: {warning}"));
    }
    match verb {
        Verb::Show(_) => print(&resolved.to_toml()),
        Verb::Check { .. } => Ok(()),
    }
}
