//! A node with a real kubelet, from `tests/lab/node`.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::cgroup;

/// How long anything on the node may take; many times what it does take.
const PATIENCE: Duration = Duration::from_mins(2);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How long the container runtime may take to note that a container runs, and the kubelet to hear of it.
const RUNTIME_NOTES: Duration = Duration::from_millis(250);
const DELAY: &str = "LAB_PLUGIN_DELAY";

/// A running node; taken down when it is dropped.
pub(crate) struct Node {
    process: Child,
    said: Receiver<String>,
    folder: TempDir,
    cgroup: String,
}

/// What a pod asks for: a file of `tests/lab/pods`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Nothing.
    Shared,
    /// One device.
    Device,
    /// One CPU of its own, and one device.
    Exclusive,
}

// === impl Kind ===

impl Kind {
    const fn containers(self) -> usize {
        match self {
            Self::Shared => 2,
            Self::Device | Self::Exclusive => 1,
        }
    }
}

// === impl Node ===

impl Node {
    /// A node with its first two static pods running: `exclusive` (a CPU and a device) and `shared`.
    pub(crate) fn start() -> Self {
        Self::begin(&[])
    }

    /// A node with a control plane and no pods; they come by the API server.
    pub(crate) fn start_in_cluster() -> Self {
        Self::begin(&[("LAB_CLUSTER", "1")])
    }

    fn begin(environment: &[(&str, &str)]) -> Self {
        // Not below the build folder: a socket's path has 107 bytes at most.
        let folder = tempfile::Builder::new().prefix("podresources-lab-").tempdir().unwrap();
        let cgroup = format!("podresources-lab-{}", std::process::id());
        let mut process = Command::new(lab().join("node"))
            .arg(bin())
            .arg(folder.path())
            .envs(environment.iter().copied())
            .env("LAB_CGROUP", &cgroup)
            .env(DELAY, "1") // a plugin takes its time to come back
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (tell, said) = channel();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| tell.send(line)));
        let node = Self { process, said, folder, cgroup };
        node.wait_for_line("ready ");
        node
    }

    /// The kubelet's podresources socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.kubelet_dir().join("pod-resources/kubelet.sock")
    }

    pub(crate) fn kubelet_dir(&self) -> PathBuf {
        self.folder.path().join("kubelet")
    }

    pub(crate) fn pod_logs(&self) -> PathBuf {
        self.folder.path().join("logs/pods")
    }

    /// The node's own folder, at the same path inside.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A program of the lab's, to run on the node: its namespaces, but our user and environment. It ends with the node at the latest.
    pub(crate) fn inside(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.inside_pid(), "--all"]).arg(bin().join(program)).stdin(Stdio::null());
        command
    }

    /// What stands for `/sys/fs/cgroup` where only this node's pods are to be seen.
    pub(crate) fn cgroup_root(&self) -> PathBuf {
        cgroup::view(&self.cgroup, &self.scratch("cgroup"))
    }

    /// The pid of the process that holds the node's namespaces.
    pub(crate) fn inside_pid(&self) -> String {
        fs::read_to_string(self.folder.path().join("inside.pid")).unwrap().trim().to_owned()
    }

    /// The kubelet's configuration file.
    pub(crate) fn kubelet_config(&self) -> PathBuf {
        self.folder.path().join("kubelet.yaml")
    }

    /// A folder of the test's own, gone with the node.
    pub(crate) fn scratch(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// Adds a static pod, and does not wait for it. In replies it is called `NAME-node1`.
    pub(crate) fn add_pod(&self, name: &str, kind: Kind) {
        let kind = match kind {
            Kind::Shared => "shared",
            Kind::Device => "device",
            Kind::Exclusive => "exclusive",
        };
        self.pod(&["add", name, kind]);
    }

    /// Adds a static pod by its manifest. It goes with the node.
    pub(crate) fn add_manifest(&self, name: &str, manifest: &str) {
        let folder = self.folder.path().join("manifests");
        // Renamed into place: the kubelet reads a file as soon as it sees it.
        fs::write(folder.join(format!(".{name}")), manifest).unwrap();
        fs::rename(folder.join(format!(".{name}")), folder.join(format!("{name}.yaml"))).unwrap();
    }

    pub(crate) fn remove_pod(&self, name: &str) {
        self.pod(&["remove", name]);
    }

    fn pod(&self, words: &[&str]) {
        let (verb, rest) = words.split_first().unwrap();
        let status = Command::new(lab().join("pod")).arg(verb).arg(self.folder.path()).args(rest).status().unwrap();
        assert!(status.success(), "tests/lab/pod {words:?}");
    }

    /// Waits until all of the pod's containers run, and returns its cgroup. A kubelet that restarts before that may reject the pod for
    /// good, as its devices are not there yet.
    pub(crate) async fn running(&self, name: &str, kind: Kind) -> PathBuf {
        let what = format!("pod {name} runs");
        let cgroup = wait(&what, || {
            let cgroup = cgroup::of_pod(&self.cgroup, &self.uid(name)?)?;
            (cgroup::started_children(&cgroup) > kind.containers()).then_some(cgroup) // with the sandbox
        })
        .await;
        tokio::time::sleep(RUNTIME_NOTES).await;
        cgroup
    }

    /// The cgroups of all its pods, in every hierarchy.
    pub(crate) fn pod_cgroups(&self) -> HashSet<PathBuf> {
        cgroup::of_pods(&self.cgroup).collect()
    }

    /// From its log folder, `NAMESPACE_NAME_UID`. Each pod of a test has a name of its own.
    fn uid(&self, name: &str) -> Option<String> {
        let middle = format!("_{name}-node1_");
        let entries = fs::read_dir(self.pod_logs()).ok()?.flatten();
        let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.find_map(|folder| folder.split_once(&middle).map(|(_, uid)| uid.to_owned()))
    }

    /// Restarts the kubelet, and returns when the new one has been started and its device plugin too.
    pub(crate) fn restart_kubelet(&self) {
        self.signal_node(Signal::USR2);
        self.wait_for_line("restarted");
    }

    /// Kills the kubelet; [`Node::restart_kubelet`] brings one back.
    pub(crate) async fn kill_kubelet(&self) {
        self.signal_node(Signal::USR1);
        let pid_file = self.folder.path().join("kubelet.pid");
        wait("the kubelet ends", || (!pid_file.exists()).then_some(())).await;
    }

    /// Stops (`Signal::STOP`) or continues (`Signal::CONT`) the kubelet's process.
    pub(crate) fn signal_kubelet(&self, signal: Signal) {
        let pid = fs::read_to_string(self.folder.path().join("kubelet.pid")).unwrap();
        kill_process(Pid::from_raw(pid.trim().parse().unwrap()).unwrap(), signal).unwrap();
    }

    /// The version as the kubelet tells it, such as `1.37.2`.
    pub(crate) fn version() -> String {
        let output = Command::new(bin().join("kubelet")).arg("--version").output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().trim_start_matches("Kubernetes v").to_owned()
    }

    fn signal_node(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    fn wait_for_line(&self, start: &str) {
        loop {
            let line = self.said.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("the node does not say {start:?}: {error}"));
            if line.starts_with(start) {
                return;
            }
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if thread::panicking() {
            let log = fs::read_to_string(self.folder.path().join("out/kubelet.log")).unwrap_or_default();
            let end: Vec<_> = log.lines().rev().take(20).collect();
            eprintln!("the end of the kubelet's log:");
            end.iter().rev().for_each(|line| eprintln!("{line}"));
        }
        self.signal_node(Signal::TERM);
        if let Err(error) = self.process.wait() {
            eprintln!("the node: {error}");
        }
    }
}

/// Looks until there is something to return.
pub(crate) async fn wait<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = look() {
                return found;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"))
}

fn bin() -> PathBuf {
    std::env::var_os("LAB_BIN").expect("LAB_BIN names the folder with the kubelet: `cargo xtask test --only kubelet`").into()
}

fn lab() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab")
}
