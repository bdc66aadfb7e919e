//! Taking the doors, and letting them go.

use std::fs::{self, Permissions};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use hyper::Method;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Server, assert_reply, exchange, parts};
use crate::admin::{Config, Heartbeats, Readiness, request};

#[test]
fn the_socket_is_for_its_owner_alone() {
    let server = Server::start();
    let mode = |path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(server.socket.parent().unwrap()), 0o700);
    assert_eq!(mode(&server.socket), 0o600);
    let names: Vec<_> = fs::read_dir(server.socket.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["admin.sock"], "nothing temporary is left");
}

fn socket_config(path: PathBuf) -> Config {
    Config { socket: Some(path), ..Config::default() }
}

#[track_caller]
fn assert_refused(path: PathBuf, with: &str) {
    let error = socket_config(path).bind().unwrap_err().to_string();
    assert!(error.contains(with), "{error}");
}

#[test]
fn a_directory_where_others_could_put_a_socket_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let shared = directory.path().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, Permissions::from_mode(0o770)).unwrap();
    assert_refused(shared.join("a.sock"), "has mode 0770: others could put a socket of their own there");
    fs::set_permissions(&shared, Permissions::from_mode(0o755)).unwrap();
    socket_config(shared.join("a.sock")).bind().unwrap();

    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&shared, &link).unwrap();
    assert_refused(link.join("a.sock"), "not a file or a link to one");
    assert_refused(directory.path().join("no/such/a.sock"), "make its parent first");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&shared, Some(65_534), None).unwrap();
        assert_refused(shared.join("a.sock"), "belongs to uid 65534");
    }
}

#[test]
fn a_dead_socket_is_replaced_and_anything_else_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.sock");
    drop(UnixListener::bind(&path).unwrap());
    assert!(UnixStream::connect(&path).is_err());
    let _bound = socket_config(path.clone()).bind().unwrap();
    UnixStream::connect(&path).unwrap();

    let file = directory.path().join("notes");
    fs::write(&file, "mine").unwrap();
    assert_refused(file.clone(), "is not a socket");
    assert_eq!(fs::read_to_string(file).unwrap(), "mine");
    assert_refused(directory.path().join("x".repeat(120)), "cannot bind the admin socket");
}

#[test]
fn a_living_socket_is_refused_by_name_unless_it_is_to_be_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.sock");
    let first = socket_config(path.clone()).bind().unwrap();
    assert_refused(path.clone(), &format!("is served by process {} (", std::process::id()));
    let inode = fs::metadata(&path).unwrap().ino();
    let _second = Config { replace: true, ..socket_config(path.clone()) }.bind().unwrap();
    assert_ne!(fs::metadata(&path).unwrap().ino(), inode);
    drop(first);
    UnixStream::connect(&path).unwrap();
}

#[test]
fn an_address_in_use_is_named_and_a_replacing_instance_waits_for_it() {
    let server = Server::start();
    let config = Config { address: Some(server.address), ..Config::default() };
    let error = config.bind().unwrap_err().to_string();
    let named = format!("cannot listen on the admin address {} (another process listens there; ", server.address);
    assert!(error.starts_with(&named) && error.contains("--admin-address"), "{error}");

    let bound = Config { replace: true, ..config }.bind().unwrap();
    assert_eq!(bound.local_addr(), None);
    let (readiness, shutdown) = (Readiness::new(), CancellationToken::new());
    let _latch = readiness.latch("the new one");
    let running = bound.serve(parts(&readiness, &Heartbeats::new(Instant::now())), shutdown.clone()).unwrap();
    let address = server.address;
    drop(server);
    let reply = loop {
        match TcpStream::connect(address) {
            Ok(stream) => break exchange(stream, "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    assert_reply(&reply, 503, "the new one\n");
    shutdown.cancel();
    running.join();
}

#[test]
fn once_stopped_nobody_answers_and_the_file_stays() {
    let mut server = Server::start();
    server.shutdown.cancel();
    server.running.take().unwrap().join();
    assert!(TcpStream::connect(server.address).is_err());
    assert!(UnixStream::connect(&server.socket).is_err());
    assert!(server.socket.exists());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = runtime.block_on(request(&server.socket, Method::GET, "/status", "")).unwrap_err().to_string();
    assert!(error.contains("is podresources-proxy running"), "{error}");
}
