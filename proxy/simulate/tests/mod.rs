//! The stand-in as clients and watchers see it, over real sockets.

mod churn;
mod faults;
mod fidelity;
mod model;
mod profiles;
mod recorded;
mod restart;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tempfile::TempDir;
use tokio::net::UnixStream;

use super::{Config, Method, PodTimes, RestartTimes, Simulator};
use crate::grpc::{Code, PREFIX_LEN};
use crate::proto::v1;

/// A stand-in and the directory that its socket is in.
struct Lab {
    sim: Simulator,
    /// The directory goes away with this.
    dir: TempDir,
}

/// One connection, as plain as HTTP/2 can be.
struct Client(SendRequest<Full<Bytes>>);

/// How a call ended.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// Status 0 and what came as body, prefix included.
    Ok(Bytes),
    /// Another status.
    Status(Code, String),
    /// No status came at all; with what had come of the body.
    Broken(Bytes),
}

// === impl Lab ===

impl Lab {
    /// Without rate limit and delays, unless `change` says otherwise.
    async fn start(change: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config { rate: None, pod: PodTimes::AT_ONCE, ..Config::at(dir.path().join("kubelet.sock")) };
        change(&mut config);
        Self { sim: Simulator::start(config).await.unwrap(), dir }
    }

    async fn client(&self) -> Client {
        Client::connect(self.sim.socket()).await.unwrap()
    }
}

// === impl Client ===

impl Client {
    async fn connect(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket).await?;
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.map_err(io::Error::other)?;
        tokio::spawn(connection);
        Ok(Self(sender))
    }

    async fn call(&mut self, path: &str, message: &impl Message) -> Outcome {
        let message = message.encode_to_vec();
        let mut framed = vec![0; PREFIX_LEN];
        framed[1..].copy_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
        framed.extend(message);
        let request = Request::post(format!("http://localhost{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::from(framed))
            .unwrap();
        let Ok(response) = self.0.send_request(request).await else { return Outcome::Broken(Bytes::new()) };
        let (head, mut body) = response.into_parts();
        let (mut content, mut status) = (Vec::new(), tonic::Status::from_header_map(&head.headers));
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return Outcome::Broken(content.into()) };
            match frame.into_data() {
                Ok(data) => content.extend_from_slice(&data),
                Err(frame) => status = frame.trailers_ref().and_then(tonic::Status::from_header_map),
            }
        }
        match status {
            None => Outcome::Broken(content.into()),
            Some(status) if status.code() == Code::Ok => Outcome::Ok(content.into()),
            Some(status) => Outcome::Status(status.code(), status.message().to_owned()),
        }
    }

    async fn ask(&mut self, method: Method) -> Outcome {
        self.call(method.path(), &v1::ListPodResourcesRequest {}).await
    }

    async fn get(&mut self, namespace: &str, name: &str) -> Outcome {
        let request = v1::GetPodResourcesRequest { pod_name: name.to_owned(), pod_namespace: namespace.to_owned() };
        self.call(Method::Get.path(), &request).await
    }

    async fn list(&mut self) -> v1::ListPodResourcesResponse {
        self.ask(Method::List).await.decode()
    }

    async fn allocatable(&mut self) -> v1::AllocatableResourcesResponse {
        self.ask(Method::Allocatable).await.decode()
    }
}

// === impl Outcome ===

impl Outcome {
    /// The message behind a right prefix.
    #[track_caller]
    fn message(&self) -> Bytes {
        let Self::Ok(body) = self else { panic!("the call went wrong: {self:?}") };
        let (prefix, message) = body.split_at(PREFIX_LEN);
        assert_eq!(prefix, crate::grpc::prefix(u32::try_from(message.len()).unwrap()));
        body.slice(PREFIX_LEN..)
    }

    #[track_caller]
    fn decode<M: Message + Default>(&self) -> M {
        M::decode(self.message()).unwrap()
    }
}

/// The recorded replies that come with the project.
fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/kubelet")
}

/// A restart that is soon over and still has its parts.
const QUICK: RestartTimes =
    RestartTimes { down: Duration::from_millis(60), empty: Duration::from_millis(60), devices: Duration::from_millis(60) };

/// A restart that goes on only by [`Simulator::advance`].
const HELD: RestartTimes = RestartTimes { down: Duration::ZERO, empty: Duration::from_hours(1), devices: Duration::from_hours(1) };
