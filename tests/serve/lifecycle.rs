//! How serving ends, and how one process takes over from another.

use std::io::{ErrorKind, Read as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use podresources_proxy::grpc::Code;
use podresources_proxy::serve::{Server, Serving};
use rustix::process::{Resource, Rlimit, setrlimit};
use tokio::net::{TcpStream, UnixStream};
use tokio_util::sync::CancellationToken;

use crate::client::{Client, LIST};
use crate::fake::{Fake, Running, config, eventually};

#[tokio::test]
async fn what_is_in_flight_is_finished_and_nobody_new_gets_in() {
    let fake = Fake::replying(b"").gated();
    let mut server = Running::new(&fake);
    let path = server.path();
    let mut client = Client::connect(&path).await.unwrap();
    let opened = async {
        eventually("the call waits", || fake.waiting() == 1).await;
        server.stop.cancel();
        eventually("the socket is gone", || !path.exists()).await;
        assert_eq!(UnixStream::connect(&path).await.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(fake.waiting(), 1);
        fake.open();
    };
    let (reply, ()) = tokio::join!(client.ask(LIST, |_| {}), opened);
    reply.assert_ok(&[0; 5]);
    server.serving.drained().await;
    client.connection.await.unwrap().unwrap();
}

#[tokio::test]
async fn whoever_was_in_the_queue_at_the_stop_is_served() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kubelet.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut clients = Vec::new();
    for _ in 0..20 {
        clients.push(Client::connect(&path).await.unwrap());
    }
    let stop = CancellationToken::new();
    stop.cancel();
    let config = config(path).serving;
    let mut serving = Serving::over::<UnixStream, _>(listener.into(), config, Fake::replying(b""), stop).unwrap();
    for client in &mut clients {
        client.ask(LIST, |_| {}).await.assert_ok(&[0; 5]);
    }
    serving.drained().await;
}

#[tokio::test]
async fn the_grace_bounds_the_end_and_calls_that_still_wait_are_told() {
    let fake = Fake::replying(b"").gated();
    let mut server = Running::with(&fake, |config| config.serving.limits.grace = Duration::from_millis(20));
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(Client::connect(&server.path()).await.unwrap());
    }
    let stop = async {
        eventually("the calls wait", || fake.waiting() == 3).await;
        server.stop.cancel();
        server.serving.drained().await;
    };
    let [first, second, third] = clients.as_mut_slice() else { unreachable!("three") };
    let (first, second, third, ()) = tokio::join!(first.ask(LIST, |_| {}), second.ask(LIST, |_| {}), third.ask(LIST, |_| {}), stop);
    for reply in [first, second, third] {
        let (code, text) = reply.error();
        assert_eq!(code, Code::Unavailable);
        assert_eq!(text, "podresources-proxy: shutting down; there was no answer within the grace of 20ms");
    }
    assert_eq!(fake.waiting(), 0);
    for client in clients {
        client.connection.await.unwrap().expect("the connection ends well");
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_does_not_hold_the_end_up() {
    // Far more than a socket's buffer and a stream's window hold.
    let fake = Fake::replying(&vec![7; 8 << 20]);
    let mut server = Running::with(&fake, |config| config.serving.limits.grace = Duration::from_millis(20));
    let mut client = Client::connect(&server.path()).await.unwrap();
    client.send.ready().await.unwrap();
    let _unread = client.send.send_request(crate::client::request(LIST)).await.unwrap();
    server.stop.cancel();
    server.serving.drained().await;
}

#[tokio::test]
async fn an_idle_connection_is_asked_to_go_and_loses_nothing() {
    let fake = Fake::replying(b"");
    let server = Running::with(&fake, |config| config.serving.limits.idle_time = Duration::from_millis(50));
    let mut client = Client::connect(&server.path()).await.unwrap();
    client.ask(LIST, |_| {}).await.assert_ok(&[0; 5]);
    client.connection.await.unwrap().expect("the connection ends well");
    eventually("it is closed", || server.serving.stats().connections_open() == 0).await;
    server.stop().await;
}

#[tokio::test]
async fn connections_over_the_limit_are_closed_until_others_end() {
    let fake = Fake::replying(b"");
    let server = Running::with(&fake, |config| config.serving.limits.connections = 2);
    let stats = server.serving.stats();
    let first = UnixStream::connect(server.path()).await.unwrap();
    let _second = UnixStream::connect(server.path()).await.unwrap();
    let third = UnixStream::connect(server.path()).await.unwrap();
    third.readable().await.unwrap();
    assert_eq!(third.try_read(&mut [0; 1]).unwrap(), 0);
    assert_eq!((stats.connections_accepted(), stats.connections_over_limit()), (2, 1));
    drop(first);
    eventually("the first is gone", || stats.connections_open() == 1).await;
    Client::connect(&server.path()).await.unwrap().ask(LIST, |_| {}).await.assert_ok(&[0; 5]);
    server.stop().await;
}

#[tokio::test]
async fn the_same_stack_serves_tcp() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let serving = config("unused".into()).serving;
    let mut serving = Serving::over::<TcpStream, _>(listener.into(), serving, Fake::replying(b"tcp"), stop.clone()).unwrap();
    let mut client = podresources_proxy::proto::v1::pod_resources_lister_client::PodResourcesListerClient::new(
        tonic::transport::Endpoint::try_from(format!("http://{address}")).unwrap().connect_lazy(),
    );
    // "tcp" is no message, which shows that it has arrived.
    assert_eq!(client.list(podresources_proxy::proto::v1::ListPodResourcesRequest {}).await.unwrap_err().code(), Code::Internal);
    assert_eq!(serving.stats().largest_reply(), 8);
    stop.cancel();
    serving.drained().await;
}

// === one process takes over from another ===

#[tokio::test]
async fn a_server_sees_that_another_has_taken_its_place_and_leaves_it_alone() {
    let mut old = Running::new(&Fake::replying(b"old"));
    let path = old.path();
    let mut config = config(path.clone());
    config.socket.replace = true;
    let stop = CancellationToken::new();
    let mut new = Server::bind(config).unwrap().serve(Fake::replying(b"new"), stop.clone()).unwrap();
    // Bound is not published: until then the old one answers.
    Client::connect(&path).await.unwrap().ask(LIST, |_| {}).await.assert_ok(b"\0\0\0\0\x03old");
    let mut seen = Box::pin(old.serving.taken_over());
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut seen).await.is_err());
    new.publish().unwrap();
    seen.await;
    old.stop.cancel();
    old.serving.drained().await;
    Client::connect(&path).await.unwrap().ask(LIST, |_| {}).await.assert_ok(b"\0\0\0\0\x03new");
    stop.cancel();
    new.drained().await;
    assert!(!path.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolling_upgrades_refuse_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kubelet.sock");
    let mut config = config(path.clone());
    config.socket.replace = true;
    let start = || {
        let stop = CancellationToken::new();
        let serving = Server::bind(config.clone()).unwrap().serve(Fake::replying(b""), stop.clone()).unwrap();
        serving.publish().unwrap();
        (serving, stop)
    };
    let (mut serving, mut stop) = start();
    let (over, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (path, over, calls) = (path.clone(), Arc::clone(&over), Arc::clone(&calls));
            tokio::spawn(async move {
                while !over.load(SeqCst) {
                    Client::connect(&path).await.expect("connects").ask(LIST, |_| {}).await.assert_ok(&[0; 5]);
                    calls.fetch_add(1, SeqCst);
                }
            })
        })
        .collect();
    for round in 1..=10 {
        let (next, next_stop) = start();
        serving.taken_over().await;
        stop.cancel();
        serving.drained().await;
        (serving, stop) = (next, next_stop);
        eventually("calls go on", || calls.load(SeqCst) >= 50 * round).await;
    }
    over.store(true, SeqCst);
    for client in clients {
        client.await.unwrap();
    }
    stop.cancel();
    serving.drained().await;
}

// === in a process of its own ===

/// Runs this test binary once more, for this one test, with a variable set that tells it so.
pub(crate) fn again(test: &str, path: &std::path::Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env("SERVE_TEST_SOCKET", path);
    command
}

/// The path that [`again`] gave, in the process that it started.
pub(crate) fn child_path() -> Option<std::path::PathBuf> {
    std::env::var_os("SERVE_TEST_SOCKET").map(Into::into)
}

/// A child that serves until its input is closed.
struct ServingChild(Child);

impl ServingChild {
    fn start(test: &str, path: &std::path::Path) -> Self {
        Self(again(test, path).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    async fn end(mut self) {
        drop(self.0.stdin.take());
        let ended = tokio::task::spawn_blocking(move || self.0.wait()).await.unwrap();
        assert!(ended.unwrap().success());
    }
}

#[tokio::test]
async fn a_server_out_of_descriptors_turns_clients_away_and_goes_on_when_they_are_back() {
    if let Some(path) = child_path() {
        setrlimit(Resource::Nofile, Rlimit { current: Some(40), maximum: Some(40) }).unwrap();
        let mut config = config(path);
        config.serving.threads = std::num::NonZeroUsize::new(1);
        let stop = CancellationToken::new();
        let mut serving = Server::bind(config).unwrap().serve(Fake::replying(b""), stop.clone()).unwrap();
        serving.publish().unwrap();
        let _ = std::io::stdin().read(&mut [0; 1]).unwrap();
        assert!(serving.stats().connections_out_of_descriptors() > 0);
        stop.cancel();
        serving.drained().await;
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kubelet.sock");
    let child =
        ServingChild::start("lifecycle::a_server_out_of_descriptors_turns_clients_away_and_goes_on_when_they_are_back", &path);
    eventually("it serves", || path.exists()).await;
    let mut sockets = Vec::new();
    for _ in 0..60 {
        sockets.push(UnixStream::connect(&path).await.unwrap());
    }
    // The last one cannot have been served; what it gets is an end, and not silence.
    let last = sockets.last().unwrap();
    last.readable().await.unwrap();
    assert_eq!(last.try_read(&mut [0; 1]).unwrap(), 0);
    drop(sockets);
    let mut served = false;
    for _ in 0..100 {
        let Ok(mut client) = Client::connect(&path).await else { continue };
        if client.send.ready().await.is_ok() && client.send.send_request(crate::client::request(LIST)).await.is_ok() {
            served = true;
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(served, "nobody is served although descriptors are back");
    child.end().await;
}
