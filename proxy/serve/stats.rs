//! What the serving side counts. Each worker writes to its own numbers, without locks or look-ups; whoever reads adds them up.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use crate::grpc::Code;

use super::Method;
use super::backlog::{Backlog, Queue};
use super::lobby::Lobby;

/// gRPC status codes, 0 to 16.
const CODES: usize = 17;
/// The methods, and one row for what is none of them.
const ROWS: usize = Method::ALL.len() + 1;

/// The numbers of all workers and of the accepting thread.
#[derive(Debug)]
pub struct Stats {
    pub(super) workers: Box<[WorkerStats]>,
    pub(super) accept: AcceptStats,
}

/// One worker's numbers, on cache lines of their own.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct WorkerStats {
    calls: [[AtomicU64; CODES]; ROWS],
    in_flight: AtomicU64,
    largest_reply: AtomicU64,
    /// Connections handed to the worker and not yet closed.
    pub(super) open: AtomicU64,
}

/// What the accepting thread counts.
#[derive(Debug)]
pub(super) struct AcceptStats {
    pub(super) accepted: AtomicU64,
    pub(super) over_limit: AtomicU64,
    pub(super) out_of_descriptors: AtomicU64,
    /// Looks at the kernel's queue that found it full.
    pub(super) queue_full: AtomicU64,
    backlog: Mutex<Option<Backlog>>,
    pub(super) lobby: Arc<Lobby>,
}

/// Counts one call: in flight until dropped, then under its method and code. One that is dropped without having ended was cancelled.
#[derive(Debug)]
pub(super) struct Call<'a> {
    worker: &'a WorkerStats,
    row: usize,
    code: Code,
}

// === impl Stats ===

impl Stats {
    /// `connections`: how many may be open at a time.
    pub(super) fn new(workers: usize, connections: usize) -> Self {
        Self {
            workers: (0..workers).map(|_| WorkerStats::default()).collect(),
            accept: AcceptStats {
                accepted: 0.into(),
                over_limit: 0.into(),
                out_of_descriptors: 0.into(),
                queue_full: 0.into(),
                backlog: Mutex::default(),
                lobby: Lobby::new(connections),
            },
        }
    }

    /// Calls that ended with this code; `None` for paths that are no method of ours. A call that its client gave up counts as
    /// `Cancelled`.
    pub fn calls(&self, method: Option<Method>, code: Code) -> u64 {
        self.sum(|worker| &worker.calls[row(method)][code as usize])
    }

    /// Calls that have begun and not ended.
    pub fn in_flight(&self) -> u64 {
        self.sum(|worker| &worker.in_flight)
    }

    /// Bytes of the largest reply so far, prefix included. Clients have limits of their own, most often 4 MiB or 16 MiB.
    pub fn largest_reply(&self) -> u64 {
        self.workers.iter().map(|worker| worker.largest_reply.load(Relaxed)).max().unwrap_or(0)
    }

    /// Connections open now.
    pub fn connections_open(&self) -> u64 {
        self.sum(|worker| &worker.open)
    }

    /// Of those, the ones whose client is known.
    pub(super) fn connections_known(&self) -> usize {
        usize::try_from(self.connections_open()).unwrap_or(usize::MAX).saturating_sub(self.accept.lobby.waiting())
    }

    /// Connections taken so far.
    pub fn connections_accepted(&self) -> u64 {
        self.accept.accepted.load(Relaxed)
    }

    /// Connections closed at once because as many as allowed were open.
    pub fn connections_over_limit(&self) -> u64 {
        self.accept.over_limit.load(Relaxed)
    }

    /// Connections closed at once because the process or the machine had no file descriptor left.
    pub fn connections_out_of_descriptors(&self) -> u64 {
        self.accept.out_of_descriptors.load(Relaxed)
    }

    /// Looks at the kernel's queue of connections that are not accepted yet. `None` where it cannot be asked for.
    pub fn accept_queue(&self) -> Option<Queue> {
        self.accept.queue()
    }

    /// How often that queue was found full, with ten looks a second at most. Who connects then fails, or waits, and is not counted.
    pub fn accept_queue_full(&self) -> u64 {
        self.accept.queue_full.load(Relaxed)
    }

    fn sum(&self, number: impl Fn(&WorkerStats) -> &AtomicU64) -> u64 {
        self.workers.iter().map(|worker| number(worker).load(Relaxed)).sum()
    }
}

// === impl AcceptStats ===

impl AcceptStats {
    /// From now on, this is the listener whose queue is looked at.
    pub(super) fn listen_to(&self, listener: &impl AsFd) {
        *self.backlog.lock().unwrap_or_else(PoisonError::into_inner) = Backlog::of(listener);
    }

    pub(super) fn queue(&self) -> Option<Queue> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.look()
    }
}

// === impl WorkerStats ===

impl Default for WorkerStats {
    fn default() -> Self {
        Self {
            calls: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
            in_flight: AtomicU64::new(0),
            largest_reply: AtomicU64::new(0),
            open: AtomicU64::new(0),
        }
    }
}

impl WorkerStats {
    /// A call begins.
    pub(super) fn begin(&self, method: Option<Method>) -> Call<'_> {
        self.in_flight.fetch_add(1, Relaxed);
        Call { worker: self, row: row(method), code: Code::Cancelled }
    }
}

// === impl Call ===

impl Call<'_> {
    /// The call ended with a reply of so many bytes.
    pub(super) fn replied(mut self, bytes: usize) {
        self.code = Code::Ok;
        let bytes = bytes as u64;
        // Almost never larger than the largest so far: a load, and no write to a line that others read.
        if bytes > self.worker.largest_reply.load(Relaxed) {
            self.worker.largest_reply.fetch_max(bytes, Relaxed);
        }
    }

    /// The call ended with this code.
    pub(super) fn failed(mut self, code: Code) {
        self.code = code;
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.worker.in_flight.fetch_sub(1, Relaxed);
        self.worker.calls[self.row][self.code as usize].fetch_add(1, Relaxed);
    }
}

const fn row(method: Option<Method>) -> usize {
    match method {
        Some(method) => method as usize,
        None => ROWS - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_method_and_code_over_all_workers() {
        let stats = Stats::new(2, 4096);
        stats.workers[0].begin(Some(Method::List)).replied(10);
        stats.workers[1].begin(Some(Method::List)).replied(30);
        stats.workers[1].begin(Some(Method::Get)).failed(Code::Unknown);
        stats.workers[0].begin(None).failed(Code::Unimplemented);
        assert_eq!(stats.calls(Some(Method::List), Code::Ok), 2);
        assert_eq!(stats.calls(Some(Method::Get), Code::Unknown), 1);
        assert_eq!(stats.calls(None, Code::Unimplemented), 1);
        assert_eq!(stats.calls(Some(Method::AlphaList), Code::Ok), 0);
        assert_eq!(stats.largest_reply(), 30);
    }

    #[test]
    fn a_call_is_in_flight_until_it_ends_and_cancelled_where_it_does_not() {
        let stats = Stats::new(1, 4096);
        let call = stats.workers[0].begin(Some(Method::List));
        assert_eq!(stats.in_flight(), 1);
        drop(call);
        assert_eq!(stats.in_flight(), 0);
        assert_eq!(stats.calls(Some(Method::List), Code::Cancelled), 1);
    }
}
