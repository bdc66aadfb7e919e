use std::cell::Cell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use tokio::io::AsyncWriteExt as _;

use super::*;

/// What a fake socket did, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Did {
    Wrote(usize),
    Full,
    Flushed,
    Shut,
}

/// A socket that does with each write what it was told to; with no word left, it takes everything.
#[derive(Debug, Default)]
struct Socket {
    /// How much to take; 0: nothing, until woken.
    takes: VecDeque<usize>,
    error: Option<io::ErrorKind>,
    did: Vec<Did>,
    bytes: Vec<u8>,
    waker: Option<Waker>,
}

#[derive(Clone, Debug, Default)]
struct Handle(Rc<RefCell<Socket>>);

impl AsyncRead for Handle {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Handle {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let mut socket = self.0.borrow_mut();
        if let Some(kind) = socket.error {
            return Poll::Ready(Err(kind.into()));
        }
        let count = socket.takes.pop_front().unwrap_or(usize::MAX).min(buf.len());
        if count == 0 {
            socket.did.push(Did::Full);
            socket.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        socket.did.push(Did::Wrote(count));
        socket.bytes.extend(&buf[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.poll_write(cx, &bufs.iter().flat_map(|buf| buf.iter().copied()).collect::<Vec<_>>())
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().did.push(Did::Flushed);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().did.push(Did::Shut);
        Poll::Ready(Ok(()))
    }
}

impl Handle {
    fn with(takes: &[usize]) -> Self {
        let this = Self::default();
        this.0.borrow_mut().takes = takes.iter().copied().collect();
        this
    }

    fn did(&self) -> Vec<Did> {
        self.0.borrow().did.clone()
    }
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Polls once; whether it is finished.
fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn what_one_poll_writes_goes_out_in_one_write_after_it() {
    let socket = Handle::default();
    let inner = socket.clone();
    let mut gathered = gather(socket.clone(), |mut io| async move {
        io.write_all(b"head").await?;
        io.flush().await?;
        assert_eq!(io.write_vectored(&[IoSlice::new(b"da"), IoSlice::new(b"ta")]).await?, 4);
        io.write_all(b"trailers").await?;
        io.flush().await?;
        assert_eq!(inner.did(), []);
        std::future::pending::<io::Result<()>>().await
    });
    assert!(poll(&mut gathered).is_pending());
    assert_eq!(socket.did(), [Did::Wrote(16), Did::Flushed]);
    assert_eq!(socket.0.borrow().bytes, b"headdatatrailers");
    assert_eq!(gathered.shared.borrow().waiting.held(), 0, "an idle connection holds no buffer");
    assert!(poll(&mut gathered).is_pending());
    assert_eq!(socket.did().len(), 2, "nothing to write, nothing done");
}

#[test]
fn the_rest_goes_out_when_the_socket_has_room_again() {
    let socket = Handle::with(&[3, 0, 2, 0]);
    let mut gathered = gather(socket.clone(), |mut io| async move {
        io.write_all(b"abcdefgh").await?;
        std::future::pending::<io::Result<()>>().await
    });
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut cx = Context::from_waker(&waker);
    for (round, waiting) in [5, 3, 0].into_iter().enumerate() {
        assert!(Pin::new(&mut gathered).poll(&mut cx).is_pending());
        assert_eq!(gathered.waiting(), waiting);
        assert_eq!(woken.0.load(Ordering::Relaxed), round, "only the socket wakes");
        if let Some(waker) = socket.0.borrow_mut().waker.take() {
            waker.wake();
        }
    }
    assert_eq!(socket.0.borrow().bytes, b"abcdefgh");
}

#[test]
fn no_more_than_the_limit_waits_for_a_peer_that_does_not_read() {
    let socket = Handle::with(&[0; 8]);
    let mut gathered = gather(socket.clone(), |mut io| async move { io.write_all(&vec![7; 3 * LIMIT]).await });
    for _ in 0..4 {
        assert!(poll(&mut gathered).is_pending());
        assert_eq!(gathered.waiting(), LIMIT);
    }
    // Each poll asks once for the connection, once for what waits, and does not go round.
    assert_eq!(socket.did(), vec![Did::Full; 8]);
    assert!(poll(&mut gathered).is_ready());
    assert_eq!(socket.0.borrow().bytes.len(), 3 * LIMIT);
    assert!(socket.did().len() < 8 + 8, "{:?}", socket.did());
}

#[test]
fn a_connection_that_was_refused_a_write_is_polled_again_when_its_bytes_have_gone() {
    // Full for the connection, with room for what waits right after.
    let socket = Handle::with(&[0]);
    let mut gathered = gather(socket.clone(), |mut io| async move { io.write_all(&vec![7; LIMIT + 1]).await });
    assert!(poll(&mut gathered).is_ready(), "{:?}", socket.did());
    assert_eq!(socket.0.borrow().bytes.len(), LIMIT + 1);
}

#[test]
fn everything_is_written_before_the_shutdown() {
    let socket = Handle::with(&[2, 0, 0]);
    let mut gathered = gather(socket.clone(), |mut io| async move {
        io.write_all(b"abcd").await?;
        io.shutdown().await
    });
    assert!(poll(&mut gathered).is_pending());
    assert!(!socket.did().contains(&Did::Shut));
    assert!(matches!(poll(&mut gathered), Poll::Ready(Ok(()))));
    assert_eq!(socket.0.borrow().bytes, b"abcd");
    assert_eq!(socket.did().last(), Some(&Did::Shut));
}

#[test]
fn it_is_not_finished_before_the_last_bytes_of_a_finished_connection_are_written() {
    let socket = Handle::with(&[1, 0]);
    let mut gathered = gather(socket.clone(), |mut io| async move {
        io.write_all(b"abcd").await.unwrap();
        "finished"
    });
    assert!(poll(&mut gathered).is_pending());
    assert_eq!(poll(&mut gathered), Poll::Ready("finished"));
    assert_eq!(socket.0.borrow().bytes, b"abcd");
}

#[test]
fn a_connection_that_waits_for_the_client_hears_of_an_error_when_writing() {
    let socket = Handle::default();
    socket.0.borrow_mut().error = Some(io::ErrorKind::BrokenPipe);
    let mut gathered = gather(socket, |mut io| async move {
        io.write_all(b"abcd").await.unwrap();
        let first = poll_fn(|cx| Pin::new(&mut io).poll_read(cx, &mut ReadBuf::new(&mut [0]))).await.unwrap_err();
        [first.kind(), io.write(b"x").await.unwrap_err().kind(), io.shutdown().await.unwrap_err().kind()]
    });
    assert_eq!(poll(&mut gathered), Poll::Ready([io::ErrorKind::BrokenPipe; 3]));
    assert_eq!(gathered.shared.borrow().waiting.held(), 0);
}

#[test]
fn a_connection_that_never_looks_does_not_make_an_error_go_round() {
    let socket = Handle::default();
    socket.0.borrow_mut().error = Some(io::ErrorKind::BrokenPipe);
    let mut gathered = gather(socket, |mut io| async move {
        io.write_all(b"abcd").await.unwrap();
        std::future::pending::<()>().await;
    });
    assert!(poll(&mut gathered).is_pending());
    assert!(poll(&mut gathered).is_pending());
}

#[test]
fn a_connection_that_fills_the_buffer_hears_of_an_error_at_once() {
    let socket = Handle::default();
    socket.0.borrow_mut().error = Some(io::ErrorKind::ConnectionReset);
    let mut gathered = gather(socket, |mut io| async move { io.write_all(&vec![7; 2 * LIMIT]).await.unwrap_err().kind() });
    assert_eq!(poll(&mut gathered), Poll::Ready(io::ErrorKind::ConnectionReset));
}

#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        drop(tokio::task::spawn_local(async move { drop(future.await) }));
    }
}

/// Counts the writes to a real socket.
struct Counted {
    io: tokio::net::UnixStream,
    writes: Rc<RefCell<Vec<usize>>>,
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write(cx, buf);
        if let Poll::Ready(Ok(count)) = polled {
            self.writes.borrow_mut().push(count);
        }
        polled
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        if let Poll::Ready(Ok(count)) = polled {
            self.writes.borrow_mut().push(count);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// Asks a hyper server over a Unix socket, with kernel buffers of `kernel` bytes where given, once for a body of `len` bytes; gives the
/// body and the writes. `stopping`: the server is told to shut down gracefully while it answers, else after.
fn ask(len: usize, kernel: Option<usize>, stopping: bool) -> (Bytes, Vec<usize>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let (client, server) = tokio::net::UnixStream::pair().unwrap();
        if let Some(kernel) = kernel {
            rustix::net::sockopt::set_socket_send_buffer_size(&server, kernel).unwrap();
        }
        let writes = Rc::new(RefCell::new(Vec::new()));
        let counted = Counted { io: server, writes: Rc::clone(&writes) };
        let body: Bytes = (0..=u8::MAX).cycle().take(len).collect();
        let stop = tokio_util::sync::CancellationToken::new();
        let (stopped, stops) = (stop.clone(), stop.clone());
        let first = Cell::new(true);
        let service = service_fn(move |_| {
            offer(&body);
            if stopping && !first.replace(false) {
                stops.cancel();
            }
            let reply = http::Response::new(Full::new(body.clone()));
            async { Ok::<_, std::convert::Infallible>(reply) }
        });
        let mut gathered = gather(counted, |io| {
            hyper::server::conn::http2::Builder::new(LocalExecutor).serve_connection(TokioIo::new(io), service)
        });
        let served = tokio::task::spawn_local(async move {
            tokio::select! {
                ended = &mut gathered => return ended,
                () = stopped.cancelled() => gathered.connection().graceful_shutdown(),
            }
            gathered.await
        });
        let (mut requests, connection) = hyper::client::conn::http2::Builder::new(LocalExecutor)
            .initial_stream_window_size(1 << 24)
            .initial_connection_window_size(1 << 24)
            .handshake(TokioIo::new(client))
            .await
            .unwrap();
        let connected = tokio::task::spawn_local(connection);
        let request = || http::Request::post("http://localhost/").body(Full::new(Bytes::new())).unwrap();
        // The first reply comes with SETTINGS and the like.
        drop(requests.send_request(request()).await.unwrap().into_body().collect().await.unwrap());
        tokio::task::yield_now().await;
        writes.borrow_mut().clear();
        let reply = requests.send_request(request()).await.unwrap().into_body().collect().await.unwrap().to_bytes();
        let seen = writes.take();
        stop.cancel();
        // The client may hang up at the GOAWAY, and hyper may call that an error.
        drop((served.await.unwrap(), connected.await.unwrap()));
        (reply, seen)
    })
}

#[test]
fn a_reply_of_several_frames_is_one_write() {
    let (reply, writes) = ask(100_000, None, false);
    assert_eq!(reply.len(), 100_000);
    assert!(writes.iter().any(|count| *count > 100_000), "{writes:?}");
    // At most one more, for a window update.
    assert!(writes.len() <= 2, "{writes:?}");
}

#[test]
fn a_reply_larger_than_all_buffers_arrives_whole() {
    for kernel in [None, Some(4096)] {
        let (reply, _) = ask(3_000_000, kernel, false);
        assert!(reply.iter().copied().eq((0..=u8::MAX).cycle().take(3_000_000)));
    }
}

#[test]
fn a_graceful_shutdown_lets_the_reply_in_flight_arrive_whole() {
    let (reply, _) = ask(3_000_000, Some(4096), true);
    assert_eq!(reply.len(), 3_000_000);
}

proptest! {
    #[test]
    fn all_bytes_arrive_in_order_whatever_the_socket_takes(
        writes in prop::collection::vec(prop_oneof![0usize..2000, Just(LIMIT), Just(LIMIT / 2 + 1)], 1..20),
        takes in prop::collection::vec(prop_oneof![Just(0usize), 1usize..5000, Just(LIMIT)], 0..60),
        vectored in any::<bool>(),
    ) {
        let socket = Handle::with(&takes);
        let sent: Vec<u8> = (0..251).cycle().take(writes.iter().sum()).collect();
        let (mut rest, mut pieces) = (&sent[..], Vec::new());
        for len in &writes {
            let (piece, after) = rest.split_at(*len);
            pieces.push(piece.to_vec());
            rest = after;
        }
        let mut gathered = gather(socket.clone(), |mut io| async move {
            for piece in &pieces {
                let mut piece = &piece[..];
                while !piece.is_empty() {
                    let count = if vectored {
                        let (a, b) = piece.split_at(piece.len() / 2);
                        io.write_vectored(&[IoSlice::new(a), IoSlice::new(b)]).await
                    } else {
                        io.write(piece).await
                    };
                    piece = &piece[count.unwrap()..];
                }
                tokio::task::yield_now().await;
            }
            io.shutdown().await.unwrap();
        });
        let mut polls = 0;
        while poll(&mut gathered).is_pending() {
            prop_assert!(gathered.waiting() <= LIMIT);
            polls += 1;
            prop_assert!(polls < 1000);
        }
        prop_assert_eq!(&socket.0.borrow().bytes, &sent);
        prop_assert!(socket.did().ends_with(&[Did::Shut]));
    }
}
