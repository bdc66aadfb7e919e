//! The client against a small hyper server that does what a test tells it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

use super::*;
use crate::grpc::{Code, Status, prefix};
use crate::proto::v1;

const DEADLINE: Duration = Duration::from_secs(10);

/// What the server answers to everything.
#[derive(Clone)]
enum Reply {
    Message(Bytes),
    Error(&'static str, &'static str),
    Never,
    /// This error at the deadline that the server was told.
    AtDeadline(&'static str),
    /// A reset of the stream, as grpc-go does it at the deadline that it was told.
    ResetAtDeadline,
    /// Half a message, then a reset.
    CutOff,
}

/// What the server was asked.
#[derive(Clone, Debug)]
struct Asked {
    authority: String,
    path: String,
    timeout: String,
    body: Bytes,
}

struct Server {
    path: PathBuf,
    asked: Arc<Mutex<Vec<Asked>>>,
    task: JoinHandle<()>,
    _dir: TempDir,
}

impl Server {
    fn start(reply: Reply) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubelet.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let asked = Arc::default();
        let log = Arc::clone(&asked);
        // Connections are polled in the listener's own task: aborting it closes them.
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, reply.clone(), Arc::clone(&log)));
            }
        });
        Self { path, asked, task, _dir: dir }
    }

    async fn connect(&self, limits: Limits) -> Connection {
        Connection::connect(&self.path, limits).await.unwrap()
    }
}

async fn serve(stream: UnixStream, reply: Reply, log: Arc<Mutex<Vec<Asked>>>) {
    let service = service_fn(move |request| answer(request, reply.clone(), Arc::clone(&log)));
    let _closed =
        hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
}

/// A body from a list of frames, the last of which may be an error.
struct Frames(VecDeque<Result<Frame<Bytes>, BodyError>>);

type BodyError = Box<dyn std::error::Error + Send + Sync>;

impl Body for Frames {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Poll::Ready(self.0.pop_front())
    }
}

async fn answer(request: Request<Incoming>, reply: Reply, log: Arc<Mutex<Vec<Asked>>>) -> Result<Response<Frames>, Infallible> {
    let text = |value: Option<&HeaderValue>| value.map(|v| v.to_str().unwrap().to_owned()).unwrap_or_default();
    let (authority, path) = (request.uri().authority().unwrap().to_string(), request.uri().path().to_owned());
    let timeout = text(request.headers().get("grpc-timeout"));
    let asked_for = crate::grpc::parse_timeout(timeout.as_bytes()).unwrap_or_default();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    log.lock().unwrap().push(Asked { authority, path, timeout, body });
    let mut response = Response::builder().header("content-type", "application/grpc");
    let frames = match reply {
        Reply::Message(message) => {
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
            let head = Bytes::copy_from_slice(&prefix(u32::try_from(message.len()).unwrap()));
            vec![Ok(Frame::data(head)), Ok(Frame::data(message)), Ok(Frame::trailers(trailers))]
        }
        Reply::Error(code, message) => {
            response = response.header("grpc-status", code).header("grpc-message", message);
            vec![]
        }
        Reply::Never => std::future::pending().await,
        Reply::AtDeadline(message) => {
            tokio::time::sleep(asked_for).await;
            response = response.header("grpc-status", "14").header("grpc-message", message);
            vec![]
        }
        Reply::ResetAtDeadline => {
            tokio::time::sleep(asked_for).await;
            vec![Err(h2::Error::from(h2::Reason::CANCEL).into())]
        }
        Reply::CutOff => {
            vec![Ok(Frame::data(Bytes::copy_from_slice(&prefix(10)))), Err("cut off".into())]
        }
    };
    Ok(response.body(Frames(frames.into())).unwrap())
}

#[tokio::test]
async fn a_reply_comes_back_byte_for_byte_with_fields_that_nobody_knows() {
    let message = Bytes::from_static(b"\xfa\x7f\x03abc\x0a\x00");
    let server = Server::start(Reply::Message(message.clone()));
    let connection = server.connect(Limits::default()).await;

    let reply = connection.unary(method::LIST, Bytes::from_static(b"\x08\x01"), DEADLINE).await.unwrap();

    assert_eq!(reply.into_inner(), message);
    let asked = server.asked.lock().unwrap()[0].clone();
    assert_eq!((asked.authority.as_str(), asked.path.as_str()), ("localhost", method::LIST));
    assert_eq!(asked.body, Bytes::from_static(b"\x00\x00\x00\x00\x02\x08\x01"));
    assert_eq!(asked.timeout, "9900000u");
}

#[tokio::test]
async fn a_reply_larger_than_every_window_arrives_whole() {
    let message: Bytes = (0..12_u32 << 20).map(|i| i.to_le_bytes()[1]).collect();
    let server = Server::start(Reply::Message(message.clone()));
    let connection = server.connect(Limits::default()).await;
    let reply = connection.unary(method::LIST, Bytes::new(), DEADLINE).await.unwrap().into_inner();
    assert!(reply == message, "{} bytes came back", reply.len());
}

#[tokio::test]
async fn an_empty_reply_is_an_empty_message() {
    let server = Server::start(Reply::Message(Bytes::new()));
    let connection = server.connect(Limits::default()).await;
    assert_eq!(connection.unary(method::LIST, Bytes::new(), DEADLINE).await.unwrap().into_inner(), Bytes::new());
}

#[tokio::test]
async fn one_connection_serves_many_calls_and_both_kinds_of_client() {
    let pod = v1::PodResources { name: "a".into(), namespace: "ns".into(), ..Default::default() };
    let get = v1::GetPodResourcesResponse { pod_resources: Some(pod.clone()) };
    let server = Server::start(Reply::Message(get.encode_to_vec().into()));
    let connection = server.connect(Limits::default()).await;

    assert_eq!(connection.get("ns", "a", DEADLINE).await.unwrap().into_inner(), get);
    // One pod's Get is a List of that pod.
    let list = connection.v1().list(v1::ListPodResourcesRequest {}).await.unwrap().into_inner();
    assert_eq!(list.pod_resources, [pod]);
    let alpha = connection.alpha_list(DEADLINE).await.unwrap().into_inner();
    assert_eq!(alpha.pod_resources[0].name, "a");
    assert!(connection.v1alpha1().list(crate::proto::v1alpha1::ListPodResourcesRequest {}).await.is_ok());

    let asked = server.asked.lock().unwrap();
    let paths: Vec<_> = asked.iter().map(|a| a.path.as_str()).collect();
    assert_eq!(paths, [method::GET, method::LIST, method::ALPHA_LIST, method::ALPHA_LIST]);
    assert!(asked.iter().all(|a| a.authority == "localhost"));
}

#[tokio::test]
async fn the_servers_own_error_keeps_its_code_and_text() {
    let server = Server::start(Reply::Error("2", "pod X in namespace Y not found"));
    let connection = server.connect(Limits::default()).await;
    let Err(CallError::Status(status)) = connection.unary(method::GET, Bytes::new(), DEADLINE).await else {
        panic!("not a status")
    };
    assert_eq!(status, Status::new(Code::Unknown, "pod X in namespace Y not found"));
}

#[tokio::test]
async fn a_reply_over_the_limit_is_refused_and_the_connection_lives() {
    let server = Server::start(Reply::Message(Bytes::from(vec![0; 1001])));
    let connection = server.connect(Limits { max_reply: 1000, ..Limits::default() }).await;
    assert!(matches!(connection.unary(method::LIST, Bytes::new(), DEADLINE).await, Err(CallError::TooLarge { max: 1000 })));
    assert!(!connection.is_closed());
}

#[tokio::test]
async fn a_server_that_never_answers_ends_at_our_own_deadline() {
    let server = Server::start(Reply::Never);
    let connection = server.connect(Limits::default()).await;
    let deadline = Duration::from_millis(30);
    assert!(matches!(connection.unary(method::LIST, Bytes::new(), deadline).await, Err(CallError::Deadline(d)) if d == deadline));
}

#[tokio::test]
async fn what_a_server_says_at_its_deadline_arrives_before_ours() {
    let server = Server::start(Reply::AtDeadline("waited for the kubelet"));
    let connection = server.connect(Limits::default()).await;
    let Err(CallError::Status(status)) = connection.unary(method::LIST, Bytes::new(), Duration::from_secs(1)).await else {
        panic!("not the server's own words")
    };
    assert_eq!(status, Status::new(Code::Unavailable, "waited for the kubelet"));
}

#[tokio::test]
async fn a_stream_that_is_reset_at_the_deadline_is_a_late_reply_and_no_broken_connection() {
    let server = Server::start(Reply::ResetAtDeadline);
    let connection = server.connect(Limits::default()).await;
    let error = connection.unary(method::LIST, Bytes::new(), Duration::from_millis(500)).await.unwrap_err();
    assert!(matches!(error, CallError::Deadline(told) if told == Duration::from_millis(450)), "{error:?}");
    assert!(!connection.is_closed());
}

#[tokio::test]
async fn a_reply_that_is_cut_off_is_a_failure_of_the_transport() {
    let server = Server::start(Reply::CutOff);
    let connection = server.connect(Limits::default()).await;
    assert!(matches!(connection.unary(method::LIST, Bytes::new(), DEADLINE).await, Err(CallError::Transport(_))));
}

#[tokio::test]
async fn a_connection_that_the_server_closes_is_seen_closed_without_a_call() {
    let server = Server::start(Reply::Never);
    let connection = server.connect(Limits::default()).await;
    assert!(!connection.is_closed());
    server.task.abort();
    connection.closed().await;
    assert!(connection.is_closed());
    assert!(matches!(connection.unary(method::LIST, Bytes::new(), DEADLINE).await, Err(CallError::Transport(_))));
}

#[tokio::test]
async fn why_there_is_no_connection_is_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let connect = async |name: &str| Connection::connect(dir.path().join(name), Limits::default()).await.unwrap_err();

    assert!(matches!(connect("absent").await, ConnectError::NoSuchFile(_)));
    std::fs::write(dir.path().join("file"), "").unwrap();
    assert!(matches!(connect("file").await, ConnectError::NotASocket(_)));
    assert!(matches!(connect("file/below").await, ConnectError::NoSuchFile(_)));
    assert!(matches!(connect("").await, ConnectError::NotASocket(_)));
    drop(UnixListener::bind(dir.path().join("dead")).unwrap());
    assert!(matches!(connect("dead").await, ConnectError::Refused(_)));
}

/// Accepts one connection, writes `greeting`, and keeps it open or not.
async fn greeted_with(greeting: &'static [u8], keep: bool) -> ConnectError {
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join("s")).unwrap();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(greeting).await.unwrap();
        if keep {
            std::future::pending::<()>().await;
        }
    });
    let limits = Limits { handshake: Duration::from_secs(1), ..Limits::default() };
    let error = Connection::connect(dir.path().join("s"), limits).await.unwrap_err();
    server.abort();
    error
}

#[tokio::test]
async fn a_listener_that_speaks_something_else_fails_the_handshake() {
    assert!(matches!(greeted_with(b"", false).await, ConnectError::Handshake { .. }));
    assert!(matches!(greeted_with(b"HTTP/1.1 400 Bad Request\r\n\r\n", true).await, ConnectError::Handshake { .. }));
    assert!(matches!(greeted_with(b"hello\n", true).await, ConnectError::Handshake { .. }));
    // HEADERS where SETTINGS belongs.
    assert!(matches!(greeted_with(&[0, 0, 0, 1, 4, 0, 0, 0, 1], true).await, ConnectError::Handshake { .. }));
}

#[tokio::test]
async fn a_listener_that_says_nothing_times_out() {
    assert!(matches!(greeted_with(b"", true).await, ConnectError::TimedOut { .. }));
}
