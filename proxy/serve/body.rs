//! The body of a reply: one piece of ready-made bytes, then the trailers. Nothing is copied and nothing encoded.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame, SizeHint};

use super::gather;
use super::session::Piece;

pub(super) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const OK: HeaderValue = HeaderValue::from_static("0");

/// A reply's body.
#[derive(Debug)]
pub(super) struct Reply {
    next: Next,
}

#[derive(Debug)]
enum Next {
    Message(Piece),
    Text(Bytes),
    Trailers,
    Nothing,
}

// === impl Reply ===

impl Reply {
    /// A framed message, then `grpc-status: 0`.
    pub(super) fn message(framed: Piece) -> Self {
        gather::offer(framed.bytes());
        Self { next: Next::Message(framed) }
    }

    /// A text without trailers, for whoever does not speak gRPC.
    pub(super) const fn text(text: Bytes) -> Self {
        Self { next: Next::Text(text) }
    }

    /// No body at all: hyper ends the stream with the headers, which is gRPC's "trailers-only".
    pub(super) const fn trailers_only() -> Self {
        Self { next: Next::Nothing }
    }
}

impl Body for Reply {
    type Data = Piece;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, Infallible>>> {
        let (frame, next) = match std::mem::replace(&mut self.next, Next::Nothing) {
            Next::Message(framed) => (Some(Ok(Frame::data(framed))), Next::Trailers),
            Next::Text(text) => (Some(Ok(Frame::data(text.into()))), Next::Nothing),
            Next::Trailers => {
                let mut trailers = HeaderMap::with_capacity(1);
                trailers.insert(GRPC_STATUS, OK);
                (Some(Ok(Frame::trailers(trailers))), Next::Nothing)
            }
            Next::Nothing => (None, Next::Nothing),
        };
        self.next = next;
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.next, Next::Nothing)
    }

    /// Not told, although known: hyper would add a `content-length`, which no gRPC client wants.
    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Buf as _;
    use http_body_util::BodyExt as _;

    #[tokio::test]
    async fn a_message_goes_out_as_the_same_bytes_and_then_status_zero() {
        let framed = Bytes::from(vec![7; 100]);
        let mut reply = Reply::message(framed.clone().into());
        let data = reply.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(data.chunk().as_ptr(), framed.as_ptr());
        assert!(!reply.is_end_stream());
        let trailers = reply.frame().await.unwrap().unwrap().into_trailers().unwrap();
        assert_eq!(trailers.get("grpc-status").unwrap(), "0");
        assert!(reply.is_end_stream());
        assert!(reply.frame().await.is_none());
    }

    #[test]
    fn a_reply_without_a_message_has_ended_before_it_begins() {
        assert!(Reply::trailers_only().is_end_stream());
    }
}
