//! The proxy under test: the binary itself, in front of a node's kubelet.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::node::{Node, wait};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_podresources-proxy");
/// Where the proxy has its socket, among a node's scratch folders.
pub(crate) const FOLDER: &str = "proxy";
/// The socket's name there.
pub(crate) const SOCKET: &str = "kubelet.sock";

/// A running proxy; told to end when it is dropped, and then it must end well.
pub(crate) struct Proxy {
    process: Child,
    socket: PathBuf,
}

// === impl Proxy ===

impl Proxy {
    /// Starts the proxy, and returns when its socket is there.
    pub(crate) async fn start(node: &Node, flags: &[&str]) -> Self {
        Self::start_as(Command::new(PROGRAM), node, flags).await
    }

    /// The same where the node's own mounts are seen: its container runtime's files.
    pub(crate) async fn start_inside(node: &Node, flags: &[&str]) -> Self {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--target", &node.inside_pid(), PROGRAM]);
        Self::start_as(command, node, flags).await
    }

    async fn start_as(mut command: Command, node: &Node, flags: &[&str]) -> Self {
        let folder = node.scratch(FOLDER);
        let socket = folder.join(SOCKET);
        let process = command
            .arg("run")
            .arg("--kubelet-socket")
            .arg(node.socket())
            .arg("--pod-logs-dir")
            .arg(node.pod_logs())
            .arg("--listen-socket")
            .arg(&socket)
            .arg("--admin-socket")
            .arg(node.scratch("admin").join("admin.sock"))
            .args(["--admin-address", "127.0.0.1:0"])
            .arg("--state-dir")
            // Not where clients look, and made by the proxy, for itself alone.
            .arg(node.scratch("kept").join("state"))
            .args(flags)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        wait("the proxy has its socket", || socket.exists().then_some(())).await;
        Self { process, socket }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.socket.clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        kill_process(Pid::from_child(&self.process), Signal::TERM).unwrap();
        let status = self.process.wait().unwrap();
        if !std::thread::panicking() {
            assert!(status.success(), "the proxy ended with {status}");
        }
    }
}
