//! A real hyper server behind [`Mend`] and the gathering layer, and what it makes of a client's bytes.

use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::LocalSet;

use crate::serve::gather::gather;
use crate::serve::mend::Mend;

/// How one stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// `:status` 200.
    Answered,
    /// `RST_STREAM` with this code.
    Reset(u32),
}

/// What came of a connection.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// By their numbers.
    pub(super) streams: Vec<(u32, Ended)>,
    /// Each request's `:authority`, in the order of their arrival.
    pub(super) authorities: Vec<Option<String>>,
    /// The code of a GOAWAY that names an error.
    pub(super) gone: Option<u32>,
}

#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        drop(tokio::task::spawn_local(async move { drop(future.await) }));
    }
}

/// Serves a client that writes `bytes`, and hangs up when nothing more comes.
pub(super) fn serve(bytes: &[u8]) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let (client, server) = tokio::io::duplex(1 << 20);
        let seen = Rc::new(RefCell::new(Vec::new()));
        let authorities = Rc::clone(&seen);
        let service = service_fn(move |request: Request<_>| {
            authorities.borrow_mut().push(request.uri().authority().map(ToString::to_string));
            async { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"answer")))) }
        });
        let connection =
            gather(Mend::new(server), |io| http2::Builder::new(LocalExecutor).serve_connection(TokioIo::new(io), service));
        let served = tokio::task::spawn_local(connection);
        let (mut from, mut to) = tokio::io::split(client);
        let bytes = bytes.to_vec();
        // A server that has said GOAWAY need not read on.
        let written = tokio::task::spawn_local(async move { drop(to.write_all(&bytes).await) });
        let mut reply = Vec::new();
        // The clock stands still while anybody has anything to do.
        while let Ok(Ok(1..)) = tokio::time::timeout(Duration::from_secs(1), from.read_buf(&mut reply)).await {}
        written.abort();
        drop((from, written.await));
        drop(served.await.unwrap());
        let mut outcome = Outcome { authorities: seen.take(), ..Outcome::default() };
        outcome.read(&reply);
        outcome
    })
}

// === impl Outcome ===

impl Outcome {
    pub(super) fn answered(&self) -> usize {
        self.streams.iter().filter(|(_, ended)| *ended == Ended::Answered).count()
    }

    fn read(&mut self, mut reply: &[u8]) {
        while let Some((head, rest)) = reply.split_at_checked(9) {
            let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let stream = u32::from_be_bytes(head[5..9].try_into().unwrap());
            let (payload, rest) = rest.split_at(len);
            match head[3] {
                // Index 8 of the static table.
                1 if payload[0] == 0x88 => self.streams.push((stream, Ended::Answered)),
                3 => self.streams.push((stream, Ended::Reset(u32::from_be_bytes(payload.try_into().unwrap())))),
                7 => self.gone = Some(u32::from_be_bytes(payload[4..8].try_into().unwrap())).filter(|code| *code != 0),
                _ => {}
            }
            reply = rest;
        }
        assert!(reply.is_empty(), "a frame was cut off");
        self.streams.sort_by_key(|(stream, _)| *stream);
    }
}
