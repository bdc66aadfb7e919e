//! One call: from a request's head and body to a reply.
//!
//! The way of a good call allocates only what hyper needs to carry a reply: its header map and its trailers. Everything that has to wait
//! goes through a box, so that the future of a call that does not wait stays small.

use std::convert::Infallible;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, request};
use http_body::Body;
use http_body_util::BodyExt as _;
use prost::Message as _;
use tokio::time::{Instant, timeout_at};

use crate::admission::{Admitted, Call, Refused};
use crate::answer::{Answer, Answers, Ask, Freshness};
use crate::grpc::{Code, Status, Unary, encode_message, is_grpc, parse_timeout};
use crate::proto::{v1, v1alpha1};

use super::body::{GRPC_STATUS, Reply};
use super::door::Door;
use super::lobby::{Caller, Waiting};
use super::metadata::{self, Labels};
use super::session::{Piece, Session};
use super::stats::{Stats, WorkerStats};
use super::{Limits, Method, ServingConfig};

const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const APPLICATION_GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// What a request gets that is no POST.
const NOT_A_POST: &str = "This is a gRPC server for the kubelet's podresources API; every call is a POST.\n";

/// What the connections of one worker share.
#[derive(Debug)]
pub(super) struct Shared<A> {
    answers: A,
    pub(super) limits: Limits,
    labels: Labels,
    door: Option<Door>,
    stats: Arc<Stats>,
    /// Which of the workers this is.
    index: usize,
}

/// A call that gets no answer, and how that is said.
#[derive(Debug)]
enum Refusal {
    /// In gRPC.
    Status(Status),
    /// In gRPC, with what the client may have and when to come again.
    Admission(Box<Refused>),
    /// In gRPC, with the encoding that would have been accepted.
    Compressed(Status),
    /// In gRPC, and in HTTP as 415, as the protocol asks of us.
    NotGrpc(Status),
    /// In HTTP alone: no gRPC client sends anything but a POST. A person with a browser or curl does.
    NotAPost,
}

/// Answers one request.
pub(super) async fn call<A, B>(
    shared: Rc<Shared<A>>,
    session: Rc<Session>,
    request: Request<B>,
) -> Result<Response<Reply>, Infallible>
where
    A: Answers,
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let arrived = Instant::now();
    let (head, body) = request.into_parts();
    let method = Method::at(head.uri.path());
    let counted = shared.worker_stats().begin(method.as_ref().ok().copied());
    let _busy = session.activity.call();
    let answered = match session.call(method.as_ref().ok().copied(), arrived) {
        Ok(call) => tokio::select! {
            biased;
            answer = shared.answer(arrived, &head, method, body, &session, call.as_ref()) => answer,
            () = session.activity.is_cut_off() => Err(shutting_down(&shared.limits).into()),
        },
        // Still in flight until that is said.
        Err((_call, refused)) => Err(refused.into()),
    };
    Ok(match answered {
        Ok((piece, freshness)) => {
            counted.replied(piece.remaining());
            replied(piece, &freshness, &shared.labels)
        }
        Err(refusal) => {
            counted.failed(refusal.code());
            refused(refusal)
        }
    })
}

// === impl Shared ===

impl<A: Answers> Shared<A> {
    pub(super) fn new(answers: A, config: ServingConfig, door: Option<Door>, stats: Arc<Stats>, index: usize) -> Self {
        Self { answers, limits: config.limits, labels: Labels::new(config.instance), door, stats, index }
    }

    /// Lets a connection in, with its client's limits where there are any. `None`: it may not stay.
    pub(super) async fn enter(&self, socket: OwnedFd, waiting: Waiting) -> Option<(OwnedFd, Option<Admitted>)> {
        let Some(door) = &self.door else { return Some((socket, None)) };
        let (socket, admitted) = door.enter(socket, waiting, &self.stats).await?;
        Some((socket, Some(admitted)))
    }

    /// A connection of this caller that was let in has ended.
    pub(super) fn left(&self, caller: Caller) {
        self.stats.accept.lobby.left(caller);
    }

    pub(super) fn worker_stats(&self) -> &WorkerStats {
        &self.stats.workers[self.index]
    }

    async fn answer<B>(
        &self,
        arrived: Instant,
        head: &request::Parts,
        method: Result<Method, Status>,
        body: B,
        session: &Rc<Session>,
        call: Option<&Call<'_>>,
    ) -> Result<(Piece, Freshness), Refusal>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        if let Err(refusal) = is_a_call(head) {
            Box::pin(self.hear_out(arrived, body)).await;
            return Err(refusal);
        }
        let patience = match head.headers.get(GRPC_TIMEOUT) {
            None => self.limits.default_deadline,
            Some(value) => parse_timeout(value.as_bytes())
                .map_err(|error| Status::new(Code::Internal, format!("malformed grpc-timeout: {error}")))?,
        };
        let deadline = later(arrived, patience);
        let method = method?;
        is_not_compressed(&head.headers)?;
        let mut terms = metadata::terms(&head.headers)?;
        let message = self.message(arrived, deadline, body).await?;
        let now = Instant::now();
        if let Some(call) = call {
            call.pay_for(&mut terms, now)?;
        }
        let ask = ask(method, message)?;
        let Answer { framed, freshness } = match self.answers.at_once(&ask, &terms) {
            Ok(answer) => answer?,
            Err(wait) => Box::pin(self.answers.wait(ask, terms, session.who(), wait, deadline)).await?,
        };
        Ok((session.piece(framed, now)?, freshness))
    }

    /// Reads a request that is no call to its end, within the limits: to clients that are not of gRPC, a reply in the middle of a request
    /// looks like an accident.
    async fn hear_out<B>(&self, arrived: Instant, mut body: B)
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let read = async {
            let mut left = self.limits.request_bytes;
            while let Some(Ok(frame)) = body.frame().await {
                match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                    Some(rest) => left = rest,
                    None => break,
                }
            }
        };
        // Late or not, the reply is the same.
        let _ = timeout_at(later(arrived, self.limits.request_time), read).await;
    }

    /// Reads the request's one message, whole, within its limits of size and time.
    async fn message<B>(&self, arrived: Instant, deadline: Instant, mut body: B) -> Result<Bytes, Status>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let mut unary = Unary::new(self.limits.request_bytes);
        let read = async {
            while !body.is_end_stream() {
                match body.frame().await {
                    None => break,
                    Some(Ok(frame)) => {
                        if let Ok(piece) = frame.into_data() {
                            unary.push(piece)?;
                        }
                    }
                    Some(Err(error)) => return Err(Status::new(Code::Internal, format!("the request broke off: {error}"))),
                }
            }
            Ok(())
        };
        let until = deadline.min(later(arrived, self.limits.request_time));
        let Ok(read) = timeout_at(until, read).await else {
            let waited = humantime::format_duration(until - arrived);
            let text = format!("the request message did not arrive whole within {waited}");
            return Err(Status::new(Code::DeadlineExceeded, text));
        };
        read?;
        Ok(unary.finish()?)
    }
}

/// What a call gets that still waits at the end of the grace.
#[cold]
fn shutting_down(limits: &Limits) -> Status {
    let grace = humantime::format_duration(limits.grace);
    Status::new(Code::Unavailable, format!("podresources-proxy: shutting down; there was no answer within the grace of {grace}"))
}

/// `from` plus `by`; where that is more than a clock can hold, a year will do.
fn later(from: Instant, by: Duration) -> Instant {
    const YEAR: Duration = Duration::from_hours(365 * 24);
    from.checked_add(by).unwrap_or_else(|| from + YEAR)
}

/// Whether the head is that of a gRPC call at all.
fn is_a_call(head: &request::Parts) -> Result<(), Refusal> {
    if head.method != http::Method::POST {
        return Err(Refusal::NotAPost);
    }
    let content_type = head.headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    if is_grpc(content_type) {
        return Ok(());
    }
    let shown = String::from_utf8_lossy(&content_type[..content_type.len().min(100)]);
    let text = format!("invalid gRPC request content-type {shown:?}; expected application/grpc");
    Err(Refusal::NotGrpc(Status::new(Code::InvalidArgument, text)))
}

fn is_not_compressed(headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(encoding) = headers.get(GRPC_ENCODING).filter(|encoding| *encoding != "identity") else { return Ok(()) };
    let encoding = encoding.as_bytes();
    let shown = String::from_utf8_lossy(&encoding[..encoding.len().min(100)]);
    let text = format!("grpc: Decompressor is not installed for grpc-encoding {shown:?}");
    Err(Refusal::Compressed(Status::new(Code::Unimplemented, text)))
}

/// What the message asks. The messages of all methods but Get have no field, so an empty one, as every client sends, is not even looked at.
pub(super) fn ask(method: Method, message: Bytes) -> Result<Ask, Status> {
    let read = match method {
        Method::Get => v1::GetPodResourcesRequest::decode(message)
            .map(|request| Ask::Get { namespace: request.pod_namespace, name: request.pod_name }),
        Method::List if message.is_empty() => Ok(Ask::List),
        Method::List => v1::ListPodResourcesRequest::decode(message).map(|_| Ask::List),
        Method::Allocatable if message.is_empty() => Ok(Ask::Allocatable),
        Method::Allocatable => v1::AllocatableResourcesRequest::decode(message).map(|_| Ask::Allocatable),
        Method::AlphaList if message.is_empty() => Ok(Ask::AlphaList),
        Method::AlphaList => v1alpha1::ListPodResourcesRequest::decode(message).map(|_| Ask::AlphaList),
    };
    read.map_err(|error| Status::new(Code::Internal, format!("grpc: error unmarshalling request: {error}")))
}

fn replied(piece: Piece, freshness: &Freshness, labels: &Labels) -> Response<Reply> {
    let mut response = Response::new(Reply::message(piece));
    let headers = response.headers_mut();
    headers.reserve(1 + metadata::MOST);
    headers.insert(CONTENT_TYPE, APPLICATION_GRPC);
    labels.write(freshness, headers);
    response
}

#[cold]
fn refused(refusal: Refusal) -> Response<Reply> {
    let mut response = Response::new(Reply::trailers_only());
    let status = match refusal {
        Refusal::Status(status) => status,
        Refusal::Admission(refused) => {
            metadata::refused(&refused, response.headers_mut());
            refused.status()
        }
        Refusal::Compressed(status) => {
            response.headers_mut().insert(GRPC_ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            status
        }
        Refusal::NotGrpc(status) => {
            *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            status
        }
        Refusal::NotAPost => {
            *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
            *response.body_mut() = Reply::text(Bytes::from_static(NOT_A_POST.as_bytes()));
            return response;
        }
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, APPLICATION_GRPC);
    headers.insert(GRPC_STATUS, HeaderValue::from(status.code as i32));
    // A percent-encoded text has nothing that a header could not hold.
    if let Ok(message) = HeaderValue::from_str(&encode_message(&status.message)) {
        headers.insert(GRPC_MESSAGE, message);
    }
    response
}

// === impl Refusal ===

impl Refusal {
    fn code(&self) -> Code {
        match self {
            Self::Status(status) | Self::Compressed(status) | Self::NotGrpc(status) => status.code,
            Self::Admission(refused) => refused.status().code,
            Self::NotAPost => Code::Internal,
        }
    }
}

impl From<Refused> for Refusal {
    #[cold]
    fn from(refused: Refused) -> Self {
        Self::Admission(Box::new(refused))
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}
