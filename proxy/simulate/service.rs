//! One call: from an HTTP/2 request to the kubelet's answer, or to a broken one where a test asked for that.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use prost::Message;
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::CancellationToken;

use super::fault::Broken;
use super::pod::PodKey;
use super::profile::{Features, Support};
use super::state::Shared;
use crate::grpc::{Code, PREFIX_LEN, Status, prefix};
use crate::proto::v1;

/// The four calls of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `v1.PodResourcesLister/List`
    List,
    /// `v1.PodResourcesLister/GetAllocatableResources`
    Allocatable,
    /// `v1.PodResourcesLister/Get`
    Get,
    /// `v1alpha1.PodResourcesLister/List`
    AlphaList,
}

/// The parts of a reply, each sent when its turn comes.
pub(super) struct ReplyBody(VecDeque<Step>);

enum Step {
    Data(Bytes),
    Trailers(HeaderMap),
    /// Lets what was sent so far reach the client.
    Pause(Pin<Box<Sleep>>),
    Reset,
    Close(CancellationToken),
    Stall,
}

/// The largest request that grpc-go takes by default.
const LARGEST_REQUEST: usize = 4 << 20;

/// Long enough for what was sent to have left.
const PAUSE: Duration = Duration::from_millis(20);

// === impl Method ===

impl Method {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::List, Self::Allocatable, Self::Get, Self::AlphaList];

    /// The request's path.
    pub const fn path(self) -> &'static str {
        match self {
            Self::List => "/v1.PodResourcesLister/List",
            Self::Allocatable => "/v1.PodResourcesLister/GetAllocatableResources",
            Self::Get => "/v1.PodResourcesLister/Get",
            Self::AlphaList => "/v1alpha1.PodResourcesLister/List",
        }
    }

    /// The method of a path, or grpc-go's words for there being none.
    fn find(path: &str, features: &Features) -> Result<Self, Status> {
        let missing = |method: &Self| match method {
            Self::Get => features.get == Support::Missing,
            Self::Allocatable => features.allocatable == Support::Missing,
            Self::List | Self::AlphaList => false,
        };
        if let Some(method) = Self::ALL.into_iter().find(|method| method.path() == path && !missing(method)) {
            return Ok(method);
        }
        let text = match path.strip_prefix('/').unwrap_or(path).rsplit_once('/') {
            Some((service @ ("v1.PodResourcesLister" | "v1alpha1.PodResourcesLister"), method)) => {
                format!("unknown method {method} for service {service}")
            }
            Some((service, _)) => format!("unknown service {service}"),
            None => format!("malformed method name: {path:?}"),
        };
        Err(Status::new(Code::Unimplemented, text))
    }
}

/// Answers one request. Never fails: what goes wrong is an answer too.
pub(super) async fn call(
    shared: Arc<Shared>,
    connection: CancellationToken,
    request: Request<Incoming>,
) -> Result<Response<ReplyBody>, Infallible> {
    let is_grpc = request.headers().get(header::CONTENT_TYPE).is_some_and(|is| is.as_bytes().starts_with(b"application/grpc"));
    if !is_grpc {
        let mut response = Response::new(ReplyBody(VecDeque::new()));
        *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Ok(response);
    }
    let ended = tokio::select! {
        answered = answer(&shared, &connection, request) => answered,
        // The connection goes away with everything on it.
        () = connection.cancelled() => Err(Status::new(Code::Unavailable, "the kubelet is stopping")),
    };
    Ok(ended.unwrap_or_else(|status| trailers_only(&status)))
}

async fn answer(
    shared: &Shared,
    connection: &CancellationToken,
    request: Request<Incoming>,
) -> Result<Response<ReplyBody>, Status> {
    let method = Method::find(request.uri().path(), &shared.features)?;
    let pod = read(method, request.into_body()).await?;
    shared.counters.call(method);
    if !shared.state().grant(Instant::now()) {
        shared.counters.refuse();
        return Err(Status::new(Code::ResourceExhausted, "rejected by rate limit"));
    }
    let (fault, latency) = {
        let mut state = shared.state();
        (state.faults.next(method), state.latency)
    };
    // Fails only when the sender is gone, and it is ours.
    drop(shared.hang.subscribe().wait_for(|hang| !hang).await);
    if !latency.is_zero() {
        sleep(latency).await;
    }
    let stage = *shared.stage.borrow();
    let message = shared.state().answer(method, &pod, &shared.features, stage);
    match fault {
        Some(Broken::Status(status)) => Err(status),
        Some(Broken::Hang) => std::future::pending().await,
        Some(broken) => Ok(respond(ReplyBody::broken(&broken, message.unwrap_or_default(), connection))),
        None => Ok(respond(ReplyBody::well_formed(message?))),
    }
}

/// The pod that is asked for; empty for the methods that ask for none.
async fn read(method: Method, body: Incoming) -> Result<PodKey, Status> {
    let internal = |text: String| Status::new(Code::Internal, text);
    let framed = match Limited::new(body, PREFIX_LEN + LARGEST_REQUEST).collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(error) => return Err(Status::new(Code::ResourceExhausted, format!("grpc: failed to receive message: {error}"))),
    };
    let message = match framed.as_ref() {
        [0, a, b, c, d, message @ ..] if u32::from_be_bytes([*a, *b, *c, *d]) as usize == message.len() => message,
        _ => return Err(internal(format!("grpc: a request of {} bytes is not one uncompressed message", framed.len()))),
    };
    if method != Method::Get {
        return Ok(PodKey::new("", ""));
    }
    let get = v1::GetPodResourcesRequest::decode(message)
        .map_err(|error| internal(format!("grpc: error unmarshalling request: {error}")))?;
    Ok(PodKey::new(get.pod_namespace, get.pod_name))
}

fn respond(body: ReplyBody) -> Response<ReplyBody> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// A status without a message, in the headers alone.
fn trailers_only(status: &Status) -> Response<ReplyBody> {
    let mut response = respond(ReplyBody(VecDeque::new()));
    let encoded = tonic::Status::new(status.code, status.message.clone()).add_header(response.headers_mut());
    debug_assert!(encoded.is_ok(), "a percent-encoded text is a header value");
    response
}

// === impl ReplyBody ===

impl ReplyBody {
    fn well_formed(message: Bytes) -> Self {
        Self::of([Step::Data(framed(message, 0)), Step::Trailers(ok())])
    }

    fn broken(broken: &Broken, message: Bytes, connection: &CancellationToken) -> Self {
        let whole = framed(message.clone(), 0);
        let half = Step::Data(whole.slice(..PREFIX_LEN + message.len() / 2));
        match broken {
            Broken::Truncated => Self::of([half, Step::Trailers(ok())]),
            Broken::WrongLength(by) => Self::of([Step::Data(framed(message, *by)), Step::Trailers(ok())]),
            Broken::Garbage => Self::well_formed(Bytes::from(vec![0xff; 1024])),
            Broken::Large(len) => Self::well_formed(large(*len)),
            Broken::DropConnection => Self::of([half, pause(), Step::Close(connection.clone())]),
            Broken::Reset => Self::of([half, pause(), Step::Reset]),
            Broken::NoTrailers => Self::of([Step::Data(whole)]),
            // These two end before there is a body.
            Broken::Status(_) | Broken::Hang => Self::of([Step::Stall]),
        }
    }

    fn of<const N: usize>(steps: [Step; N]) -> Self {
        Self(VecDeque::from(steps))
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        loop {
            match self.0.pop_front() {
                None => return Poll::Ready(None),
                Some(Step::Data(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Some(Step::Trailers(trailers)) => return Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
                Some(Step::Reset) => return Poll::Ready(Some(Err(io::Error::other("reset on purpose")))),
                Some(Step::Pause(mut time)) => {
                    if time.as_mut().poll(cx).is_pending() {
                        self.0.push_front(Step::Pause(time));
                        return Poll::Pending;
                    }
                }
                Some(Step::Close(connection)) => {
                    connection.cancel();
                    self.0.push_front(Step::Stall);
                }
                Some(Step::Stall) => {
                    self.0.push_front(Step::Stall);
                    return Poll::Pending;
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }
}

fn pause() -> Step {
    Step::Pause(Box::pin(sleep(PAUSE)))
}

fn ok() -> HeaderMap {
    HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))])
}

/// The message behind its prefix, which is wrong by so many bytes.
fn framed(message: Bytes, wrong_by: i32) -> Bytes {
    let len = u32::try_from(message.len()).unwrap_or(u32::MAX).saturating_add_signed(wrong_by);
    let mut framed = BytesMut::with_capacity(PREFIX_LEN + message.len());
    framed.put_slice(&prefix(len));
    framed.put(message);
    framed.freeze()
}

/// A List reply of at least `len` bytes.
fn large(len: usize) -> Bytes {
    const NAME_LEN: usize = 32 * 1024;
    let pods = len.div_ceil(NAME_LEN);
    let pod =
        |i| v1::PodResources { name: format!("{i:0NAME_LEN$}"), namespace: "large".to_owned(), ..v1::PodResources::default() };
    v1::ListPodResourcesResponse { pod_resources: (0..pods).map(pod).collect() }.encode_to_vec().into()
}
