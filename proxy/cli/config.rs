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
    /// Check a configuration file: says nothing, or all that is wrong with it
    Check {
        /// The file, TOML
        file: PathBuf,
    },
}

pub(super) fn run(verb: &Verb) -> Result<(), Fault> {
    let resolved = match verb {
        Verb::Show(args) => config::load(args)?,
        Verb::Check { file } => config::check_file(file)?,
    };
    for warning in &resolved.warnings {
        remark(&format!("warning: {warning}"));
    }
    match verb {
        Verb::Show(_) => print(&resolved.to_toml()),
        Verb::Check { .. } => Ok(()),
    }
}
