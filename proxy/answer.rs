//! What the serving side may ask, and what it gets: the one seam between [`crate::serve`] and [`crate::refresh`].

use std::future::Future;
use std::num::NonZeroU32;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::config::OnStale;
use crate::grpc::Status;

/// One of the four calls of the podresources API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// `v1.PodResourcesLister/List`
    List,
    /// `v1.PodResourcesLister/GetAllocatableResources`
    Allocatable,
    /// `v1.PodResourcesLister/Get`
    Get {
        /// The pod's namespace.
        namespace: String,
        /// The pod's name.
        name: String,
    },
    /// `v1alpha1.PodResourcesLister/List`
    AlphaList,
}

/// What the client asks of an answer beside its content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Request metadata `podresources-max-age`: an answer at most this old will do, however much has changed since; zero asks for a
    /// capture that begins after the request arrived. `None`: an answer that is not older than the last known change.
    pub max_age: Option<Duration>,
    /// What will do where no such answer is to be had. `None`: the last good one while the kubelet cannot be reached, otherwise none.
    pub on_stale: Option<OnStale>,
}

/// Who asks: what is scarce is shared out by client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    /// Tells clients apart, within one process of ours.
    pub id: u64,
    /// The client's part, against those of others.
    pub weight: NonZeroU32,
}

/// Where an answer's content came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The kubelet's own reply.
    Kubelet,
    /// What the host itself knows: cgroups and sysfs.
    Host,
}

impl Source {
    /// As metadata, status and metrics have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kubelet => "kubelet",
            Self::Host => "host",
        }
    }
}

/// How old an answer is; it goes out as response metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freshness {
    /// Time since the capture began (`podresources-age`).
    pub age: Duration,
    /// The epoch read before the capture began (`podresources-epoch`); means nothing to another instance.
    pub epoch: u64,
    /// Whose content it is (`podresources-source`).
    pub source: Source,
    /// Something changed since, or may have, and the source cannot be reached (`podresources-stale`).
    pub stale: bool,
}

/// A message with its gRPC prefix, ready for the socket.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Prefix and message; a clone counts a reference and copies nothing.
    pub framed: Bytes,
    /// How old it is.
    pub freshness: Freshness,
}

/// An answer that has to be waited for: the epoch that it must not be older than, as loaded when the request arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The epoch at arrival.
    pub epoch: u64,
    /// When the request arrived.
    pub arrived: Instant,
}

/// Answers calls. The hot path is [`Answers::at_once`]; [`Answers::wait`] is for the rest.
pub trait Answers: 'static {
    /// The answer, where it can be given without waiting; reads the epoch once.
    fn at_once(&self, ask: &Ask, terms: &Terms) -> Result<Result<Answer, Status>, Wait>;

    /// The answer, once it can be given. Ends with `Unavailable` at `deadline`, saying what was waited for. Dropping the future gives
    /// the wait up.
    fn wait(&self, ask: Ask, terms: Terms, who: Who, wait: Wait, deadline: Instant)
    -> impl Future<Output = Result<Answer, Status>>;
}

// === impl Who ===

impl Who {
    /// Nobody in particular: where nobody looks who a client is, all are one.
    pub const ANYBODY: Self = Self { id: 0, weight: NonZeroU32::MIN };
}
