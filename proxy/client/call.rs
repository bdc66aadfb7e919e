//! The calls: raw bytes for who passes them on, typed messages for who reads them.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http::uri::PathAndQuery;
use prost::Message;
use tokio::time::Instant;
use tonic::client::Grpc;
use tonic::codec::Codec;
use tonic::{Code, Request, Response};
use tonic_prost::ProstCodec;

use super::channel::Channel;
use super::connect::Connection;
use super::raw::RawCodec;
use crate::grpc::Status;
use crate::proto::{v1, v1alpha1};

/// Goes out as `:authority`: what grpc-go sends for `unix://`, and the only form that every server takes.
const ORIGIN: &str = "http://localhost";

/// How much earlier the server is told to end a call than we do, at most: its own text, which says what it waited for, needs a moment
/// to arrive.
const HEAD_START: Duration = Duration::from_millis(100);

/// The API's methods, as request paths.
pub mod method {
    /// `v1` List.
    pub const LIST: &str = "/v1.PodResourcesLister/List";
    /// `v1` GetAllocatableResources.
    pub const ALLOCATABLE: &str = "/v1.PodResourcesLister/GetAllocatableResources";
    /// `v1` Get.
    pub const GET: &str = "/v1.PodResourcesLister/Get";
    /// `v1alpha1` List.
    pub const ALPHA_LIST: &str = "/v1alpha1.PodResourcesLister/List";
}

/// Why a call brought no reply.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The server's own answer, as it sent it.
    #[error("{0}")]
    Status(Status),
    /// No whole reply within the deadline, by our clock.
    #[error("no reply within {}", humantime::format_duration(*.0))]
    Deadline(Duration),
    /// The reply is larger than [`super::Limits::max_reply`].
    #[error("the reply is larger than {max} bytes; raise the limit if that is no mistake")]
    TooLarge {
        /// The limit, in bytes.
        max: usize,
    },
    /// The reply ended within its message, or before it.
    #[error("the reply ended before its message was whole")]
    CutOff,
    /// The reply ended without a status (`grpc-status`), so nobody can say that it is whole.
    #[error("the reply ended without a status")]
    NoStatus,
    /// The connection broke, or the server broke the protocol's rules.
    #[error("the connection failed")]
    Transport(#[source] TransportError),
}

/// What tonic says of a broken connection: its text alone, where tonic's own would add its insides.
#[derive(Debug)]
pub struct TransportError(Box<tonic::Status>);

// === impl TransportError ===

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.message())
    }
}

impl Error for TransportError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

// === impl Connection ===

impl Connection {
    /// Calls `method` (see [`method`]) with the bytes of one message; the reply's bytes come back as they were sent, with the response's
    /// metadata. The deadline is kept here, for head and body together; the server is told a slightly shorter one (`grpc-timeout`), so
    /// that what it has to say of a call that it could not answer in time arrives.
    pub async fn unary(&self, method: &'static str, request: Bytes, deadline: Duration) -> Result<Response<Bytes>, CallError> {
        self.call(method, request, deadline, RawCodec).await
    }

    /// `v1` List.
    pub async fn list(&self, deadline: Duration) -> Result<Response<v1::ListPodResourcesResponse>, CallError> {
        self.typed(method::LIST, v1::ListPodResourcesRequest {}, deadline).await
    }

    /// `v1` GetAllocatableResources.
    pub async fn allocatable(&self, deadline: Duration) -> Result<Response<v1::AllocatableResourcesResponse>, CallError> {
        self.typed(method::ALLOCATABLE, v1::AllocatableResourcesRequest {}, deadline).await
    }

    /// `v1` Get.
    pub async fn get(
        &self,
        namespace: &str,
        name: &str,
        deadline: Duration,
    ) -> Result<Response<v1::GetPodResourcesResponse>, CallError> {
        let request = v1::GetPodResourcesRequest { pod_name: name.to_owned(), pod_namespace: namespace.to_owned() };
        self.typed(method::GET, request, deadline).await
    }

    /// `v1alpha1` List.
    pub async fn alpha_list(&self, deadline: Duration) -> Result<Response<v1alpha1::ListPodResourcesResponse>, CallError> {
        self.typed(method::ALPHA_LIST, v1alpha1::ListPodResourcesRequest {}, deadline).await
    }

    /// tonic's bare client over this connection, for methods that have no generated one. Takes replies of the connection's limit.
    pub fn grpc(&self) -> Grpc<Channel> {
        Grpc::with_origin(self.channel(), Uri::from_static(ORIGIN)).max_decoding_message_size(self.limits.max_reply)
    }

    /// tonic's generated `v1` client over this connection. A deadline set on its requests is sent, and kept by the server alone.
    pub fn v1(&self) -> v1::pod_resources_lister_client::PodResourcesListerClient<Channel> {
        v1::pod_resources_lister_client::PodResourcesListerClient::with_origin(self.channel(), Uri::from_static(ORIGIN))
            .max_decoding_message_size(self.limits.max_reply)
    }

    /// tonic's generated `v1alpha1` client over this connection, under the same terms.
    pub fn v1alpha1(&self) -> v1alpha1::pod_resources_lister_client::PodResourcesListerClient<Channel> {
        v1alpha1::pod_resources_lister_client::PodResourcesListerClient::with_origin(self.channel(), Uri::from_static(ORIGIN))
            .max_decoding_message_size(self.limits.max_reply)
    }

    async fn typed<M, R>(&self, method: &'static str, request: M, deadline: Duration) -> Result<Response<R>, CallError>
    where
        M: Message + 'static,
        R: Message + Default + 'static,
    {
        self.call(method, request, deadline, ProstCodec::<M, R>::default()).await
    }

    async fn call<C>(
        &self,
        method: &'static str,
        message: C::Encode,
        deadline: Duration,
        codec: C,
    ) -> Result<Response<C::Decode>, CallError>
    where
        C: Codec,
        C::Encode: Send + Sync + 'static,
        C::Decode: Send + Sync + 'static,
    {
        let mut grpc = self.grpc();
        let mut request = Request::new(message);
        let told = told(deadline);
        request.set_timeout(told);
        let began = Instant::now();
        let reply = async {
            grpc.ready().await.map_err(|error| tonic::Status::from_error(error.into()))?;
            grpc.unary(request, PathAndQuery::from_static(method), codec).await
        };
        match tokio::time::timeout(deadline, reply).await {
            // A server may reset the call's stream at the deadline that it was told: that says no more than our own clock.
            Ok(Err(status)) if status.source().is_some() && status.code() == Code::Cancelled && began.elapsed() >= told => {
                Err(CallError::Deadline(told))
            }
            Ok(reply) => reply.map_err(|status| self.explain(status)),
            Err(_) => Err(CallError::Deadline(deadline)),
        }
    }

    /// tonic puts everything into one type. What came from the server has no source; what went wrong on the way has one.
    fn explain(&self, status: tonic::Status) -> CallError {
        // What tonic finds missing it says in the server's place.
        let says = |code, text| status.code() == code && status.message().starts_with(text);
        if status.source().is_some() {
            CallError::Transport(TransportError(Box::new(status)))
        } else if says(Code::Internal, "Missing response message.") {
            CallError::CutOff
        } else if says(Code::Unknown, "protocol error: missing grpc-status trailer") {
            CallError::NoStatus
        } else if status.code() == Code::OutOfRange && status.message().starts_with("Error, decoded message length too large") {
            CallError::TooLarge { max: self.limits.max_reply }
        } else {
            CallError::Status(Status::new(status.code(), status.message().to_owned()))
        }
    }
}

/// What the server is told where we wait for so long: a tenth less, or [`HEAD_START`].
fn told(deadline: Duration) -> Duration {
    deadline.saturating_sub(HEAD_START.min(deadline / 10))
}
