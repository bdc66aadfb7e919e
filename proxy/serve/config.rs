//! What serving needs to be told.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::SocketConfig;

/// What serving needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// The socket.
    pub socket: SocketConfig,
    /// How it is served.
    pub serving: ServingConfig,
}

/// How connections are served, whatever they come over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServingConfig {
    /// Most worker threads; `None`: one per CPU of the process's affinity mask.
    pub threads: Option<NonZeroUsize>,
    /// Any number that differs from one start of the process to the next: goes out as metadata with every epoch.
    pub instance: u32,
    /// What a client may use up.
    pub limits: Limits,
}

/// What a client may use up, in number, bytes and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections open at a time, of all clients together. More are closed at once.
    pub connections: usize,
    /// Calls open at a time on one connection; the client is told, and keeps to it.
    pub streams: u32,
    /// Bytes of a request's message.
    pub request_bytes: usize,
    /// Time for a request's message to arrive whole.
    pub request_time: Duration,
    /// Time for a new connection to send the HTTP/2 preface.
    pub handshake_time: Duration,
    /// Time that a connection may be open without a call. Then it is asked to go (GOAWAY), which loses no call; clients come back when
    /// they need it. Some forget to close what they no longer use.
    pub idle_time: Duration,
    /// Time for a call whose client set no deadline.
    pub default_deadline: Duration,
    /// Time to finish what is in flight, once asked to stop.
    pub grace: Duration,
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            streams: 32,
            request_bytes: 4096,
            request_time: Duration::from_secs(5),
            handshake_time: Duration::from_secs(10),
            idle_time: Duration::from_mins(15),
            default_deadline: Duration::from_secs(10),
            grace: Duration::from_secs(5),
        }
    }
}
