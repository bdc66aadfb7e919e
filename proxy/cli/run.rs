//! `run`: the proxy itself. Configuration, log, and then everything else is [`crate::app`]'s.

use super::fault::Fault;
use super::logs;
use crate::config::{self, Config};

/// Run the proxy in front of the kubelet
///
/// Answers every podresources client on this node from one snapshot, and asks the kubelet only when something changed. Each flag has an
/// environment variable and a key in the configuration file; a flag wins over the environment, that over the file.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    args: config::args::Args,
}

pub(super) fn run(Args { args }: &Args) -> Result<(), Fault> {
    let resolved = config::load(args)?;
    let level = logs::start(&resolved.config.log).map_err(|error| Fault::Failed(error.into()))?;
    for warning in &resolved.warnings {
        tracing::warn!("{warning}");
    }
    start(&resolved.config, level)
}

/// The one call into the application: blocks until it has drained.
///
/// TODO(app): `crate::app::run(config, level).map_err(|error| Fault::Failed(error.into()))`, once `app` has it.
fn start(_config: &Config, _level: logs::Level) -> Result<(), Fault> {
    Err(Fault::Failed("`run` is not connected to `app` yet".into()))
}
