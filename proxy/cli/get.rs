//! `get`: what one pod holds.

use super::ask::{Ask, failed, remark_stale};
use super::fault::Fault;
use super::list::rendered;
use super::output::print;
use super::view::{self, Sorted};
use crate::client::method;

/// Show what one pod's containers hold
///
/// The pod's namespace and name may be two words, or one with a slash, as `list -o name` prints it.
#[derive(Clone, Debug, clap::Args)]
#[command(
    override_usage = "podresources-proxy get [OPTIONS] NAMESPACE NAME\n       podresources-proxy get [OPTIONS] NAMESPACE/NAME"
)]
pub(super) struct Args {
    /// The pod's namespace, or NAMESPACE/NAME
    namespace: String,
    /// The pod's name
    name: Option<String>,
    #[command(flatten)]
    ask: Ask,
}

pub(super) fn run(Args { namespace, name, ask }: &Args) -> Result<(), Fault> {
    ask.only_v1("get")?;
    let (namespace, name) = pod(namespace, name.as_deref())?;
    let (metadata, mut reply, _) =
        ask.with(async |connection| connection.get(namespace, name, ask.timeout).await.map_err(failed(method::GET)))?.into_parts();
    remark_stale(&metadata);
    reply.sort();
    let text = match ask.output.message("v1.GetPodResourcesResponse", &reply) {
        Some(message) => message?,
        None => rendered(&view::rows(reply.pod_resources.as_slice()), ask.output, false, &ask.sysfs),
    };
    print(&text)
}

/// Namespace and name, from two words or one.
fn pod<'a>(namespace: &'a str, name: Option<&'a str>) -> Result<(&'a str, &'a str), Fault> {
    // Neither may have a slash in it (RFC 1123).
    let (namespace, name) = match name {
        Some(name) => (namespace, name),
        None => namespace.split_once('/').unwrap_or((namespace, "")),
    };
    if [namespace, name].iter().any(|word| word.is_empty() || word.contains('/')) {
        return Err(Fault::Usage("which pod? Give NAMESPACE NAME or NAMESPACE/NAME".into()));
    }
    Ok((namespace, name))
}
