//! What is read and what is left, on a virtual clock, with a real socket whose reads are counted.

use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::time::advance;

use super::super::activity::Activity;
use super::super::session::CALLS_AT_ONCE;
use super::*;
use crate::admission::{Config, Limits, Table};
use crate::peer::Peer;

const SECOND: Duration = Duration::from_secs(1);

/// A socket that counts how often it is read from.
struct Counted {
    io: UnixStream,
    reads: Rc<Cell<usize>>,
}

impl AsFd for Counted {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.as_fd()
    }
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.reads.set(self.reads.get() + 1);
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

/// One connection of a client with a burst of one, and its other end, which has sent something.
struct Rig {
    pause: Pause<Counted>,
    session: Rc<Session>,
    other: UnixStream,
    reads: Rc<Cell<usize>>,
    table: Arc<Table>,
}

impl Rig {
    async fn new() -> Self {
        let limits = Limits { burst: 1, rate: 0.001, ..Limits::default() };
        let table = Table::new(Config { limits, ..Config::default() });
        let (io, mut other) = UnixStream::pair().unwrap();
        other.write_all(&[7; 100]).await.unwrap();
        let reads = Rc::default();
        let admitted = table.join(Peer::of_uid(1), 1, Instant::now()).unwrap();
        let session = Session::new(Activity::new(Instant::now()), Some(admitted));
        let pause = Pause::new(Counted { io, reads: Rc::clone(&reads) }, Rc::clone(&session));
        let rig = Self { pause, session, other, reads, table };
        // The runtime has to learn first that there is something to be read.
        rig.pause.io.io.readable().await.unwrap();
        rig.session.turn_begins();
        rig
    }

    /// Bytes read; `None` where none are.
    fn read(&mut self) -> Option<usize> {
        let mut room = [0; 1024];
        let mut buf = ReadBuf::new(&mut room);
        match Pin::new(&mut self.pause).poll_read(&mut Context::from_waker(Waker::noop()), &mut buf) {
            Poll::Pending => None,
            Poll::Ready(read) => {
                read.unwrap();
                Some(buf.filled().len())
            }
        }
    }

    /// Calls until the client is refused once more than twice its burst.
    fn overdo(&self) {
        for _ in 0..4 {
            let now = Instant::now();
            drop(self.session.call(None, now).unwrap().unwrap().pay(now));
        }
        assert!(self.session.unread_until(Instant::now()).is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_within_its_limits_is_read() {
    let mut rig = Rig::new().await;
    assert_eq!((rig.read(), rig.reads.get()), (Some(100), 1));
}

#[tokio::test(start_paused = true)]
async fn a_flood_is_left_in_its_socket_for_a_second_and_costs_no_read() {
    let mut rig = Rig::new().await;
    rig.overdo();
    for _ in 0..99 {
        assert_eq!(rig.read(), None);
        advance(SECOND / 100).await;
    }
    assert_eq!(rig.reads.get(), 0);
    advance(SECOND / 100).await;
    assert_eq!(rig.read(), Some(100));
}

#[tokio::test(start_paused = true)]
async fn all_connections_of_the_client_pause_and_those_of_others_do_not() {
    let mut rig = Rig::new().await;
    rig.overdo();
    let session = |peer| {
        let admitted = rig.table.join(peer, 1, Instant::now()).unwrap();
        Session::new(Activity::new(Instant::now()), Some(admitted))
    };
    assert!(session(Peer::of_uid(1)).unread_until(Instant::now()).is_some());
    assert!(session(Peer::of_uid(2)).unread_until(Instant::now()).is_none());
    assert_eq!(rig.read(), None);
}

#[tokio::test(start_paused = true)]
async fn a_hang_up_is_seen_within_a_pause() {
    let mut rig = Rig::new().await;
    rig.overdo();
    assert_eq!(rig.read(), None);
    let Rig { mut pause, other, .. } = rig;
    let hang_up = async {
        tokio::time::sleep(LOOK / 10).await;
        drop(other);
    };
    let (begun, mut room) = (Instant::now(), [0; 8]);
    let mut buf = ReadBuf::new(&mut room);
    let read = std::future::poll_fn(|cx| Pin::new(&mut pause).poll_read(cx, &mut buf));
    let (read, ()) = tokio::join!(read, hang_up);
    read.unwrap();
    assert_eq!((buf.filled().len(), rig.reads.get()), (0, 0), "the end, although something is left to be read");
    assert!(begun.elapsed() <= LOOK + LOOK / 10, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_waits_for_its_window_keeps_the_client_read_and_one_that_the_client_does_not_take_does_not() {
    let mut rig = Rig::new().await;
    rig.overdo();
    let reply = rig.session.piece(Bytes::from_static(&[0; 10]), Instant::now()).unwrap();
    rig.session.turn_ends(1);
    assert_eq!(rig.read(), None, "it waits for room in the socket");
    rig.session.turn_ends(0);
    assert_eq!(rig.read(), Some(100));
    drop(reply);
    assert_eq!(rig.read(), None);
}

#[tokio::test(start_paused = true)]
async fn replies_are_counted_until_they_are_written_or_dropped() {
    use bytes::Buf as _;
    let rig = Rig::new().await;
    let waiting = || rig.table.top(1, Instant::now())[0].waiting_bytes;
    rig.session.turn_ends(0);
    let mut reply = rig.session.piece(Bytes::from_static(&[0; 10]), Instant::now()).unwrap();
    reply.advance(4);
    assert_eq!((reply.remaining(), waiting()), (6, 6));
    rig.session.turn_ends(4);
    assert_eq!(waiting(), 10, "what is written is in the buffer before the socket");
    drop(reply);
    assert_eq!(waiting(), 4);
    rig.session.turn_ends(0);
    assert_eq!(waiting(), 0);
}

#[tokio::test]
async fn after_so_many_calls_the_others_have_their_turn_first() {
    let mut rig = Rig::new().await;
    let turn = Rc::new(Cell::new(false));
    let other = Rc::clone(&turn);
    tokio::task::LocalSet::new()
        .run_until(async {
            for _ in 0..CALLS_AT_ONCE {
                drop(rig.session.call(None, Instant::now() - SECOND));
            }
            tokio::task::spawn_local(async move { other.set(true) });
            std::future::poll_fn(|cx| {
                if turn.get() {
                    rig.session.turn_begins();
                    return Poll::Ready(());
                }
                let mut room = [0; 8];
                let polled = Pin::new(&mut rig.pause).poll_read(cx, &mut ReadBuf::new(&mut room));
                assert!(polled.is_pending());
                Poll::Pending
            })
            .await;
        })
        .await;
    assert_eq!(rig.reads.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_bytes_without_end_is_read_at_a_pace() {
    let rig = Rig::new().await;
    let mut bytes = 0_usize;
    for _ in 0..40 {
        while rig.session.unread_until(Instant::now()).is_none() {
            rig.session.read(8 * 1024);
            bytes += 8 * 1024;
            assert!(bytes < 64 << 20, "no end");
        }
        advance(SECOND / 4).await;
    }
    // Two mebibytes at once, and half of one in each of ten seconds.
    assert!((13 << 19..=15 << 19).contains(&bytes), "{bytes}");
}
