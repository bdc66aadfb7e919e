//! The serving stack against h2spec, a conformance test for HTTP/2 servers: <https://github.com/summerwind/h2spec>.
//!
//! h2spec speaks TCP only, so the same stack serves a loopback port here, and plain hyper another one to compare with. What h2spec sends
//! are GET requests, which get an error with a text in it: all of HTTP/2 is in that.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should say where")]

use std::net::{SocketAddr, TcpListener};
use std::process::Command;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use podresources_proxy::answer::{Answer, Answers, Ask, Terms, Wait, Who};
use podresources_proxy::grpc::{Code, Status};
use podresources_proxy::serve::{Limits, Serving, ServingConfig};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// No call of h2spec's comes as far as an answer.
#[derive(Clone)]
struct Never;

impl Answers for Never {
    fn at_once(&self, _: &Ask, _: &Terms) -> Result<Result<Answer, Status>, Wait> {
        Ok(Err(Status::new(Code::Unavailable, "no answers here")))
    }

    async fn wait(&self, _: Ask, _: Terms, _: Who, _: Wait, _: Instant) -> Result<Answer, Status> {
        Err(Status::new(Code::Unavailable, "no answers here"))
    }
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Runs h2spec and returns the tests that failed, as it names them, and how many it ran.
async fn failures(server: SocketAddr) -> (Vec<String>, usize) {
    let h2spec = std::env::var_os("H2SPEC").expect("H2SPEC names the h2spec binary");
    let report = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new(h2spec);
    command
        .args(["--host", "127.0.0.1", "--port", &server.port().to_string(), "--timeout", "5", "--junit-report"])
        .arg(report.path());
    let ran = tokio::task::spawn_blocking(move || command.output()).await.unwrap().expect("h2spec runs");
    let text = std::fs::read_to_string(report.path()).unwrap();
    assert!(text.contains("<testcase"), "h2spec made no report:\n{}", String::from_utf8_lossy(&ran.stderr));
    let mut failed = Vec::new();
    let mut total = 0;
    for case in text.split("<testcase").skip(1) {
        total += 1;
        if case.contains("<failure") || case.contains("<error") {
            let attribute = |name: &str| {
                let from = case.find(&format!("{name}=\"")).unwrap() + name.len() + 2;
                case[from..].split('"').next().unwrap().to_owned()
            };
            failed.push(format!("{}: {}", attribute("package"), attribute("classname")));
        }
    }
    (failed, total)
}

#[tokio::test]
#[ignore = "needs h2spec 2.2.1: `cargo xtask test` builds it and names it in H2SPEC"]
async fn our_stack_fails_nothing() {
    let (plain, plain_address) = listen();
    let plain = tokio::net::TcpListener::from_std(plain).unwrap();
    let plain = tokio::spawn(async move {
        loop {
            let (socket, _) = plain.accept().await.unwrap();
            let hello = service_fn(async |request: http::Request<Incoming>| {
                request.into_body().collect().await?;
                Ok::<_, hyper::Error>(http::Response::new(Full::new(Bytes::from_static(b"hello\n"))))
            });
            tokio::spawn(http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), hello));
        }
    });
    let (ours, ours_address) = listen();
    let stop = CancellationToken::new();
    let config = ServingConfig { threads: None, instance: 1, limits: Limits::default() };
    let mut serving = Serving::over::<TcpStream, _>(ours.into(), config, Never, stop.clone()).unwrap();

    let (hypers, _) = failures(plain_address).await;
    let (ours, total) = failures(ours_address).await;
    assert!(total > 90, "h2spec ran only {total} tests");
    println!("of {total} tests, plain hyper fails {hypers:#?}, our stack {ours:#?}");
    // hyper resets a client whose preface is wrong, which h2spec counts as an error; we close in peace.
    assert_eq!(ours, [""; 0], "plain hyper fails {hypers:#?}");

    stop.cancel();
    serving.drained().await;
    plain.abort();
}
