//! Where answers come from. A source is asked by [`crate::refresh`] alone, and knows nothing of epochs or clients.

mod chosen;
pub mod failover;
pub mod host;
mod kubelet;

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::answer;
use crate::grpc::Status;
use crate::snapshot::PodName;

pub use chosen::Chosen;
pub use failover::Failover;
pub use host::Host;
pub use kubelet::Kubelet;

/// One call to the kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call<'a> {
    /// `v1` List.
    List,
    /// `v1` GetAllocatableResources.
    Allocatable,
    /// `v1` Get.
    Get {
        /// The pod's namespace.
        namespace: &'a str,
        /// The pod's name.
        name: &'a str,
    },
    /// `v1alpha1` List.
    AlphaList,
}

/// A reply of the kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The message, byte for byte.
    pub message: Bytes,
    /// The number of the connection that it came over, from 1: another one than before means that another kubelet may have answered.
    pub connection: u64,
}

/// Why a call brought no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Nobody is there: no such file, or nobody listens. Nothing was asked, and no kubelet runs that could have changed something.
    #[error("{0}")]
    Unreachable(String),
    /// The connection broke, or was never quite made. The call may be made again.
    #[error("{0}")]
    Lost(String),
    /// No reply in time.
    #[error("no reply within {}", humantime::format_duration(*.0))]
    Late(Duration),
    /// The kubelet's rate limit, which is one for everybody. The call may be made again, later.
    #[error("the kubelet's rate limit is used up")]
    RateLimited,
    /// The reply is larger than we take.
    #[error("{0}")]
    TooLarge(String),
    /// The reply is not one whole message, or does not parse.
    #[error("{0}")]
    Broken(String),
    /// The kubelet's own answer is an error.
    #[error("the kubelet answered {0}")]
    Answered(Status),
}

/// A kubelet, the host, or what stands for one in a test.
pub trait Upstream: Clone + 'static {
    /// Whose words these are; may change from one connection to the next.
    fn source(&self) -> answer::Source {
        answer::Source::Kubelet
    }

    /// Makes sure of a connection. No call is made.
    fn connect(&self) -> impl Future<Output = Result<(), Failure>>;

    /// Makes a call.
    fn call(&self, call: Call<'_>) -> impl Future<Output = Result<Reply, Failure>>;

    /// How many connections have been made so far, by whoever called. Which of them a reply came over, the reply tells.
    fn connections(&self) -> u64;

    /// What tells the server that is connected to from every other that this boot has seen; `None`: nothing does.
    fn server(&self) -> Option<Arc<str>> {
        None
    }

    /// Looks whether the socket is another than the one connected to; if so lets the connection go, so that the next call makes a
    /// new one, and says yes.
    fn drop_if_replaced(&self) -> bool;

    /// Resolves when the connection that exists now has ended; never, where there is none.
    fn closed(&self) -> impl Future<Output = ()>;

    /// When another source is to be taken, though nobody asks for anything; `None`: not that one knows.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Takes another source where that is due, and says whether it did. The refresher alone calls it, between two flights.
    fn switch(&self) -> bool {
        false
    }

    /// Resolves when [`Upstream::due`] may have changed.
    fn stirred(&self) -> impl Future<Output = ()> {
        std::future::pending()
    }

    /// What has been published of the kubelet's word, for a time without it.
    fn remember(&self, _call: Call<'_>, _message: Bytes) {}

    /// Pods in the last List of whom this source knows a part alone; `None`: it knows all of all.
    fn unknown(&self) -> Option<Arc<HashSet<PodName>>> {
        None
    }
}
