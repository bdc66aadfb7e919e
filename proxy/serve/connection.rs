//! One connection: the layers around its socket, HTTP/2, and how it ends.

use std::future::Future;
use std::os::fd::AsFd;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::admission::Admitted;
use crate::answer::Answers;

use super::Limits;
use super::activity::{Activity, Heard, Verdict};
use super::gather::gather;
use super::mend::Mend;
use super::pause::{Pause, Turns};
use super::service::{self, Shared};
use super::session::Session;

/// Bytes that a client may send ahead on one stream, and on all of a connection together: requests are tiny.
const STREAM_WINDOW: u32 = 16 * 1024;
/// See [`STREAM_WINDOW`]. The protocol's own initial value, which cannot be made smaller.
const CONNECTION_WINDOW: u32 = 64 * 1024;
/// Most bytes of a request's headers, as HTTP/2 counts them.
const HEADER_LIST_SIZE: u32 = 16 * 1024;

/// How long a connection without any call so far is left alone before it is asked to go: its client has just come for its first one, and
/// simple clients take a GOAWAY in place of an answer for an error.
const FIRST_CALL: Duration = Duration::from_millis(500);

/// At the end of the grace, how long the last statuses may take to leave. A client that does not read is not waited for.
pub(super) const LAST_WORDS: Duration = Duration::from_millis(100);

/// Runs hyper's futures, one per call, on this thread: at once, and those that have to wait as tasks.
#[derive(Clone, Copy, Debug)]
struct Local;

/// HTTP/2 as we speak it.
fn http2(limits: &Limits) -> http2::Builder<Local> {
    let mut builder = http2::Builder::new(Local);
    builder
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(HEADER_LIST_SIZE)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        // gRPC has no use for a date.
        .auto_date_header(false);
    builder
}

/// Serves one connection until the client ends it, it has been idle for too long, or `stop` is called; then what is in flight is finished,
/// within the grace; a call that still waits then is told so. `admitted`: its client's limits, where there are any.
pub(super) async fn serve<T, A>(socket: T, admitted: Option<Admitted>, shared: Rc<Shared<A>>, stop: CancellationToken)
where
    T: AsyncRead + AsyncWrite + AsFd + Unpin + 'static,
    A: Answers,
{
    let limits = shared.limits;
    let activity = Activity::new(Instant::now());
    let session = Session::new(Rc::clone(&activity), admitted);
    let answering = {
        let session = Rc::clone(&session);
        service_fn(move |request| service::call(Rc::clone(&shared), Rc::clone(&session), request))
    };
    let io = Mend::new(Heard::new(Pause::new(socket, Rc::clone(&session)), Rc::clone(&activity)));
    let gathered = gather(io, |io| http2(&limits).serve_connection(TokioIo::new(io), answering));
    let mut connection = Turns::new(gathered, session);
    let mut stopped = pin!(stop.cancelled());
    let mut look = pin!(sleep_until(Instant::now()));
    loop {
        tokio::select! {
            biased;
            ended = &mut connection => return ended.unwrap_or_else(|error| debug!(%error, "connection ended")),
            () = stopped.as_mut() => break,
            () = look.as_mut() => match activity.verdict(Instant::now(), &limits) {
                Verdict::Keep(until) => look.as_mut().reset(until),
                Verdict::Mute => return debug!("connection closed: no HTTP/2 preface"),
                Verdict::Idle => break,
            },
        }
    }
    let end = Instant::now() + limits.grace;
    if !activity.was_called() && timeout_at(end.min(Instant::now() + FIRST_CALL), &mut connection).await.is_ok() {
        return;
    }
    connection.gathered.connection().graceful_shutdown();
    let mut drained = timeout_at(end, &mut connection).await;
    if drained.is_err() {
        activity.cut_off();
        drained = timeout(LAST_WORDS, connection).await;
    }
    match drained {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "connection ended while draining"),
        Err(_) => debug!("connection closed: it did not drain in time"),
    }
}

// === impl Local ===

impl<F: Future<Output = ()> + 'static> Executor<F> for Local {
    /// Most calls end the first time they are polled: their request has arrived whole, and their answer is ready-made. Those need no
    /// task, and their reply leaves with the poll that read the request. hyper holds no lock of its streams while it hands a call over.
    fn execute(&self, call: F) {
        let mut call = Box::pin(call);
        // Whoever has to wait is polled again as a task, and is woken as such: this first poll need not wake anybody.
        if call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            tokio::task::spawn_local(call);
        }
    }
}
