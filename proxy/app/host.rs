//! What the admin server tells of the host source.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;

use crate::admin::metrics::{Collector, gauge, gauges};
use crate::admin::status;
use crate::source::Host;
use crate::source::host::{Cpus, Skip, View, Why};

/// Families of the host source; they have values once it has been looked at.
#[derive(Debug)]
pub(super) struct Metrics(pub(super) Host);

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (e, view) = (&mut encoder, self.0.view());
        let view = view.as_deref();
        gauge(e, "host_pods", "Pods that the cgroups and the runtimes name", view.map(|view| view.pods.listed().count() as u64))?;
        let skipped = |view: &View, why| view.pods.skipped.count(why) + view.node.skipped.count(why);
        let skipped = view.into_iter().flat_map(|view| Why::ALL.map(|why| ([("reason", why.label())], skipped(view, why))));
        gauges(e, "host_skipped", "What the last look at the host passed over, by reason", skipped)
    }
}

/// The section of `/status`.
pub(super) fn status(view: &View) -> status::Host {
    let (pods, node) = (&view.pods, &view.node);
    let listed = pods.listed().count();
    let all = || pods.skipped.named().iter().chain(node.skipped.named());
    let said = |Skip { why, what, detail }: &Skip| {
        if detail.is_empty() { format!("{}: {what}", why.label()) } else { format!("{}: {what}: {detail}", why.label()) }
    };
    let counts = Why::ALL.map(|why| (why.label().to_owned(), pods.skipped.count(why) + node.skipped.count(why)));
    status::Host {
        kubepods: pods.roots.clone(),
        pods: listed as u64,
        left_out: (pods.pods.len() - listed) as u64,
        online_cpus: node.online.to_string(),
        isolated_cpus: node.isolated.to_string(),
        no_allocatable_cpus: match node.settings.cpus {
            Cpus::None(why) => Some(why.to_owned()),
            Cpus::AllBut(_) => None,
        },
        cdi_devices: node.devices.iter().map(|device| device.name.clone()).collect(),
        skipped: counts.into_iter().filter(|(_, count)| *count > 0).collect(),
        examples: all().map(said).collect(),
    }
}
