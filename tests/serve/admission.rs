//! Clients that want more than their part, over real sockets; who they are is made up.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use podresources_proxy::admission::{Config, Limits, Mode, Reason, Table};
use podresources_proxy::grpc::Code;
use podresources_proxy::peer::Peer;
use podresources_proxy::serve::{Door, Method};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::Instant;

use crate::client::{Client, LIST, Reply, full};
use crate::fake::{Fake, Running, eventually};
use crate::frames::{DATA, Frame, call, frame, frames, greeting};

/// A bucket that does not fill while a test runs.
const NEVER: f64 = 0.000_1;
const PING: u8 = 6;
const ACK: u8 = 1;

/// A server whose clients are the next ones named, in the order in which they connect; when none is left, uid 7.
struct Rig {
    server: Running,
    table: Arc<Table>,
    next: Arc<Mutex<VecDeque<Peer>>>,
}

impl Rig {
    fn new(fake: &Fake, limits: Limits) -> Self {
        Self::with(fake, Config { limits, ..Config::default() })
    }

    fn with(fake: &Fake, config: Config) -> Self {
        let next: Arc<Mutex<VecDeque<Peer>>> = Arc::default();
        let named = Arc::clone(&next);
        let identify = move |_: BorrowedFd<'_>| named.lock().unwrap().pop_front().unwrap_or_else(|| Peer::of_uid(7));
        let connections = config.max_connections;
        let table = Table::new(config);
        let door = Door { table: Arc::clone(&table), identify: Arc::new(identify) };
        let server = Running::behind(fake, Some(door), |config| config.serving.limits.connections = connections);
        Self { server, table, next }
    }

    async fn connect_as(&self, peer: Peer) -> Client {
        self.next.lock().unwrap().push_back(peer);
        let client = self.connect().await;
        eventually("it is known", || self.next.lock().unwrap().is_empty()).await;
        client
    }

    async fn connect(&self) -> Client {
        Client::connect(&self.server.path()).await.unwrap()
    }

    fn refused(&self, reason: Reason) -> u64 {
        self.table.top(usize::MAX, Instant::now()).iter().map(|seen| seen.refused[reason as usize]).sum()
    }
}

fn limits(burst: u32) -> Limits {
    Limits { rate: NEVER, burst, ..Limits::default() }
}

fn is_ok(reply: &Reply) -> bool {
    reply.trailers.as_ref().is_some_and(|trailers| trailers["grpc-status"] == "0")
}

/// Whether a connection is closed without a word of ours.
async fn is_closed(rig: &Rig) -> bool {
    let mut socket = UnixStream::connect(rig.server.path()).await.unwrap();
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(10), socket.read_to_end(&mut bytes)).await;
    read.is_ok() && bytes.is_empty()
}

#[tokio::test]
async fn over_its_rate_a_client_is_told_in_the_kubelets_words_who_it_is_and_what_it_may_have() {
    let rig = Rig::new(&Fake::replying(b""), Limits { rate: 1.0, burst: 1, ..Limits::default() });
    let mut client = rig.connect().await;
    client.ask(LIST, |_| {}).await.assert_ok(&[0; 5]);
    let reply = client.ask(LIST, |_| {}).await;
    assert_eq!(reply.error(), (Code::ResourceExhausted, "rejected by rate limit".into()));
    assert_eq!(reply.headers["podresources-client"], "uid:7");
    assert_eq!(reply.headers["podresources-limit"], "1/s, burst 1");
    let pushback: u32 = reply.headers["grpc-retry-pushback-ms"].to_str().unwrap().parse().unwrap();
    assert!((1..=1_000).contains(&pushback), "{pushback}");
    assert_eq!(rig.server.serving.stats().calls(Some(Method::List), Code::ResourceExhausted), 1);
    rig.server.stop().await;
}

#[tokio::test]
async fn sixty_four_connections_of_one_client_share_one_bucket_and_another_has_its_own() {
    let rig = Rig::new(&Fake::replying(b""), limits(10));
    let mut clients = Vec::new();
    for _ in 0..64 {
        clients.push(rig.connect().await);
    }
    let mut served = 0;
    for client in &mut clients {
        served += usize::from(is_ok(&client.ask(LIST, |_| {}).await));
    }
    assert!((5..=10).contains(&served), "{served}: a user's connections share half a burst by connection");
    assert!(is_ok(&rig.connect_as(Peer::of_uid(8)).await.ask(LIST, |_| {}).await));
    rig.server.stop().await;
}

#[tokio::test]
async fn dialling_for_every_call_wins_nothing() {
    let rig = Rig::new(&Fake::replying(b""), limits(5));
    let mut served = 0;
    for _ in 0..20 {
        served += usize::from(is_ok(&rig.connect().await.ask(LIST, |_| {}).await));
    }
    assert_eq!(served, 5);
    rig.server.stop().await;
}

#[tokio::test]
async fn what_is_no_good_call_costs_a_token_too() {
    let rig = Rig::new(&Fake::replying(b""), limits(3));
    let mut client = rig.connect().await;
    assert_eq!(client.ask("/nothing/Here", |_| {}).await.error().0, Code::Unimplemented);
    assert_eq!(client.ask(LIST, |request| *request.body_mut() = full(b"")).await.error().0, Code::Internal);
    client.ask(LIST, |_| {}).await.assert_ok(&[0; 5]);
    assert_eq!(client.ask(LIST, |_| {}).await.error().0, Code::ResourceExhausted);
    rig.server.stop().await;
}

#[tokio::test]
async fn one_connection_too_many_is_closed_before_http2_and_there_is_room_again_when_one_goes() {
    let rig = Rig::new(&Fake::replying(b""), Limits { connections: 2, ..Limits::default() });
    let mut stays = rig.connect().await;
    let goes = rig.connect().await;
    eventually("both are open", || rig.server.serving.stats().connections_open() == 2).await;
    stays.ask(LIST, |_| {}).await.assert_ok(&[0; 5]);
    assert!(is_closed(&rig).await);
    assert_eq!(rig.refused(Reason::Connections), 1);
    stays.ask(LIST, |_| {}).await.assert_ok(&[0; 5]);
    drop(goes);
    eventually("one has gone", || rig.server.serving.stats().connections_open() == 1).await;
    rig.connect().await.ask(LIST, |_| {}).await.assert_ok(&[0; 5]);
    rig.server.stop().await;
}

#[tokio::test]
async fn the_last_connections_are_for_who_has_none_yet() {
    // Of 32, one is for root and two are for newcomers.
    let rig = Rig::with(&Fake::replying(b""), Config { max_connections: 32, ..Config::default() });
    let mut clients = Vec::new();
    // One that was closed counts until its worker has let go of it.
    let open =
        async |count| eventually("what was closed has gone", || rig.server.serving.stats().connections_open() == count).await;
    for _ in 0..29 {
        let mut client = rig.connect().await;
        assert!(is_ok(&client.ask(LIST, |_| {}).await));
        clients.push(client);
    }
    assert!(is_closed(&rig).await);
    assert_eq!(rig.refused(Reason::Full), 1);
    open(29).await;
    for peer in [Peer::of_uid(8), Peer::of_uid(9)] {
        let mut client = rig.connect_as(peer).await;
        assert!(is_ok(&client.ask(LIST, |_| {}).await));
        clients.push(client);
    }
    open(31).await;
    rig.next.lock().unwrap().push_back(Peer::of_uid(10));
    assert!(is_closed(&rig).await, "a third newcomer");
    open(31).await;
    assert!(is_ok(&rig.connect_as(Peer::of_uid(0)).await.ask(LIST, |_| {}).await));
    drop(clients);
    rig.server.stop().await;
}

#[tokio::test]
async fn who_cannot_be_told_apart_at_once_keeps_nobody_waiting() {
    let (release, blocked) = mpsc::channel::<()>();
    let (blocked, seen) = (Mutex::new(blocked), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&seen);
    let identify = move |_: BorrowedFd<'_>| {
        if counted.fetch_add(1, SeqCst) == 0 {
            blocked.lock().unwrap().recv().unwrap();
        }
        Peer::of_uid(7)
    };
    let door = Door { table: Table::new(Config::default()), identify: Arc::new(identify) };
    let server = Running::behind(&Fake::replying(b""), Some(door), |config| {
        config.serving.threads = std::num::NonZeroUsize::new(1);
    });
    let mut first = Client::connect(&server.path()).await.unwrap();
    eventually("the first is looked at", || seen.load(SeqCst) == 1).await;
    let mut second = Client::connect(&server.path()).await.unwrap();
    for _ in 0..3 {
        second.ask(LIST, |_| {}).await.assert_ok(&[0; 5]);
    }
    release.send(()).unwrap();
    first.ask(LIST, |_| {}).await.assert_ok(&[0; 5]);
    assert_eq!(seen.load(SeqCst), 2, "once for each connection");
    server.stop().await;
}

#[tokio::test]
async fn a_flood_stays_in_its_own_socket_and_its_ping_is_answered_all_the_same() {
    let fake = Fake::replying(b"");
    let rig = Rig::new(&fake, limits(10));
    let mut socket = UnixStream::connect(rig.server.path()).await.unwrap();
    let calls: Vec<u8> = (0..60).flat_map(|at| call(2 * at + 1, LIST, "localhost")).collect();
    socket.write_all(&[greeting(), calls].concat()).await.unwrap();
    eventually("it pauses", || rig.table.paused(Instant::now()) == 1).await;
    let ended = || rig.server.serving.stats().calls(Some(Method::List), Code::ResourceExhausted);
    eventually("the calls that were read are answered", || rig.server.serving.stats().in_flight() == 0).await;
    assert_eq!(fake.asked.lock().unwrap().len(), 10);
    let before = ended();
    let more: Vec<u8> = (60..64).flat_map(|at| call(2 * at + 1, LIST, "localhost")).collect();
    socket.write_all(&[more, frame(PING, 0, 0, b"still on")].concat()).await.unwrap();
    let mut bytes = Vec::new();
    let acked = |frame: &Frame| frame.kind == PING && frame.flags == ACK && frame.payload == b"still on";
    while !frames(&bytes).iter().any(acked) {
        let read = tokio::time::timeout(Duration::from_secs(10), socket.read_buf(&mut bytes)).await;
        assert!(matches!(read, Ok(Ok(1..))), "{read:?}");
    }
    assert_eq!(ended(), before + 4, "what came in the pause is answered after it");
    let served = frames(&bytes).iter().filter(|frame| frame.kind == DATA).count();
    assert_eq!(served, 10, "replies with a message");
    drop(socket);
    rig.server.stop().await;
}

#[tokio::test]
async fn a_paused_client_that_hangs_up_is_let_go() {
    let rig = Rig::new(&Fake::replying(b""), limits(1));
    let mut socket = UnixStream::connect(rig.server.path()).await.unwrap();
    let calls: Vec<u8> = (0..32).flat_map(|at| call(2 * at + 1, LIST, "localhost")).collect();
    socket.write_all(&[greeting(), calls].concat()).await.unwrap();
    eventually("it pauses", || rig.table.paused(Instant::now()) == 1).await;
    drop(socket);
    eventually("it is gone", || rig.server.serving.stats().connections_open() == 0).await;
    assert_eq!(rig.table.len(), 1, "its state is kept: coming back wins nothing");
    rig.server.stop().await;
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_refused_when_too_much_waits_for_it_and_others_are_not() {
    let message = vec![7; 200 << 10];
    let limits = Limits { waiting_bytes: 1 << 20, ..Limits::default() };
    let rig = Rig::new(&Fake::replying(&message), limits);
    let mut socket = UnixStream::connect(rig.server.path()).await.unwrap();
    let calls: Vec<u8> = (0..16).flat_map(|at| call(2 * at + 1, LIST, "localhost")).collect();
    socket.write_all(&[greeting(), calls].concat()).await.unwrap();
    let stats = rig.server.serving.stats();
    eventually("the calls are answered", || {
        [Code::Ok, Code::ResourceExhausted].map(|code| stats.calls(Some(Method::List), code)).iter().sum::<u64>() == 16
    })
    .await;
    assert!(rig.refused(Reason::Bytes) > 0);
    assert!(rig.table.top(1, Instant::now())[0].waiting_bytes <= 1 << 20);
    let mut other = rig.connect_as(Peer::of_uid(8)).await;
    assert!(is_ok(&other.ask(LIST, |_| {}).await));
    drop(socket);
    eventually("nothing waits any more", || rig.table.top(2, Instant::now()).iter().all(|seen| seen.waiting_bytes == 0)).await;
    rig.server.stop().await;
}

#[tokio::test]
async fn where_it_is_only_observed_all_are_served_and_what_would_be_refused_is_counted() {
    let config = Config { mode: Mode::Observe, limits: Limits { connections: 1, ..limits(1) }, ..Config::default() };
    let rig = Rig::with(&Fake::replying(b""), config);
    let (mut one, mut two) = (rig.connect().await, rig.connect().await);
    for _ in 0..5 {
        one.ask(LIST, |_| {}).await.assert_ok(&[0; 5]);
        two.ask(LIST, |_| {}).await.assert_ok(&[0; 5]);
    }
    assert_eq!((rig.refused(Reason::Rate), rig.refused(Reason::Connections)), (9, 1));
    assert_eq!(rig.table.paused(Instant::now()), 0);
    rig.server.stop().await;
}

#[tokio::test]
async fn without_a_door_nobody_is_refused() {
    let server = Running::new(&Fake::replying(b""));
    let mut client = Client::connect(&server.path()).await.unwrap();
    for _ in 0..300 {
        client.ask(LIST, |_| {}).await.assert_ok(&[0; 5]);
    }
    server.stop().await;
}
