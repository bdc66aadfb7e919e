//! `allocatable`: what the node can give, what is taken of it, and what is free.

use std::collections::BTreeSet;

use super::ask::{Ask, failed, remark_stale};
use super::cpus::nodes_of_cpus;
use super::fault::Fault;
use super::output::{Output, print, remark};
use super::room::{self, room};
use super::view::Sorted;
use crate::client::method;

/// Show what the node can give, what is taken and what is free, by NUMA node
///
/// Two calls put together: GetAllocatableResources and List. A device without NUMA affinity, and a CPU whose node is not known, stands
/// under `-`: the API does not tell the nodes of CPUs, so this machine's own sysfs does, where it knows every CPU and NUMA node of the
/// reply (see --sysfs). With -o wide each device has a line, with who holds it. Taken memory that belongs to a group of nodes stands under the group; of its nodes is then known only what is free at most.
/// With -o json or yaml: the reply to GetAllocatableResources alone.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    ask: Ask,
}

pub(super) fn run(Args { ask }: &Args) -> Result<(), Fault> {
    ask.only_v1("allocatable")?;
    let (mut reply, pods) = ask.with(async |connection| {
        let (metadata, reply, _) = connection.allocatable(ask.timeout).await.map_err(failed(method::ALLOCATABLE))?.into_parts();
        remark_stale(&metadata);
        let pods = match ask.output {
            Output::Table | Output::Wide => {
                connection.list(ask.timeout).await.map_err(failed(method::LIST))?.into_inner().pod_resources
            }
            Output::Json | Output::Yaml | Output::Name => Vec::new(),
        };
        Ok((reply, pods))
    })?;
    reply.sort();
    if let Some(message) = ask.output.message("v1.AllocatableResourcesResponse", &reply) {
        return print(&message?);
    }
    let rooms = room(&reply, &pods, &nodes_of_cpus(&ask.sysfs));
    if ask.output == Output::Name {
        let names: BTreeSet<&str> = rooms.iter().map(|room| room.resource.as_str()).collect();
        return print(&names.into_iter().flat_map(|name| [name, "\n"]).collect::<String>());
    }
    if rooms.is_empty() {
        remark("Nothing is allocatable here: no devices, and neither the CPU nor the memory manager is static.");
        return Ok(());
    }
    let mut text = room::table(&rooms);
    if ask.output == Output::Wide && !reply.devices.is_empty() {
        text.push('\n');
        text.push_str(&room::devices_table(&reply, &pods));
    }
    print(&text)
}
