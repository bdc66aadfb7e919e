//! `list`: what every pod holds.

use std::path::Path;

use super::ask::{Api, Ask, failed, remark_stale};
use super::cpus::{fitting, nodes_of_cpus};
use super::fault::Fault;
use super::output::{Output, print, remark};
use super::table::{self, Style};
use super::view::{self, Row, Sorted};
use crate::client::method;

/// List what every pod's containers hold: CPUs, memory, devices, claims
///
/// CPUs are exclusive ones only: a container in the shared pool has none. What the pod as a whole holds stands in a line `(pod)` of its
/// own; it overlaps with its containers' and is never added up with them.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    ask: Ask,
}

pub(super) fn run(Args { ask }: &Args) -> Result<(), Fault> {
    let (text, any) = ask.with(async |connection| {
        Ok(match ask.api {
            Api::V1 => {
                let (metadata, mut reply, _) = connection.list(ask.timeout).await.map_err(failed(method::LIST))?.into_parts();
                remark_stale(&metadata);
                reply.sort();
                let rows = view::rows(&reply.pod_resources);
                let message = ask.output.message("v1.ListPodResourcesResponse", &reply);
                (message.unwrap_or_else(|| Ok(rendered(&rows, ask.output, false, &ask.sysfs)))?, !rows.is_empty())
            }
            Api::V1alpha1 => {
                let (metadata, mut reply, _) =
                    connection.alpha_list(ask.timeout).await.map_err(failed(method::ALPHA_LIST))?.into_parts();
                remark_stale(&metadata);
                reply.sort();
                let rows = view::alpha_rows(&reply.pod_resources);
                let message = ask.output.message("v1alpha1.ListPodResourcesResponse", &reply);
                (message.unwrap_or_else(|| Ok(rendered(&rows, ask.output, true, &ask.sysfs)))?, !rows.is_empty())
            }
        })
    })?;
    if !any && ask.output.is_table() {
        remark("No pods.");
        return Ok(());
    }
    print(&text)
}

/// The rows as a table, or as names.
pub(super) fn rendered(rows: &[Row], output: Output, devices_only: bool, sysfs: &Path) -> String {
    if output == Output::Name {
        let mut names: Vec<String> = rows.iter().map(|row| format!("{}/{}\n", row.namespace, row.pod)).collect();
        names.dedup();
        return names.concat();
    }
    let (cpus, nodes) = (rows.iter().flat_map(|row| &row.holds.cpus), rows.iter().flat_map(|row| row.holds.listed_nodes()));
    let nodes_of_cpus = fitting(&nodes_of_cpus(sysfs), cpus, nodes);
    table::pods(rows, Style { wide: output == Output::Wide, devices_only, nodes_of_cpus: Some(&nodes_of_cpus) })
}
