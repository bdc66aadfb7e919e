//! Why something is refused, and what is told about it.

use std::time::Duration;

use crate::grpc::{Code, Status};

use super::Rules;

/// Why something is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The rules say that it gets nothing.
    Denied,
    /// More calls than its rate and burst.
    Rate,
    /// More calls in flight than it may have.
    Calls,
    /// Its replies wait to be read by it, and are more than it may have waiting.
    Bytes,
    /// More connections than it may have.
    Connections,
    /// No connection is left for it: what there still is, is kept for others.
    Full,
}

/// A call that is refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// Why.
    pub reason: Reason,
    /// When a next try makes sense.
    pub after: Option<Duration>,
    /// The client as we see it: one printable word.
    pub client: String,
    /// What it may have.
    pub limit: String,
}

/// The kubelet's own text. Some clients look for it.
const RATE_LIMIT: &str = "rejected by rate limit";

// === impl Reason ===

impl Reason {
    /// All of them, each at the place of its number.
    pub const ALL: [Self; 6] = [Self::Denied, Self::Rate, Self::Calls, Self::Bytes, Self::Connections, Self::Full];

    /// One word, for metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Rate => "rate",
            Self::Calls => "calls",
            Self::Bytes => "bytes",
            Self::Connections => "connections",
            Self::Full => "full",
        }
    }

    /// The limit that was met, for people.
    pub(super) fn limit(self, rules: &Rules) -> String {
        let limits = &rules.limits;
        match self {
            Self::Denied => "denied".to_owned(),
            Self::Rate => format!("{}/s, burst {}", limits.rate, limits.burst),
            Self::Calls => format!("{} calls in flight", limits.calls),
            Self::Bytes => format!("{} bytes waiting", limits.waiting_bytes),
            Self::Connections => format!("{} connections", limits.connections),
            Self::Full => "connections in all".to_owned(),
        }
    }
}

// === impl Refused ===

impl Refused {
    /// What a gRPC client gets.
    pub fn status(&self) -> Status {
        let Self { client, limit, .. } = self;
        match self.reason {
            Reason::Denied => Status::new(Code::PermissionDenied, format!("podresources-proxy: {client} may not call here")),
            Reason::Rate => Status::new(Code::ResourceExhausted, RATE_LIMIT),
            Reason::Calls | Reason::Bytes | Reason::Connections | Reason::Full => {
                Status::new(Code::ResourceExhausted, format!("podresources-proxy: {client} has more than its {limit}"))
            }
        }
    }
}
