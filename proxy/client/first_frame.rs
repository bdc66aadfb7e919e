//! Sees whether the other side speaks HTTP/2 at all: hyper's client handshake writes its preface and asks for nothing back.
//!
//! RFC 9113, section 3.4: the server's first frame is SETTINGS. This layer looks at that frame's type as it passes and says so once.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::oneshot;

/// Where a frame's type stands in its header, and SETTINGS' type (RFC 9113, sections 4.1 and 6.5).
const TYPE_AT: usize = 3;
const SETTINGS: u8 = 4;

/// A socket that reports its first frame.
#[derive(Debug)]
pub(super) struct FirstFrame {
    stream: UnixStream,
    seen: usize,
    /// Gone once reported. Dropped unsent when something other than SETTINGS came.
    report: Option<oneshot::Sender<()>>,
}

// === impl FirstFrame ===

impl FirstFrame {
    /// The layer, and what resolves when SETTINGS came; an error there: something else came, or the connection ended.
    pub(super) fn new(stream: UnixStream) -> (Self, oneshot::Receiver<()>) {
        let (report, reported) = oneshot::channel();
        (Self { stream, seen: 0, report: Some(report) }, reported)
    }

    fn look(&mut self, read: &[u8]) {
        if let Some(&kind) = TYPE_AT.checked_sub(self.seen).and_then(|at| read.get(at))
            && let Some(report) = self.report.take().filter(|_| kind == SETTINGS)
        {
            // Nobody waits any more: then nobody needs to know.
            let _gone = report.send(());
        }
        self.seen = self.seen.saturating_add(read.len());
    }
}

impl AsyncRead for FirstFrame {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if self.report.is_some() {
            self.look(buf.filled().get(before..).unwrap_or_default());
        }
        polled
    }
}

impl AsyncWrite for FirstFrame {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
