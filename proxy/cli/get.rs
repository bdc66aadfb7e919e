//! `get`: what one pod holds.

use super::ask::{Ask, failed, remark_stale};
use super::fault::Fault;
use super::list::rendered;
use super::output::print;
use super::view::{self, Sorted};
use crate::client::method;

/// Show what one pod's containers hold
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {
    /// The pod's namespace
    namespace: String,
    /// The pod's name
    name: String,
    #[command(flatten)]
    ask: Ask,
}

pub(super) fn run(Args { namespace, name, ask }: &Args) -> Result<(), Fault> {
    ask.only_v1("get")?;
    let (metadata, mut reply, _) =
        ask.with(async |connection| connection.get(namespace, name, ask.timeout).await.map_err(failed(method::GET)))?.into_parts();
    remark_stale(&metadata);
    reply.sort();
    let text = match ask.output.message("v1.GetPodResourcesResponse", &reply) {
        Some(message) => message?,
        None => rendered(&view::rows(reply.pod_resources.as_slice()), ask.output, false),
    };
    print(&text)
}
