//! What a connection has been doing, so that it can be closed when it does nothing.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Limits;

/// What a client sends first (RFC 9113, 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What one connection has been doing. Its calls and its socket write here, its task reads.
#[derive(Debug)]
pub(super) struct Activity {
    opened: Instant,
    bytes_read: Cell<usize>,
    open_calls: Cell<usize>,
    last_call_ended: Cell<Option<Instant>>,
    cut_off: CancellationToken,
}

/// What is to be done with a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing; look again then.
    Keep(Instant),
    /// It has not said in time that it speaks HTTP/2.
    Mute,
    /// It has had no call for too long.
    Idle,
}

/// A call in progress.
#[derive(Debug)]
pub(super) struct Busy(Rc<Activity>);

/// A socket that tells how much was read from it, and ends where its client does not speak HTTP/2.
#[derive(Debug)]
pub(super) struct Heard<T> {
    io: T,
    activity: Rc<Activity>,
}

// === impl Activity ===

impl Activity {
    pub(super) fn new(now: Instant) -> Rc<Self> {
        Rc::new(Self {
            opened: now,
            bytes_read: Cell::new(0),
            open_calls: Cell::new(0),
            last_call_ended: Cell::new(None),
            cut_off: CancellationToken::new(),
        })
    }

    /// A call begins; it ends when what is returned is dropped.
    pub(super) fn call(self: &Rc<Self>) -> Busy {
        self.open_calls.set(self.open_calls.get() + 1);
        Busy(Rc::clone(self))
    }

    /// Whether there has been any call so far.
    pub(super) fn was_called(&self) -> bool {
        self.open_calls.get() > 0 || self.last_call_ended.get().is_some()
    }

    /// The calls that still wait have to end now.
    pub(super) fn cut_off(&self) {
        self.cut_off.cancel();
    }

    /// Until the calls that still wait have to end.
    pub(super) async fn is_cut_off(&self) {
        self.cut_off.cancelled().await;
    }

    pub(super) fn verdict(&self, now: Instant, limits: &Limits) -> Verdict {
        if self.bytes_read.get() < PREFACE.len() {
            let until = self.opened + limits.handshake_time;
            return if now < until { Verdict::Keep(until) } else { Verdict::Mute };
        }
        if self.open_calls.get() > 0 {
            return Verdict::Keep(now + limits.idle_time);
        }
        let until = self.last_call_ended.get().unwrap_or(self.opened) + limits.idle_time;
        if now < until { Verdict::Keep(until) } else { Verdict::Idle }
    }
}

// === impl Busy ===

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.open_calls.set(self.0.open_calls.get() - 1);
        self.0.last_call_ended.set(Some(Instant::now()));
    }
}

// === impl Heard ===

impl<T> Heard<T> {
    pub(super) const fn new(io: T, activity: Rc<Activity>) -> Self {
        Self { io, activity }
    }
}

impl<T: AsyncRead + Unpin> Heard<T> {
    /// Reads what is there and throws it away, up to a bound. A socket that is closed with bytes unread resets its client, who then
    /// cannot tell a refusal from a crash.
    fn throw_away(&mut self, cx: &mut Context<'_>) {
        const AT_MOST: usize = 64;
        let mut scratch = [0; 1024];
        for _ in 0..AT_MOST {
            let mut buf = ReadBuf::new(&mut scratch);
            let read = Pin::new(&mut self.io).poll_read(cx, &mut buf);
            if !matches!(read, Poll::Ready(Ok(()))) || buf.filled().is_empty() {
                break;
            }
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Heard<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = Pin::new(&mut this.io).poll_read(cx, buf);
        let new = &buf.filled()[before..];
        let total = this.activity.bytes_read.get();
        if let Some(expected) = PREFACE.get(total..) {
            let shared = expected.len().min(new.len());
            if new[..shared] != expected[..shared] {
                buf.set_filled(before);
                this.throw_away(cx);
                return Poll::Ready(Ok(()));
            }
        }
        this.activity.bytes_read.set(total.saturating_add(new.len()));
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Heard<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::io::AsyncReadExt as _;
    use tokio::time::advance;

    const SECOND: Duration = Duration::from_secs(1);

    fn limits() -> Limits {
        Limits { handshake_time: 10 * SECOND, idle_time: 60 * SECOND, ..Limits::default() }
    }

    async fn hear(activity: &Rc<Activity>, bytes: usize) {
        Heard::new(&PREFACE[..bytes], Rc::clone(activity)).read_to_end(&mut Vec::new()).await.unwrap();
    }

    async fn greeted() -> Rc<Activity> {
        let activity = Activity::new(Instant::now());
        hear(&activity, PREFACE.len()).await;
        activity
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_no_preface_is_mute_after_the_handshake_time() {
        let activity = Activity::new(Instant::now());
        let until = Instant::now() + 10 * SECOND;
        assert_eq!(activity.verdict(Instant::now(), &limits()), Verdict::Keep(until));
        hear(&activity, PREFACE.len() - 1).await;
        advance(10 * SECOND).await;
        assert_eq!(activity.verdict(Instant::now(), &limits()), Verdict::Mute);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_calls_is_idle_after_the_idle_time() {
        let activity = greeted().await;
        advance(59 * SECOND).await;
        assert_eq!(activity.verdict(Instant::now(), &limits()), Verdict::Keep(Instant::now() + SECOND));
        advance(SECOND).await;
        assert_eq!(activity.verdict(Instant::now(), &limits()), Verdict::Idle);
    }

    #[tokio::test(start_paused = true)]
    async fn idleness_is_counted_from_the_end_of_the_last_call() {
        let activity = greeted().await;
        let call = activity.call();
        advance(600 * SECOND).await;
        assert_eq!(activity.verdict(Instant::now(), &limits()), Verdict::Keep(Instant::now() + 60 * SECOND));
        drop(call);
        advance(59 * SECOND).await;
        assert!(matches!(activity.verdict(Instant::now(), &limits()), Verdict::Keep(_)));
        advance(SECOND).await;
        assert_eq!(activity.verdict(Instant::now(), &limits()), Verdict::Idle);
    }

    #[tokio::test]
    async fn what_is_not_http2_is_read_to_the_end_and_not_passed_on() {
        for (sent, passed) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], &b""[..]),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n and more", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n and more"),
            (b"PRI * HTTP/3.0\r\n\r\nSM\r\n\r\n", b""),
            (b"PRI", b"PRI"),
        ] {
            let mut heard = Heard::new(sent, Activity::new(Instant::now()));
            let mut got = Vec::new();
            heard.read_to_end(&mut got).await.unwrap();
            assert_eq!(got, passed);
            assert_eq!(heard.io, b"", "nothing is left unread");
        }
    }
}
