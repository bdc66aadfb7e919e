//! The built program at work before a simulated kubelet: everything in a directory of its own, nothing of the machine's.

use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use http::{HeaderValue, Request};
use podresources_proxy::admin;
use podresources_proxy::grpc::frame_message;
use podresources_proxy::proto::v1;
use podresources_proxy::simulate::{Config, Simulator};
use prost::Message as _;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};

#[path = "../serve/client.rs"]
pub(crate) mod client;

use client::{Body, Client, Reply, full, request};

/// How long anything may take that comes by itself. Far more than it needs: a busy machine must not fail a test.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Sockets, log and configuration of one test.
pub(crate) struct Place(TempDir);

/// A running proxy; killed when dropped.
pub(crate) struct Proxy {
    pub(crate) child: Child,
    log: PathBuf,
    admin: PathBuf,
}

// === impl Place ===

impl Place {
    pub(crate) fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        for directory in ["kubelet/pod-resources", "logs", "cgroup"] {
            fs::create_dir_all(place.path(directory)).unwrap();
        }
        fs::write(place.path("config.toml"), "").unwrap();
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The kubelet's socket.
    pub(crate) fn kubelet(&self) -> PathBuf {
        self.path("kubelet/pod-resources/kubelet.sock")
    }

    /// The proxy's socket.
    pub(crate) fn listen(&self) -> PathBuf {
        self.path("proxy/kubelet.sock")
    }

    /// `podresources-proxy run` with these flags beside those that keep it in its place, which come by the environment: a flag wins.
    pub(crate) fn run(&self, flags: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_podresources-proxy"));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PODRESOURCES_PROXY_")) {
            command.env_remove(name);
        }
        for (setting, path) in [
            ("CONFIG", "config.toml"),
            ("KUBELET_SOCKET", "kubelet/pod-resources/kubelet.sock"),
            ("LISTEN_SOCKET", "proxy/kubelet.sock"),
            ("ADMIN_SOCKET", "admin/admin.sock"),
            ("STATE_DIR", "state"),
            ("POD_LOGS_DIR", "logs"),
            ("CGROUP_ROOT", "cgroup"),
        ] {
            command.env(format!("PODRESOURCES_PROXY_{setting}"), self.path(path));
        }
        command.env("PODRESOURCES_PROXY_ADMIN_ADDRESS", "127.0.0.1:0").arg("run").args(flags).stdin(Stdio::null());
        command
    }

    /// A simulated kubelet at its socket, with its root directory.
    pub(crate) async fn simulator(&self, change: impl FnOnce(&mut Config)) -> Simulator {
        let mut config = Config { root_dir: Some(self.path("kubelet")), ..Config::at(self.kubelet()) };
        change(&mut config);
        Simulator::start(config).await.unwrap()
    }

    /// Starts the proxy, and waits for its socket.
    pub(crate) async fn start(&self, flags: &[&str]) -> Proxy {
        let proxy = self.spawn(self.run(flags));
        eventually("the socket is in place", async || self.listen().exists()).await;
        proxy
    }

    /// Starts the proxy by a command of this place, with its log in a file.
    pub(crate) fn spawn(&self, mut command: Command) -> Proxy {
        let log = tempfile::Builder::new().prefix("log-").tempfile_in(self.0.path()).unwrap().keep().unwrap().1;
        let child = command.stdout(Stdio::null()).stderr(File::create(&log).unwrap()).spawn().unwrap();
        Proxy { child, log, admin: self.path("admin/admin.sock") }
    }

    /// One call over a connection of its own, which must bring a reply of whatever kind.
    pub(crate) async fn call(&self, method: &str, change: impl FnOnce(&mut Request<Body>)) -> Reply {
        call(&self.listen(), method, change).await.unwrap_or_else(|error| panic!("{method}: {error}"))
    }
}

// === impl Proxy ===

impl Proxy {
    /// What the admin socket says; an empty text as long as it says nothing.
    pub(crate) async fn admin(&self, path: &str) -> String {
        admin::request(&self.admin, http::Method::GET, path, "").await.map_or_else(|_| String::new(), |reply| reply.body)
    }

    /// Waits until it is ready.
    pub(crate) async fn ready(&self) {
        eventually("it is ready", async || self.admin("/readyz").await.starts_with("ready")).await;
    }

    /// All that was logged so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("it ends", async || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        })
        .await;
        status.unwrap()
    }

    /// Asks it to end, which it must do well.
    pub(crate) async fn stop(mut self) {
        self.signal(Signal::TERM);
        let status = self.ended().await;
        assert_eq!(status.code(), Some(0), "{}", self.log());
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
        if std::thread::panicking() {
            eprintln!("--- log of the proxy\n{}", self.log());
        }
    }
}

// === calls ===

/// One call over a connection of its own.
pub(crate) async fn call(
    socket: &Path,
    method: &str,
    change: impl FnOnce(&mut Request<Body>),
) -> Result<Reply, Box<dyn Error + Send + Sync>> {
    let mut request = request(method);
    change(&mut request);
    let Client { mut send, connection } = Client::connect(socket).await?;
    let reply = async {
        send.ready().await?;
        Reply::read(send.send_request(request).await?).await
    };
    let reply = timeout(PATIENCE, reply).await.map_err(|_| "no reply, and no end either")??;
    drop(send);
    connection.abort();
    Ok(reply)
}

/// Makes a request a Get of this pod.
pub(crate) fn of_pod(namespace: &str, name: &str) -> impl FnOnce(&mut Request<Body>) {
    let get = v1::GetPodResourcesRequest { pod_name: name.to_owned(), pod_namespace: namespace.to_owned() };
    move |request| *request.body_mut() = full(&frame_message(&get.encode_to_vec()).unwrap())
}

/// Adds metadata to a request.
pub(crate) fn with(name: &'static str, value: &'static str) -> impl FnOnce(&mut Request<Body>) {
    move |request| drop(request.headers_mut().insert(name, HeaderValue::from_static(value)))
}

/// Waits for something that comes by itself.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < end, "this never came: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}
