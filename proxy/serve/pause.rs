//! Reads no more than it must: one connection's flood keeps no other waiting, and that of a client which goes on although it is refused
//! stays in its own socket.
//!
//! [`Pause`] is the layer next to the socket; [`Turns`] is polled in the connection's place and begins each of its turns.

use std::future::Future;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::gather::Gathered;
use super::session::Session;

/// How often a connection that is not read is looked at: its client may have gone.
const LOOK: Duration = Duration::from_millis(100);

/// A socket that is not always read although something is there.
#[derive(Debug)]
pub(super) struct Pause<T> {
    io: T,
    session: Rc<Session>,
    /// Wakes the task at the end of a pause, or for a look; made for the first one.
    timer: Option<Pin<Box<Sleep>>>,
}

/// A connection, polled in turns.
pub(super) struct Turns<T, C: Future> {
    pub(super) gathered: Gathered<T, C>,
    session: Rc<Session>,
}

/// Why a pause has ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Over,
    HungUp,
}

// === impl Turns ===

impl<T, C: Future> Turns<T, C> {
    pub(super) const fn new(gathered: Gathered<T, C>, session: Rc<Session>) -> Self {
        Self { gathered, session }
    }
}

impl<T: AsyncWrite + Unpin, C: Future> Future for Turns<T, C> {
    type Output = C::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<C::Output> {
        let this = self.get_mut();
        this.session.turn_begins();
        let polled = Pin::new(&mut this.gathered).poll(cx);
        this.session.turn_ends(this.gathered.waiting());
        polled
    }
}

// === impl Pause ===

impl<T> Pause<T> {
    pub(super) const fn new(io: T, session: Rc<Session>) -> Self {
        Self { io, session, timer: None }
    }
}

impl<T: AsFd> Pause<T> {
    fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        loop {
            let now = Instant::now();
            let Some(until) = self.session.unread_until(now) else { return Poll::Ready(End::Over) };
            if has_hung_up(&self.io) {
                return Poll::Ready(End::HungUp);
            }
            let until = until.min(now + LOOK);
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
            timer.as_mut().reset(until);
            ready!(timer.as_mut().poll(cx));
        }
    }
}

/// Whether the other end is closed. The kernel says so whether or not anything is left to be read.
pub(super) fn has_hung_up(socket: &impl AsFd) -> bool {
    let mut looked = [PollFd::new(socket, PollFlags::empty())];
    let polled = poll(&mut looked, Some(&Timespec::default()));
    polled.is_ok() && looked[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

impl<T: AsyncRead + AsFd + Unpin> AsyncRead for Pause<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.session.turn_is_over() {
            // Woken again when the others, and whatever has come for them meanwhile, have had their turn.
            let _pending = pin!(tokio::task::yield_now()).poll(cx);
            return Poll::Pending;
        }
        if this.session.may_be_unread() && ready!(this.poll_pause(cx)) == End::HungUp {
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let polled = Pin::new(&mut this.io).poll_read(cx, buf);
        this.session.read(buf.filled().len() - before);
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Pause<T> {
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
mod tests;
