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

/// File descriptors that are needed for other things: the kubelet, change sources, files, looks into `/proc`.
const OWN_DESCRIPTORS: u64 = 96;

// === impl Limits ===

impl Limits {
    /// How many connections can be open with so many file descriptors, those included that wait to be looked at. At least a few: less is
    /// no use to anybody.
    #[must_use]
    pub fn connections_within(descriptors: u64) -> usize {
        let left = usize::try_from(descriptors.saturating_sub(OWN_DESCRIPTORS)).unwrap_or(usize::MAX);
        (left - left / 8).max(16)
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_the_kubelet_and_for_those_that_wait() {
        for (descriptors, connections) in [(0, 16), (256, 140), (1_024, 812), (1 << 20, 917_420)] {
            assert_eq!(Limits::connections_within(descriptors), connections);
        }
        assert_eq!(Limits::connections_within(u64::MAX), usize::MAX - 96 - (usize::MAX - 96) / 8);
    }
}
