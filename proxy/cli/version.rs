//! `version`: what this binary is.

use super::fault::Fault;
use super::output::print;

/// Print the version, and what this binary was built with
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {}

pub(super) fn run(Args {}: &Args) -> Result<(), Fault> {
    let side = if cfg!(feature = "server") { "proxy and client" } else { "client only" };
    print(&format!("podresources-proxy {} ({side}; podresources v1 as of Kubernetes 1.37, v1alpha1)\n", env!("CARGO_PKG_VERSION")))
}
