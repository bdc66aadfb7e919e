//! The connection as the tower service that tonic's clients call.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use tonic::body::Body;
use tower_service::Service;

/// A handle on one connection; a clone shares it. It never dials.
#[derive(Clone, Debug)]
pub struct Channel(pub(super) SendRequest<Body>);

// === impl Channel ===

impl Channel {
    /// The connection is closed, or closing: no further call can be made.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

impl Service<Request<Body>> for Channel {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Incoming>, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}
