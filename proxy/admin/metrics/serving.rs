//! What the serving side counts: requests and connections.
//!
//! Each worker adds to a block of its own, so that no two cores share a cache line; a scrape adds the blocks up.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::DescriptorEncoder;
use tonic::Code;

use super::{Collector, counter, counters, gauge};
use crate::answer::Ask;

/// The counters of all workers. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Serving {
    workers: Arc<Mutex<Vec<Arc<Worker>>>>,
    acceptor: Arc<Acceptor>,
}

/// The counters of one worker.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Worker {
    requests: [[AtomicU64; CODES.len()]; METHODS.len()],
    opened: AtomicU64,
    closed: AtomicU64,
}

/// An open connection; counted as closed when dropped.
#[derive(Debug)]
pub struct OpenConnection(Arc<Worker>);

/// The method that a request was counted under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `v1` List.
    List,
    /// `v1` `GetAllocatableResources`.
    Allocatable,
    /// `v1` Get.
    Get,
    /// `v1alpha1` List.
    AlphaList,
    /// Anything else that a client named.
    Other,
}

/// Why a connection was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Too many were open.
    Limit,
    /// File descriptors had run out.
    Descriptors,
}

#[derive(Debug, Default)]
struct Acceptor {
    accepted: AtomicU64,
    refused: [AtomicU64; REFUSALS.len()],
}

/// Labels `api` and `method`, in the order of [`Method`].
pub(super) const METHODS: [(&str, &str); 5] =
    [("v1", "List"), ("v1", "GetAllocatableResources"), ("v1", "Get"), ("v1alpha1", "List"), ("other", "other")];

/// Label `code`, by number. Source: <https://github.com/grpc/grpc/blob/master/doc/statuscodes.md>.
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

/// Label `reason`, in the order of [`Refusal`].
const REFUSALS: [&str; 2] = ["limit", "descriptors"];

// === impl Serving ===

impl Serving {
    /// A block of counters for one more worker.
    pub fn worker(&self) -> Arc<Worker> {
        let worker = Arc::<Worker>::default();
        self.workers.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&worker));
        worker
    }

    /// Counts an accepted connection.
    pub fn accepted(&self) {
        add(&self.acceptor.accepted);
    }

    /// Counts a connection that was turned away.
    pub fn refused(&self, why: Refusal) {
        add(&self.acceptor.refused[why as usize]);
    }

    /// The same figures for `/status`.
    pub fn clients(&self) -> crate::admin::status::Clients {
        let by_method = |method: usize| self.sum(|worker| worker.requests[method].iter().map(load).sum());
        crate::admin::status::Clients {
            connections: self.open(),
            accepted: load(&self.acceptor.accepted),
            refused: self.acceptor.refused.iter().map(load).sum(),
            requests: METHODS.iter().enumerate().map(|(i, (api, method))| (format!("{api}/{method}"), by_method(i))).collect(),
        }
    }

    fn open(&self) -> u64 {
        // Closed first: a connection that closes in between must not make the difference negative.
        let closed = self.sum(|worker| load(&worker.closed));
        self.sum(|worker| load(&worker.opened)).saturating_sub(closed)
    }

    fn sum(&self, of: impl Fn(&Worker) -> u64) -> u64 {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|worker| of(worker)).sum()
    }
}

impl Collector for Serving {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let e = &mut encoder;
        // The codes that have happened, and OK always, so that a rate can be taken from the first scrape on.
        let requests = METHODS.iter().enumerate().flat_map(|(m, (api, method))| {
            CODES.iter().enumerate().filter_map(move |(c, code)| {
                let value = self.sum(|worker| load(&worker.requests[m][c]));
                (value > 0 || c == 0).then_some(([("api", *api), ("method", *method), ("code", *code)], value))
            })
        });
        counters(e, "requests", "Requests answered", requests)?;
        gauge(e, "connections_open", "Client connections open now", Some(self.open()))?;
        counter(e, "connections_accepted", "Client connections accepted", load(&self.acceptor.accepted))?;
        let refused = REFUSALS.iter().zip(&self.acceptor.refused).map(|(reason, value)| ([("reason", *reason)], load(value)));
        counters(e, "connections_refused", "Client connections turned away", refused)
    }
}

// === impl Worker ===

impl Worker {
    /// Counts an answered request.
    pub fn answered(&self, method: Method, code: Code) {
        add(&self.requests[method as usize][code as usize]);
    }

    /// Counts a connection as open until the value is dropped.
    pub fn connection(self: &Arc<Self>) -> OpenConnection {
        add(&self.opened);
        OpenConnection(Arc::clone(self))
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        add(&self.0.closed);
    }
}

// === impl Method ===

impl From<&Ask> for Method {
    fn from(ask: &Ask) -> Self {
        match ask {
            Ask::List => Self::List,
            Ask::Allocatable => Self::Allocatable,
            Ask::Get { .. } => Self::Get,
            Ask::AlphaList => Self::AlphaList,
        }
    }
}

/// Figures are read one by one, and no other memory depends on them: relaxed is enough.
pub(super) fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

pub(super) fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::metrics::{Format, Metrics};

    fn scrape(serving: &Serving) -> String {
        let mut metrics = Metrics::new();
        metrics.register(Box::new(serving.clone()));
        metrics.encode(Format::Prometheus).unwrap()
    }

    #[test]
    fn workers_counts_add_up_and_no_code_is_taken_for_another() {
        let serving = Serving::default();
        let (one, two) = (serving.worker(), serving.worker());
        one.answered(Method::List, Code::Ok);
        two.answered(Method::List, Code::Ok);
        two.answered(Method::AlphaList, Code::Unauthenticated);
        two.answered((&Ask::Get { namespace: String::new(), name: String::new() }).into(), Code::Unknown);
        let scrape = scrape(&serving);
        for line in [
            r#"podresources_proxy_requests_total{api="v1",method="List",code="OK"} 2"#,
            r#"podresources_proxy_requests_total{api="v1alpha1",method="List",code="Unauthenticated"} 1"#,
            r#"podresources_proxy_requests_total{api="v1",method="Get",code="Unknown"} 1"#,
            r#"podresources_proxy_requests_total{api="other",method="other",code="OK"} 0"#,
        ] {
            assert!(scrape.lines().any(|other| other == line), "no {line} in\n{scrape}");
        }
        assert!(!scrape.contains(r#"code="Internal""#));
        assert_eq!(serving.clients().requests["v1/List"], 2);
    }

    #[test]
    fn every_code_has_the_name_that_its_number_has_in_grpc() {
        for (number, name) in (0..).zip(CODES) {
            let debug = format!("{:?}", Code::from_i32(number));
            assert_eq!(name.to_lowercase(), debug.to_lowercase().replace("cancelled", "canceled"));
        }
    }

    #[test]
    fn a_connection_is_open_until_it_is_dropped() {
        let serving = Serving::default();
        let worker = serving.worker();
        serving.accepted();
        serving.refused(Refusal::Descriptors);
        let connection = worker.connection();
        assert!(scrape(&serving).contains("podresources_proxy_connections_open 1\n"));
        drop(connection);
        let scrape = scrape(&serving);
        assert!(scrape.contains("podresources_proxy_connections_open 0\n"));
        assert!(scrape.contains("podresources_proxy_connections_accepted_total 1\n"));
        assert!(scrape.contains("podresources_proxy_connections_refused_total{reason=\"descriptors\"} 1\n"));
    }
}
