//! One call on a podresources socket with tonic, as Kata's agent makes it, the reply as it came.

use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Status};

pub(crate) const LIST: &str = "/v1.PodResourcesLister/List";
pub(crate) const ALLOCATABLE: &str = "/v1.PodResourcesLister/GetAllocatableResources";
pub(crate) const GET: &str = "/v1.PodResourcesLister/Get";
pub(crate) const ALPHA_LIST: &str = "/v1alpha1.PodResourcesLister/List";

/// What a client waits for where a test does not say otherwise.
const DEADLINE: Duration = Duration::from_secs(10);
/// What Kata gives as the address, and so what it sends as `:authority`.
pub(crate) const ADDRESS: &str = "http://[::]:50051";

/// How a call ended.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) code: i32,
    pub(crate) text: String,
    pub(crate) message: Bytes,
    pub(crate) metadata: MetadataMap,
}

/// A connection, for as many calls as are wanted.
pub(crate) struct Client(Grpc<Channel>);

// === impl Client ===

impl Client {
    pub(crate) async fn connect(socket: &Path) -> Self {
        let socket = socket.to_owned();
        let dial = tower::service_fn(move |_: Uri| {
            let socket = socket.clone();
            async move { Ok::<_, io::Error>(TokioIo::new(UnixStream::connect(socket).await?)) }
        });
        let channel = Endpoint::from_static(ADDRESS).connect_with_connector(dial).await.unwrap();
        Self(Grpc::new(channel).max_decoding_message_size(16 << 20))
    }

    /// Calls `path` with `request`, an encoded message.
    pub(crate) async fn call(&mut self, path: &'static str, request: impl Into<Bytes>) -> Reply {
        let mut request = Request::new(request.into());
        request.set_timeout(DEADLINE);
        self.send(path, request).await
    }

    pub(crate) async fn send(&mut self, path: &'static str, request: Request<Bytes>) -> Reply {
        if let Err(error) = self.0.ready().await {
            return Reply::from(Status::unavailable(error.to_string()));
        }
        match self.0.unary(request, PathAndQuery::from_static(path), AsItIs).await {
            Ok(response) => {
                let (metadata, message, _) = response.into_parts();
                Reply { code: 0, text: String::new(), message, metadata }
            }
            Err(status) => Reply::from(status),
        }
    }
}

/// One call on a connection of its own.
pub(crate) async fn once(socket: &Path, path: &'static str, request: impl Into<Bytes>) -> Reply {
    Client::connect(socket).await.call(path, request).await
}

/// An encoded `GetPodResourcesRequest`.
pub(crate) fn get_request(namespace: &str, name: &str) -> Vec<u8> {
    use prost::Message as _;
    podresources_proxy::proto::v1::GetPodResourcesRequest { pod_namespace: namespace.into(), pod_name: name.into() }.encode_to_vec()
}

// === impl Reply ===

impl From<Status> for Reply {
    fn from(status: Status) -> Self {
        Self {
            code: status.code().into(),
            text: status.message().to_owned(),
            message: Bytes::new(),
            metadata: status.metadata().clone(),
        }
    }
}

/// Messages as bytes, both ways.
struct AsItIs;

// === impl AsItIs ===

impl Codec for AsItIs {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for AsItIs {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(item);
        Ok(())
    }
}

impl Decoder for AsItIs {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
