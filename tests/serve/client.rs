//! A client by hand, over hyper: it can send what a gRPC library would not, and sees headers and trailers as they come.

use std::path::Path;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use podresources_proxy::grpc::Code;
use tokio::net::UnixStream;

pub(crate) const LIST: &str = "/v1.PodResourcesLister/List";
pub(crate) const ALLOCATABLE: &str = "/v1.PodResourcesLister/GetAllocatableResources";
pub(crate) const GET: &str = "/v1.PodResourcesLister/Get";
pub(crate) const ALPHA_LIST: &str = "/v1alpha1.PodResourcesLister/List";

pub(crate) type Body = BoxBody<Bytes, std::io::Error>;

/// One connection.
pub(crate) struct Client {
    pub(crate) send: SendRequest<Body>,
    pub(crate) connection: tokio::task::JoinHandle<hyper::Result<()>>,
}

/// All of a reply.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) http: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

// === impl Client ===

impl Client {
    pub(crate) async fn connect(path: &Path) -> std::io::Result<Self> {
        let socket = UnixStream::connect(path).await?;
        let (send, connection) = handshake(TokioExecutor::new(), TokioIo::new(socket)).await.map_err(std::io::Error::other)?;
        Ok(Self { send, connection: tokio::spawn(connection) })
    }

    /// Sends a request, with changes to a good one, and reads all of the reply.
    pub(crate) async fn ask(&mut self, path: &str, change: impl FnOnce(&mut Request<Body>)) -> Reply {
        let mut request = request(path);
        change(&mut request);
        self.send.ready().await.unwrap();
        Reply::read(self.send.send_request(request).await.unwrap()).await.unwrap()
    }
}

// === impl Reply ===

impl Reply {
    pub(crate) async fn read(response: Response<Incoming>) -> hyper::Result<Self> {
        let (head, body) = response.into_parts();
        let collected = body.collect().await?;
        let trailers = collected.trailers().cloned();
        Ok(Self { http: head.status, headers: head.headers, body: collected.to_bytes(), trailers })
    }

    /// Code and text of an error, which must have come as headers alone.
    #[track_caller]
    pub(crate) fn error(&self) -> (Code, String) {
        assert!(self.body.is_empty() && self.trailers.is_none(), "not trailers-only: {self:?}");
        assert_eq!(self.headers["content-type"], "application/grpc");
        let code = Code::from_bytes(self.headers["grpc-status"].as_bytes());
        let text = percent_encoding::percent_decode(self.headers["grpc-message"].as_bytes());
        (code, text.decode_utf8().unwrap().into_owned())
    }

    #[track_caller]
    pub(crate) fn assert_ok(&self, body: &[u8]) {
        assert_eq!(self.http, StatusCode::OK, "{self:?}");
        assert_eq!(self.headers["content-type"], "application/grpc");
        assert_eq!(self.body, body);
        assert_eq!(self.trailers.as_ref().expect("trailers")["grpc-status"], "0");
    }
}

/// A good request without a message in it.
pub(crate) fn request(path: &str) -> Request<Body> {
    Request::post(format!("http://localhost{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(full(&[0; 5]))
        .unwrap()
}

pub(crate) fn full(bytes: &[u8]) -> Body {
    Full::new(Bytes::copy_from_slice(bytes)).map_err(|never| match never {}).boxed()
}
