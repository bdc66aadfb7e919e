//! Lets `h2` answer clients whose `:authority` it would refuse: a socket's path, percent-encoded or bare, a dial target, nothing at all.
//!
//! The kubelet takes any `:authority`; so do we, and nobody reads it. [`Mend`] sees a client's bytes as they pass from the socket to
//! `h2`, and changes in place the characters that are refused, each into one that is accepted and as long, in plain text and in Huffman
//! code alike. So no length changes, and no size in HPACK's table. It keeps no bytes back, save one where a change may reach back over
//! the end of what was read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub use self::frames::Frames;

mod authority;
mod frames;
mod hpack;
mod huffman;
mod order;
mod table;

#[cfg(test)]
mod tests;

/// A server's side of an HTTP/2 connection whose client's `:authority` is mended as it is read. Writing goes straight through.
#[derive(Debug)]
pub struct Mend<T> {
    io: T,
    frames: Frames,
    /// The last byte read, already seen by `frames`, not yet given to the reader.
    held: Option<u8>,
}

/// The client's bytes are not HTTP/2, or not HPACK: `h2` will say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Malformed;

/// A byte's Huffman code in HPACK and its length in bits. For [`crate::fuzzing`].
#[cfg(feature = "fuzzing")]
pub fn huffman_code(byte: u8) -> (u32, u8) {
    huffman::code(byte)
}

// === impl Mend ===

impl<T> Mend<T> {
    /// Wraps a connection of which no byte has been read yet.
    pub fn new(io: T) -> Self {
        Self { io, frames: Frames::default(), held: None }
    }

    /// The socket.
    pub fn get_ref(&self) -> &T {
        &self.io
    }
}

impl<T: AsyncRead + Unpin> Mend<T> {
    /// Reads, with the byte held back before what is read. `buf` has room for two bytes.
    fn poll_read_on(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let start = buf.filled().len();
        loop {
            buf.set_filled(start);
            if let Some(held) = self.held {
                buf.put_slice(&[held]);
            }
            let seen = buf.filled().len();
            let polled = Pin::new(&mut self.io).poll_read(cx, buf);
            let read = buf.filled().len() - seen;
            if !matches!(polled, Poll::Ready(Ok(()))) {
                buf.set_filled(start);
                return polled;
            }
            if read == 0 {
                // The end: nothing can change the byte any more.
                self.held = None;
                return Poll::Ready(Ok(()));
            }
            let bytes = &mut buf.filled_mut()[start..];
            self.frames.mend(bytes, seen - start);
            self.held = if self.frames.may_reach_back() { bytes.last().copied() } else { None };
            let end = buf.filled().len() - usize::from(self.held.is_some());
            buf.set_filled(end);
            if end > start {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Mend<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match buf.remaining() {
            0 => Poll::Ready(Ok(())),
            1 => {
                let mut two = [0; 2];
                let mut pair = ReadBuf::new(&mut two);
                ready!(this.poll_read_on(cx, &mut pair))?;
                if let [first, second @ ..] = pair.filled() {
                    buf.put_slice(&[*first]);
                    debug_assert!(
                        second.is_empty() || this.held.is_none(),
                        "two bytes are read where none is held back after them"
                    );
                    this.held = second.first().copied().or(this.held);
                }
                Poll::Ready(Ok(()))
            }
            _ => this.poll_read_on(cx, buf),
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Mend<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, buf)
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}
