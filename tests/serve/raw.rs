//! Clients that no library would make: bytes written by hand to the socket.

use std::path::Path;
use std::time::Duration;

use podresources_proxy::grpc::Code;
use podresources_proxy::serve::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::client::{Client, LIST};
use crate::fake::{Fake, Running, eventually, framed};
use crate::frames::{DATA, Frame, PREFACE, SETTINGS, call, frame, frames, greeting, head, replay};

const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;

/// A whole call to List.
fn list(stream: u32) -> Vec<u8> {
    call(stream, LIST, "localhost")
}

async fn greeted(path: &Path) -> UnixStream {
    let mut socket = UnixStream::connect(path).await.unwrap();
    socket.write_all(&greeting()).await.unwrap();
    socket
}

/// Reads to the end, however that comes.
async fn rest(socket: &mut UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    drop(
        tokio::time::timeout(Duration::from_secs(10), socket.read_to_end(&mut bytes))
            .await
            .expect("the server closes the connection"),
    );
    bytes
}

#[tokio::test]
async fn a_client_that_does_not_say_that_it_speaks_http2_is_closed_after_the_handshake_time() {
    let fake = Fake::replying(b"");
    let server = Running::with(&fake, |config| config.serving.limits.handshake_time = Duration::from_millis(30));
    for sent in [&b""[..], &PREFACE[..23]] {
        let mut socket = UnixStream::connect(server.path()).await.unwrap();
        socket.write_all(sent).await.unwrap();
        rest(&mut socket).await;
    }
    eventually("both are gone", || server.serving.stats().connections_open() == 0).await;
    server.stop().await;
}

#[tokio::test]
async fn an_idle_client_that_does_not_react_to_a_goaway_is_closed_after_the_grace() {
    let server = Running::with(&Fake::replying(b""), |config| {
        config.serving.limits.idle_time = Duration::from_millis(30);
        config.serving.limits.grace = Duration::from_millis(30);
    });
    let mut socket = greeted(&server.path()).await;
    let frames = frames(&rest(&mut socket).await);
    assert!(frames.iter().any(|frame| frame.kind == GOAWAY && frame.payload[4..8] == [0; 4]), "no GOAWAY without error");
    eventually("it is gone", || server.serving.stats().connections_open() == 0).await;
    server.stop().await;
}

/// A GOAWAY that overtakes the first answer is an error to simple clients.
#[tokio::test]
async fn a_client_that_has_just_connected_is_answered_before_it_is_asked_to_go() {
    let server = Running::new(&Fake::replying(b""));
    let stats = server.serving.stats();
    let mut socket = UnixStream::connect(server.path()).await.unwrap();
    eventually("it is connected", || stats.connections_open() == 1).await;
    server.stop.cancel();
    eventually("the socket is withdrawn", || !server.path().exists()).await;
    socket.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[]), &list(1)].concat()).await.unwrap();
    let mut bytes = Vec::new();
    let goaway = |bytes: &[u8]| frames(bytes).iter().position(|frame| frame.kind == GOAWAY);
    while goaway(&bytes).is_none() {
        assert_ne!(socket.read_buf(&mut bytes).await.unwrap(), 0);
    }
    let data = frames(&bytes).iter().position(|frame| frame.kind == DATA);
    assert!(data.is_some_and(|data| Some(data) < goaway(&bytes)), "answer at {data:?}, GOAWAY at {:?}", goaway(&bytes));
    drop(socket);
    server.stop().await;
}

#[tokio::test]
async fn http_1_and_noise_end_their_own_connection_only() {
    let server = Running::new(&Fake::replying(b""));
    let mut other = Client::connect(&server.path()).await.unwrap();
    for sent in [&b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..], &[0xff; 100]] {
        let mut socket = UnixStream::connect(server.path()).await.unwrap();
        socket.write_all(sent).await.unwrap();
        rest(&mut socket).await;
    }
    other.ask(LIST, |_| {}).await.assert_ok(&[0; 5]);
    server.stop().await;
}

#[tokio::test]
async fn a_call_is_dropped_when_its_connection_is() {
    let fake = Fake::replying(b"").gated();
    let server = Running::new(&fake);
    let mut socket = greeted(&server.path()).await;
    socket.write_all(&list(1)).await.unwrap();
    eventually("the call waits", || fake.waiting() == 1).await;
    drop(socket);
    eventually("the wait is given up", || fake.waiting() == 0).await;
    eventually("the connection is closed", || server.serving.stats().connections_open() == 0).await;
    assert_eq!(server.serving.stats().calls(Some(Method::List), Code::Cancelled), 1);
    server.stop().await;
}

#[tokio::test]
async fn a_request_that_its_client_resets_half_way_leaves_nothing_behind() {
    let fake = Fake::replying(b"");
    let server = Running::new(&fake);
    let mut socket = greeted(&server.path()).await;
    let half = [head(1, LIST, "localhost"), frame(DATA, 0, 1, &[0; 3]), frame(RST_STREAM, 0, 1, &8_u32.to_be_bytes())].concat();
    socket.write_all(&half).await.unwrap();
    socket.write_all(&list(3)).await.unwrap();
    let stats = server.serving.stats();
    eventually("the second call is answered", || stats.calls(Some(Method::List), Code::Ok) == 1).await;
    eventually("nothing is in flight", || stats.in_flight() == 0).await;
    assert_eq!(fake.asked.lock().unwrap().len(), 1);
    drop(socket);
    server.stop().await;
}

#[tokio::test]
async fn more_streams_than_allowed_are_refused_and_the_others_served() {
    let fake = Fake::replying(b"").gated();
    let server = Running::with(&fake, |config| {
        config.serving.limits.streams = 4;
        // This client never answers the ping that follows a GOAWAY.
        config.serving.limits.grace = Duration::from_millis(50);
    });
    let mut socket = greeted(&server.path()).await;
    let calls: Vec<u8> = (0..6).flat_map(|at| list(2 * at + 1)).collect();
    socket.write_all(&calls).await.unwrap();
    eventually("four wait", || fake.waiting() == 4).await;
    for _ in 0..4 {
        fake.open();
    }
    let stats = server.serving.stats();
    eventually("four are answered", || stats.calls(Some(Method::List), Code::Ok) == 4).await;
    server.stop.cancel();
    let frames = frames(&rest(&mut socket).await);
    let refused = |frame: &&Frame| frame.kind == RST_STREAM && frame.payload == 7_u32.to_be_bytes();
    assert_eq!(frames.iter().filter(refused).map(|frame| frame.stream).collect::<Vec<_>>(), [9, 11]);
    server.stop().await;
}

/// CVE-2023-44487.
#[tokio::test]
async fn a_client_that_opens_and_resets_streams_without_end_is_told_to_calm_down() {
    let fake = Fake::replying(b"").gated();
    let server = Running::new(&fake);
    let mut other = Client::connect(&server.path()).await.unwrap();
    let socket = greeted(&server.path()).await;
    let (mut read, mut write) = socket.into_split();
    let flood = tokio::spawn(async move {
        for at in 0..200_000_u32 {
            let reset = [head(2 * at + 1, LIST, "localhost"), frame(RST_STREAM, 0, 2 * at + 1, &8_u32.to_be_bytes())].concat();
            if write.write_all(&reset).await.is_err() {
                break;
            }
        }
    });
    let mut bytes = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(20), read.read_to_end(&mut bytes)).await;
    assert!(ended.is_ok(), "the connection was not ended");
    flood.await.unwrap();
    let goaway = frames(&bytes).into_iter().find(|frame| frame.kind == GOAWAY);
    if let Some(goaway) = goaway {
        assert_eq!(goaway.payload[4..8], 11_u32.to_be_bytes(), "ENHANCE_YOUR_CALM");
    }
    fake.open();
    other.ask(LIST, |_| {}).await.assert_ok(&[0; 5]);
    server.stop().await;
}

/// What real clients send first, as recorded; see `tests/cases/clients`. Half of them have an `:authority` that `h2` alone would refuse.
#[tokio::test]
async fn every_recorded_client_gets_the_whole_reply_and_status_zero() {
    let fake = Fake::replying(b"recorded");
    let server = Running::new(&fake);
    let stats = server.serving.stats();
    let mut replayed = 0;
    for case in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/clients")).unwrap() {
        let case = case.unwrap().path();
        if case.extension().is_none_or(|extension| extension != "bin") {
            continue;
        }
        replayed += 1;
        let what = case.display().to_string();
        let data = replay(&server.path(), &std::fs::read(&case).unwrap(), &what).await;
        assert_eq!(data, framed(b"recorded"), "{what}");
        let answered = stats.calls(Some(Method::List), Code::Ok) + stats.calls(Some(Method::AlphaList), Code::Ok);
        assert_eq!(answered, replayed, "{what}");
    }
    assert!(replayed >= 9, "only {replayed} recordings found");
    server.stop().await;
}

#[tokio::test]
async fn headers_over_16_kib_are_http_431() {
    let server = Running::new(&Fake::replying(b""));
    let mut client = Client::connect(&server.path()).await.unwrap();
    let long = "x".repeat(17 * 1024);
    let reply = client.ask(LIST, |request| drop(request.headers_mut().insert("x-long", long.parse().unwrap()))).await;
    assert_eq!(reply.http, 431);
    client.ask(LIST, |_| {}).await.assert_ok(&[0; 5]);
    server.stop().await;
}
