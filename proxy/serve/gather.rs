//! Writes what one poll of a connection produces with one system call, after the poll.
//!
//! hyper writes each 16 KiB DATA frame by itself, and the trailers: a reply for 500 pods is 7 writes. Here they are appended to a queue
//! that goes to the socket when the connection has been polled, when it is full, and before the connection is shut down. Of an answer
//! that was [offered](offer) the queue holds references, no copies.
//!
//! All of it stays on one thread, with the connection: [`GatherIo`] is what the connection reads and writes, [`Gathered`] is what is
//! polled in the connection's place. An idle connection holds no buffer.

use std::cell::RefCell;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use self::waiting::{SLICES, Waiting};

pub use self::waiting::offer;

mod waiting;

/// The most bytes that wait to be written, for one connection. A reply for 500 pods (about 100 KiB) fits. Measured with `benches/gather.rs`:
/// half of it makes such a reply 1.4 times as dear, twice as much saves 5 % (15 % of a reply for 5,000 pods).
pub const LIMIT: usize = 128 * 1024;

/// What the connection reads from and writes to.
#[derive(Debug)]
pub struct GatherIo<T> {
    shared: Rc<RefCell<Shared<T>>>,
}

/// A connection over a [`GatherIo`], to be polled in its place. It is finished when the connection is, and all that this wrote has gone
/// to the socket or cannot.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Gathered<T, C: Future> {
    shared: Rc<RefCell<Shared<T>>>,
    connection: Pin<Box<C>>,
    output: Option<C::Output>,
}

#[derive(Debug)]
struct Shared<T> {
    io: T,
    /// What waits to be written. Without buffers where nothing waits.
    waiting: Waiting,
    /// Something was written that the socket has not been told to flush.
    unflushed: bool,
    /// The connection was refused a write since it was last polled.
    refused: bool,
    failure: Option<Failure>,
}

/// Why nothing can be written any more.
#[derive(Debug)]
struct Failure {
    kind: io::ErrorKind,
    /// The error itself, until the connection has been told.
    error: Option<io::Error>,
    /// It happened after the connection was polled.
    news: bool,
}

/// Writing has failed; `Shared::failure` says why.
struct Failed;

/// Puts a gathering layer between `io` and the connection that `connect` makes over it.
///
/// The connection must be polled through what is returned, and on no other task.
pub fn gather<T, C: Future>(io: T, connect: impl FnOnce(GatherIo<T>) -> C) -> Gathered<T, C> {
    let shared = Shared { io, waiting: Waiting::default(), unflushed: false, refused: false, failure: None };
    let shared = Rc::new(RefCell::new(shared));
    let connection = Box::pin(connect(GatherIo { shared: Rc::clone(&shared) }));
    Gathered { shared, connection, output: None }
}

// === impl Gathered ===

impl<T, C: Future> Gathered<T, C> {
    /// The connection, to ask it for a graceful shutdown.
    pub fn connection(&mut self) -> Pin<&mut C> {
        self.connection.as_mut()
    }

    /// Bytes that the socket has not taken yet.
    pub fn waiting(&self) -> usize {
        self.shared.borrow().waiting.len()
    }
}

// The connection is boxed, and its output is never pinned.
impl<T, C: Future> Unpin for Gathered<T, C> {}

impl<T: AsyncWrite + Unpin, C: Future> Future for Gathered<T, C> {
    type Output = C::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<C::Output> {
        let this = self.get_mut();
        loop {
            if this.output.is_none() {
                this.shared.borrow_mut().refused = false;
                if let Poll::Ready(output) = this.connection.as_mut().poll(cx) {
                    this.output = Some(output);
                }
            }
            let mut shared = this.shared.borrow_mut();
            let again = match shared.poll_drain(cx) {
                // The socket wakes the task when it can be written to.
                Poll::Pending => return Poll::Pending,
                // The connection was told to wait for room, and there is room now. Nothing else would wake it.
                Poll::Ready(Ok(())) => shared.refused,
                // It may be waiting for the client alone, and must hear of it.
                Poll::Ready(Err(Failed)) => shared.failure.as_mut().is_some_and(Failure::take_news),
            };
            if let Some(output) = this.output.take() {
                return Poll::Ready(output);
            }
            if !again {
                return Poll::Pending;
            }
        }
    }
}

// === impl Failure ===

impl Failure {
    fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }
}

// === impl Shared ===

impl<T> Shared<T> {
    /// Appends as much as there is room for.
    fn append(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(LIMIT - self.waiting.len());
        self.waiting.push(&bytes[..count]);
        count
    }

    /// Whether writing has failed, as the connection is told: the first time with the error itself.
    fn check(&mut self) -> io::Result<()> {
        match &mut self.failure {
            None => Ok(()),
            Some(failure) => Err(failure.error.take().unwrap_or_else(|| failure.kind.into())),
        }
    }
}

impl<T: AsyncWrite + Unpin> Shared<T> {
    /// Writes all that waits; an error is kept for the connection.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        if self.failure.is_some() {
            return Poll::Ready(Err(Failed));
        }
        let mut polled = self.poll_write_out(cx, 0);
        if self.unflushed && matches!(polled, Poll::Ready(Ok(()))) {
            polled = Pin::new(&mut self.io).poll_flush(cx);
            self.unflushed = polled.is_pending();
        }
        Poll::Ready(ready!(polled).map_err(|error| {
            self.failure = Some(Failure { kind: error.kind(), error: Some(error), news: true });
            self.waiting.clear();
            Failed
        }))
    }

    /// Writes until at most `down_to` bytes wait.
    fn poll_write_out(&mut self, cx: &mut Context<'_>, down_to: usize) -> Poll<io::Result<()>> {
        while self.waiting.len() > down_to {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = self.waiting.slices(&mut slices);
            match ready!(Pin::new(&mut self.io).poll_write_vectored(cx, &slices[..count]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => {
                    self.waiting.advance(count);
                    self.unflushed = true;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Makes sure that there is room for at least one byte.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        if self.waiting.len() < LIMIT {
            return Poll::Ready(Ok(()));
        }
        let polled = self.poll_write_out(cx, LIMIT / 2);
        self.refused = polled.is_pending();
        polled.map_err(|error| self.fail(error))
    }

    /// Nothing can be written any more, and the connection is told so with `error`.
    fn fail(&mut self, error: io::Error) -> io::Error {
        self.failure = Some(Failure { kind: error.kind(), error: None, news: false });
        self.waiting.clear();
        error
    }
}

// === impl GatherIo ===

impl<T: AsyncRead + Unpin> AsyncRead for GatherIo<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut shared = self.shared.borrow_mut();
        shared.check()?;
        Pin::new(&mut shared.io).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for GatherIo<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let mut shared = self.shared.borrow_mut();
        ready!(shared.poll_room(cx))?;
        Poll::Ready(Ok(shared.append(buf)))
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut shared = self.shared.borrow_mut();
        ready!(shared.poll_room(cx))?;
        Poll::Ready(Ok(bufs.iter().map(|buf| shared.append(buf)).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// At once: the bytes go out after the poll.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shared.borrow_mut().check())
    }

    /// After everything has been written.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut shared = self.shared.borrow_mut();
        shared.check()?;
        ready!(shared.poll_write_out(cx, 0)).map_err(|error| shared.fail(error))?;
        ready!(Pin::new(&mut shared.io).poll_shutdown(cx))?;
        shared.unflushed = false;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests;
