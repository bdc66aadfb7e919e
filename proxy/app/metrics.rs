//! The metric families of serving and refreshing: read from their counters when somebody scrapes.

use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::DescriptorEncoder;
use tokio::time::Instant;

use super::reload::InForce;
use crate::admin::metrics::{Collector, counter, counters, gauge, gauges};
use crate::answer::Source;
use crate::grpc::{Code, code_name};
use crate::keep;
use crate::peer::{Resolver, Sight};
use crate::refresh::{CALLS, Handle, RESULTS, Reach};
use crate::serve::{self, Method};

/// Families of the serving side.
#[derive(Debug)]
pub(super) struct Serving(pub(super) Arc<serve::Stats>);

/// Families of the refresher and of what it publishes.
#[derive(Debug)]
pub(super) struct Refreshing(pub(super) Handle);

/// Families of what is kept over a restart.
#[derive(Debug)]
pub(super) struct Keeping(pub(super) Arc<keep::Report>);

impl Collector for Serving {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (e, stats) = (&mut encoder, &self.0);
        let methods = Method::ALL.into_iter().map(Some).chain([None]);
        let requests = methods.flat_map(|method| {
            let (api, name) = method.map_or(("other", "other"), |method| (method.api_version(), method.name()));
            // Every code that a known method can end with; of an unknown one only those that were seen.
            (0..=16).map(Code::from_i32).filter_map(move |code| {
                let calls = stats.calls(method, code);
                (calls > 0 || code == Code::Ok).then(|| ([("api", api), ("method", name), ("code", code_name(code))], calls))
            })
        });
        counters(e, "requests", "Requests answered, by method and gRPC status code", requests)?;
        gauge(e, "requests_in_flight", "Requests that have begun and not ended", Some(stats.in_flight()))?;
        gauge(
            e,
            "reply_bytes_max",
            "Largest reply so far, in bytes; most clients take 4 MiB or 16 MiB",
            Some(stats.largest_reply()),
        )?;
        gauge(e, "connections_open", "Connections open now", Some(stats.connections_open()))?;
        counter(e, "connections_accepted", "Connections taken", stats.connections_accepted())?;
        let refused = [("limit", stats.connections_over_limit()), ("descriptors", stats.connections_out_of_descriptors())];
        counters(e, "connections_refused", "Connections closed at once", refused.map(|(reason, n)| ([("reason", reason)], n)))?;
        let queue = stats.accept_queue();
        let of = |number: fn(serve::Queue) -> u32| queue.map(|queue| u64::from(number(queue)));
        gauge(e, "accept_queue", "Connections that wait in the kernel to be accepted", of(|queue| queue.length))?;
        gauge(e, "accept_queue_limit", "How many may; others cannot connect then", of(|queue| queue.limit))?;
        counter(e, "accept_queue_full", "Looks, ten a second at most, that found that queue full", stats.accept_queue_full())
    }
}

impl Collector for Refreshing {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (e, stats, view) = (&mut encoder, self.0.stats(), self.0.view());
        let calls = CALLS.iter().zip(&stats.calls).flat_map(|(method, results)| {
            RESULTS.iter().zip(results).map(move |(result, calls)| ([("method", *method), ("result", *result)], calls.get()))
        });
        counters(e, "upstream_calls", "Calls to the kubelet, by method and result", calls)?;
        counter(e, "upstream_connections", "Connections made to the kubelet", stats.connections.get())?;
        counter(e, "upstream_malformed", "Replies that did not parse and were not published", stats.malformed.get())?;
        let captures = [("changed", stats.changed.get()), ("unchanged", stats.unchanged.get())];
        counters(e, "captures", "Captures of List, by whether the content differed", captures.map(|(c, n)| ([("content", c)], n)))?;
        counter(e, "waits", "Requests that waited for a capture", stats.waits.get())?;
        counter(e, "waits_expired", "Requests whose deadline came before a capture that would do", stats.expired.get())?;
        counter(e, "forwarded_gets", "Gets forwarded to the kubelet", stats.forwarded.get())?;
        counter(e, "kubelet_restarts", "Restarts of the kubelet that were seen", stats.restarts.get())?;
        counter(
            e,
            "source_switches",
            "Times that the host took the kubelet's place, or the kubelet its own",
            stats.switches.get(),
        )?;
        let sources = [Source::Kubelet, Source::Host].map(|source| ([("source", source.name())], u64::from(view.source == source)));
        gauges(e, "source", "1 for whose words are served", sources)?;
        gauge(
            e,
            "pods_kept_after_restart",
            "Pods served that a restarted kubelet has not told yet",
            Some(self.0.kept().len() as u64),
        )?;
        gauge(e, "waiting", "Requests that wait for a capture now", Some(self.0.waiting() as u64))?;
        gauge(e, "epoch", "Changes seen so far", Some(self.0.epoch()))?;
        gauge(e, "source_up", "Whether the kubelet can be reached", Some(u64::from(matches!(view.reach, Reach::Up))))?;
        let (list, now) = (view.list.as_ref(), Instant::now());
        let allocatable = view.allocatable.as_ref().and_then(|part| part.content.as_ref().ok());
        gauge(e, "snapshot_epoch", "The epoch read before the snapshot's capture began", list.map(|part| part.epoch))?;
        let age = list.map(|part| now.saturating_duration_since(part.begun).as_secs_f64());
        gauge(e, "snapshot_age_seconds", "Since the snapshot's capture began", age)?;
        gauge(e, "snapshot_pods", "Pods in the snapshot", list.map(|part| part.content.len() as u64))?;
        gauge(e, "snapshot_list_bytes", "Length of the List message", list.map(|part| part.content.message().len() as u64))?;
        let bytes = allocatable.map(|allocatable| allocatable.message().len() as u64);
        gauge(e, "snapshot_allocatable_bytes", "Length of the GetAllocatableResources message", bytes)
    }
}

/// How well clients are told apart.
#[derive(Debug)]
pub(super) struct Peers(pub(super) Arc<Resolver>);

/// Rules for clients that were read anew.
#[derive(Debug)]
pub(super) struct Rules(pub(super) Arc<InForce>);

impl Collector for Peers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Sight { resolved, out_of_sight, departed } = self.0.sight();
        let peers = [("process", resolved), ("user", out_of_sight), ("departed", departed)];
        let help = "Connections by what was seen of who made them; user: in no pid namespace that we see, which takes hostPID";
        counters(&mut encoder, "peers", help, peers.map(|(seen, n)| ([("seen", seen)], n)))
    }
}

impl Collector for Rules {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let e = &mut encoder;
        let (taken, refused) = self.0.reloads();
        let reloads = [("taken", taken), ("refused", refused)];
        counters(
            e,
            "rules_reloads",
            "Rules for clients that were read anew and differed",
            reloads.map(|(r, n)| ([("result", r)], n)),
        )?;
        let wrong = u64::from(self.0.error().is_some());
        gauge(e, "rules_wrong", "1 while the configuration file is wrong and older rules are in force", Some(wrong))
    }
}

impl Collector for Keeping {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (e, report) = (&mut encoder, &self.0);
        let writes = [("snapshot", report.snapshots_written()), ("age", report.ages_written())];
        counters(
            e,
            "saves",
            "Times that the snapshot, or its age alone, was saved",
            writes.map(|(what, n)| ([("what", what)], n)),
        )?;
        counter(e, "saves_failed", "Attempts to save the snapshot that failed", report.failures())
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
