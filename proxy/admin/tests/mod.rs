//! The admin server over real sockets.

mod doors;

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use hyper::{Method, StatusCode};
use tempfile::TempDir;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::serve::Limits;
use super::*;

/// A running admin server with both doors.
struct Server {
    address: SocketAddr,
    socket: PathBuf,
    readiness: Readiness,
    heartbeats: Heartbeats,
    shutdown: CancellationToken,
    running: Option<Running>,
    directory: TempDir,
}

impl Server {
    fn start() -> Self {
        Self::start_within(Limits { connections: 64, patience: Duration::from_mins(1) })
    }

    fn start_within(limits: Limits) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("admin/admin.sock");
        let config = Config { address: Some("127.0.0.1:0".parse().unwrap()), socket: Some(socket.clone()), replace: false };
        let bound = config.bind().unwrap();
        let address = bound.local_addr().unwrap();
        let (readiness, heartbeats) = (Readiness::new(), Heartbeats::new(Instant::now()));
        let shutdown = CancellationToken::new();
        let running = bound.serve_within(limits, parts(&readiness, &heartbeats), shutdown.clone()).unwrap();
        Self { address, socket, readiness, heartbeats, shutdown, running: Some(running), directory }
    }

    /// A request by hand through the TCP door: status line, headers, body.
    fn tcp(&self, head: &str) -> String {
        exchange(self.connect(), head)
    }

    /// A connection that gives up on a server that never answers, so that a test fails and does not hang.
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    fn get(&self, path: &str) -> String {
        self.tcp(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
    }

    /// A request through the socket.
    fn ask(&self, method: Method, path: &str, body: &'static str) -> Reply {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(request(&self.socket, method, path, body)).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown.cancel();
        if let Some(running) = self.running.take() {
            running.join();
        }
    }
}

fn parts(readiness: &Readiness, heartbeats: &Heartbeats) -> Parts {
    let told = readiness.clone();
    Parts {
        readiness: readiness.clone(),
        heartbeats: heartbeats.clone(),
        metrics: Metrics::new(),
        log_level: LogLevel::new("info", |level| match level {
            "debug" => Ok(()),
            other => Err(format!("{other:?} is no level")),
        }),
        status: Box::new(move || status::Status { version: "1.2.3".into(), readiness: told.report(), ..status::Status::default() }),
        clients: Box::new(|| vec![status::Client { client: "uid:7".into(), ..status::Client::default() }]),
        source: Box::new(|wish| match wish {
            None => Ok("auto".to_owned()),
            Some("host") => Ok("host".to_owned()),
            Some(other) => Err(format!("{other:?} is no source")),
        }),
        config: Box::new(|| "mode = \"cache\"\n".to_owned()),
    }
}

fn exchange(mut stream: impl Read + Write, head: &str) -> String {
    stream.write_all(head.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

#[track_caller]
fn assert_reply(reply: &str, status: u16, body: &str) {
    let (head, content) = reply.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no HTTP reply: {reply:?}"));
    assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{reply}");
    assert!(content.contains(body), "{body:?} is not in {reply}");
}

#[test]
fn probes_and_scrapes_answer_over_tcp_and_nothing_private_does() {
    let server = Server::start();
    assert_reply(&server.get("/healthz"), 200, "ok\n");
    assert_reply(&server.get("/readyz"), 200, "ready\n");
    assert_reply(&server.get("/metrics"), 200, "podresources_proxy_build_info{");
    assert_reply(&server.get("/"), 200, "/healthz ");
    for private in ["/status", "/clients", "/config", "/loglevel", "/source"] {
        let reply = server.get(private);
        assert_reply(&reply, 404, &format!("nothing at {private}; there is:\n"));
        assert_reply(&reply, 404, "/metrics ");
        assert_eq!(reply.matches(private).count(), 1, "{reply}");
    }
    assert_reply(&server.tcp("PUT /loglevel HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\ndebug"), 404, "");
    assert_eq!(server.ask(Method::GET, "/loglevel", "").body, "info\n");
}

#[test]
fn a_method_that_a_path_does_not_take_is_405_and_names_those_that_it_does() {
    let server = Server::start();
    let reply = server.tcp("POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    assert_reply(&reply, 405, "/healthz does not take POST");
    assert!(reply.contains("\r\nallow: GET, HEAD\r\n"), "{reply}");
    let head = server.tcp("HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
    assert_eq!(server.ask(Method::DELETE, "/loglevel", "").status, StatusCode::METHOD_NOT_ALLOWED);
}

#[test]
fn root_sees_every_path_through_the_socket() {
    let server = Server::start();
    let _latch = server.readiness.latch("first capture");
    for path in ["/healthz", "/metrics", "/config", "/loglevel", "/"] {
        assert_eq!(server.ask(Method::GET, path, "").status, StatusCode::OK, "{path}");
    }
    let told: status::Status = serde_json::from_str(&server.ask(Method::GET, "/status", "").body).unwrap();
    assert_eq!((told.version.as_str(), told.readiness), ("1.2.3", server.readiness.report()));
    assert_eq!(server.ask(Method::GET, "/config", "").body, "mode = \"cache\"\n");
    assert!(server.ask(Method::GET, "/moon", "").body.contains("/loglevel "));
}

#[test]
fn readiness_names_what_is_waited_for_until_the_last_latch_opens() {
    let server = Server::start();
    let capture = server.readiness.latch("first capture");
    let socket = server.readiness.latch("socket");
    capture.because("connection refused");
    server.readiness.note("no hostPID");
    assert_reply(&server.get("/readyz"), 503, "\r\n\r\nfirst capture: connection refused\nsocket\nnote: no hostPID\n".trim_start());
    socket.open();
    let reply = server.get("/readyz");
    assert_reply(&reply, 503, "first capture: connection refused\nnote");
    assert!(!reply.contains("socket"));
    capture.open();
    assert_reply(&server.get("/readyz"), 200, "ready\nnote: no hostPID\n");
}

#[test]
fn health_fails_when_a_thread_breaks_its_promise() {
    let server = Server::start();
    let beat = server.heartbeats.promise("worker 0", Duration::ZERO, Instant::now() - Duration::from_secs(3));
    assert_reply(&server.get("/healthz"), 503, "worker 0: no sign of life for ");
    drop(beat);
    assert_reply(&server.get("/healthz"), 200, "ok\n");
}

#[test]
fn a_source_is_asked_for_at_the_socket_and_a_wrong_one_is_refused() {
    let server = Server::start();
    assert_eq!(server.ask(Method::GET, "/source", "").body, "auto\n");
    assert_eq!(server.ask(Method::PUT, "/source", "host\n").body, "host\n");
    let refused = server.ask(Method::PUT, "/source", "moon");
    assert_eq!((refused.status, refused.body.as_str()), (StatusCode::BAD_REQUEST, "\"moon\" is no source\n"));
    assert_reply(&server.tcp("PUT /source HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nhost"), 404, "");
}

#[test]
fn the_log_level_can_be_set_and_a_bad_one_changes_nothing() {
    let server = Server::start();
    let put = |body| server.ask(Method::PUT, "/loglevel", body);
    let bad = put("loud");
    assert_eq!((bad.status, bad.body.as_str()), (StatusCode::BAD_REQUEST, "\"loud\" is no level\nstill in force: info\n"));
    assert_eq!(put(" \n").status, StatusCode::BAD_REQUEST);
    let long: &'static str = Box::leak("x".repeat(2000).into_boxed_str());
    assert_eq!(put(long).status, StatusCode::PAYLOAD_TOO_LARGE);
    let good = put("debug\n");
    assert_eq!((good.status, good.body.as_str()), (StatusCode::OK, "debug\n"));
    assert_eq!(server.ask(Method::GET, "/loglevel", "").body, "debug\n");
}

#[test]
fn a_scrape_comes_in_the_format_that_was_asked_for() {
    let server = Server::start();
    let reply = server.get("/metrics");
    assert!(reply.contains("\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{reply}");
    assert!(reply.contains("\n# TYPE process_cpu_seconds_total counter\n") && !reply.contains("# EOF"), "{reply}");
    let open = server.tcp("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text; version=1.0.0\r\n\r\n");
    assert!(open.contains("\r\ncontent-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"), "{open}");
    assert!(open.contains("\n# TYPE process_cpu_seconds counter\n") && open.ends_with("# EOF\n"), "{open}");
}

#[test]
fn slow_and_silent_visitors_do_not_keep_probes_out() {
    const MADE_ROOM: usize = 120 - 63;
    let forever = Limits { connections: 64, patience: Duration::from_hours(1) };
    let server = Server::start_within(forever);
    let crowd: Vec<TcpStream> = (0..120)
        .map(|n| {
            let mut stream = server.connect();
            stream.write_all(if n % 2 == 0 { b"" } else { b"GET /heal" }).unwrap();
            stream
        })
        .collect();
    for _ in 0..10 {
        assert_reply(&server.get("/healthz"), 200, "ok\n");
    }
    assert_eq!(server.ask(Method::GET, "/healthz", "").status, StatusCode::OK);
    for (n, stream) in crowd.iter().enumerate() {
        stream.set_nonblocking(n >= MADE_ROOM).unwrap();
        let read = { stream }.read(&mut [0]);
        if n < MADE_ROOM {
            assert!(matches!(read, Ok(0)), "those who came first have to make room: {n} {read:?}");
        } else {
            let open = read.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock);
            assert!(open, "those who came last keep their places beside one probe at a time: {n}");
        }
    }
}

#[test]
fn a_visitor_who_does_not_finish_is_hung_up_on() {
    let hasty = Limits { connections: 64, patience: Duration::from_millis(10) };
    let server = Server::start_within(hasty);
    assert_eq!(server.tcp("GET /healthz HTTP/1.1\r\nHost: "), "");
}

#[test]
fn an_endless_head_is_refused() {
    let server = Server::start();
    let reply = server.tcp(&format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(15 << 10)));
    assert_reply(&reply, 404, "nothing at /xxx");
    // Exactly as much as is read: a byte left unread would make the kernel drop the reply.
    let endless = format!("GET /{}", "x".repeat(16 << 10));
    assert!(server.tcp(&endless[..16 << 10]).starts_with("HTTP/1.1 4"));
}

#[test]
fn a_peer_that_is_not_root_is_denied_even_where_file_modes_let_it_in() {
    if !rustix::process::geteuid().is_root() {
        println!("not run: only root can become another user");
        return;
    }
    let server = Server::start();
    for directory in [server.directory.path(), server.socket.parent().unwrap()] {
        fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(&server.socket, Permissions::from_mode(0o666)).unwrap();
    let asked = |uid: u32| {
        let socket = server.socket.clone();
        // The kernel keeps a uid per thread, and this thread's is what the socket will tell.
        let peer = std::thread::spawn(move || {
            let uid = rustix::process::Uid::from_raw(uid);
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            exchange(UnixStream::connect(socket).unwrap(), "GET /status HTTP/1.1\r\nHost: x\r\n\r\n")
        });
        peer.join().unwrap()
    };
    assert_reply(&asked(65_534), 403, "uid 65534 may not ask here");
    assert_reply(&asked(0), 200, "\"version\": \"1.2.3\"");
}
