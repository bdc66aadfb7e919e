//! What is told of the clients: in `/status`, in `/clients`, and as metrics, whose number does not grow with that of the clients.

use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::DescriptorEncoder;
use tokio::time::Instant;

use crate::admin::metrics::{Collector, counter, counters, gauge};
use crate::admin::status::{Client, Clients, Rules};
use crate::admission::{Mode, Reason, Seen, Table};
use crate::grpc::Code;
use crate::peer::Resolver;
use crate::serve::{self, Method};

use super::reload::InForce;

/// The clients, and what serving them counts.
#[derive(Clone, Debug)]
pub(super) struct Clientele {
    pub(super) serving: Arc<serve::Stats>,
    pub(super) table: Arc<Table>,
    pub(super) rules: Arc<InForce>,
    pub(super) resolver: Arc<Resolver>,
}

/// Families of admission.
#[derive(Debug)]
pub(super) struct Admission(pub(super) Arc<Table>);

/// Clients in `/status`.
const TOP: usize = 10;
/// Clients in `/clients`.
const MOST: usize = 1_000;

// === impl Clientele ===

impl Clientele {
    /// For `/status`.
    pub(super) fn summary(&self) -> Clients {
        let stats = &self.serving;
        let of = |method: Option<Method>| (0..=16).map(|code| stats.calls(method, Code::from_i32(code))).sum::<u64>();
        let methods =
            Method::ALL.into_iter().map(|method| (format!("{}/{}", method.api_version(), method.name()), of(Some(method))));
        let table = &self.table;
        Clients {
            connections: stats.connections_open(),
            accepted: stats.connections_accepted(),
            refused: stats.connections_over_limit() + stats.connections_out_of_descriptors(),
            queue_full: stats.accept_queue_full(),
            requests: methods.chain([("other".to_owned(), of(None))]).collect(),
            admission: mode(table.config().mode).to_owned(),
            limits: table.config().limits.to_string(),
            known: table.len() as u64,
            over_limit: Reason::ALL.into_iter().map(|reason| (reason.name().to_owned(), table.refused(reason))).collect(),
            top: self.list(TOP),
        }
    }

    /// For `/clients`.
    pub(super) fn all(&self) -> Vec<Client> {
        self.list(MOST)
    }

    /// The rules that they go by.
    pub(super) fn rules(&self) -> Rules {
        let (taken, refused) = self.rules.reloads();
        let file = self.rules.file().map(|file| file.display().to_string());
        Rules { file, classes: self.rules.classes(), taken, refused, error: self.rules.error() }
    }

    fn list(&self, most: usize) -> Vec<Client> {
        self.table.top(most, Instant::now()).iter().map(client).collect()
    }
}

fn client(seen: &Seen) -> Client {
    let over_limit = Reason::ALL.into_iter().zip(seen.refused).filter(|(_, count)| *count > 0);
    Client {
        client: seen.peer.client.to_string(),
        pod: seen.peer.pod.as_ref().map(|pod| format!("{}/{}", pod.namespace, pod.name)),
        uid: seen.peer.uid,
        pid: seen.peer.pid,
        class: seen.rules.class().map(str::to_owned),
        limits: seen.rules.limits().to_string(),
        connections: seen.connections,
        in_flight: seen.in_flight,
        calls: seen.calls,
        tokens: seen.tokens,
        waiting_bytes: seen.waiting_bytes,
        over_limit: over_limit.map(|(reason, count)| (reason.name().to_owned(), count)).collect(),
        paused: seen.paused,
        pauses: seen.pauses,
    }
}

const fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "enforce",
        Mode::Observe => "observe",
        Mode::Off => "off",
    }
}

// === impl Admission ===

impl Collector for Admission {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (e, table) = (&mut encoder, &self.0);
        let over = Reason::ALL.map(|reason| ([("reason", reason.name())], table.refused(reason)));
        counters(
            e,
            "over_limit",
            "Calls and connections of clients over a limit, by which; where limits hold, they were refused",
            over,
        )?;
        counter(e, "client_pauses", "Times that a client was left unread because it went on although refused", table.pauses())?;
        gauge(e, "clients", "Clients that are connected, or cannot be forgotten yet", Some(table.len() as u64))?;
        gauge(e, "clients_paused", "Clients that are left unread now", Some(table.paused(Instant::now()) as u64))
    }
}
