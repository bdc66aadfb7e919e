//! A process that connects to us, and who the resolver takes it for.

use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use podresources_proxy::kubepods::Kubepods;
use podresources_proxy::peer::{Peer, Resolver};
use tempfile::TempDir;

/// Our socket, open to all users, and a log directory of pods.
pub(crate) struct Door {
    dir: TempDir,
    listener: UnixListener,
}

/// A process that has connected, or is about to; it waits for an answer that does not come. Ended when dropped.
pub(crate) struct Caller(Child);

/// Whether we are root; says so where we are not.
pub(crate) fn is_root(for_what: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    assert!(root || std::env::var_os("CI").is_none(), "run it as root: {for_what}");
    if !root {
        eprintln!("not tested: {for_what} takes root");
    }
    root
}

// === impl Door ===

impl Door {
    pub(crate) fn open() -> Self {
        let dir = tempfile::Builder::new().prefix("peer-").tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(dir.path().join("logs")).unwrap();
        let listener = UnixListener::bind(dir.path().join("sock")).unwrap();
        fs::set_permissions(dir.path().join("sock"), fs::Permissions::from_mode(0o666)).unwrap();
        Self { dir, listener }
    }

    pub(crate) fn resolver(&self) -> Resolver {
        resolver(&self.dir.path().join("logs"))
    }

    /// The kubelet's log directory of a pod.
    pub(crate) fn log_of(&self, pod: &str) {
        fs::create_dir(self.dir.path().join("logs").join(pod)).unwrap();
    }

    /// A process in these cgroups dials us.
    pub(crate) fn call_from(&self, cgroups: &[PathBuf]) -> Caller {
        let join = r#"for cgroup in $CGROUPS; do echo 0 > "$cgroup/cgroup.procs" || exit 1; done; exec "$0" "$@" 2>/dev/null"#;
        let paths: Vec<_> = cgroups.iter().map(|path| path.to_str().unwrap()).collect();
        let mut command = Command::new("sh");
        command.args(["-c", join]).arg(env!("CARGO_BIN_EXE_podresources-proxy")).env("CGROUPS", paths.join(" "));
        self.start(command)
    }

    /// A process of this user dials us.
    pub(crate) fn call_as(&self, uid: u32) -> Caller {
        // Where the program was built other users may not look.
        let program = self.dir.path().join("dial");
        fs::hard_link(env!("CARGO_BIN_EXE_podresources-proxy"), &program)
            .or_else(|_| fs::copy(env!("CARGO_BIN_EXE_podresources-proxy"), &program).map(drop))
            .unwrap();
        let mut command = Command::new(program);
        command.uid(uid).gid(uid);
        self.start(command)
    }

    fn start(&self, mut command: Command) -> Caller {
        let command = command.args(["list", "--timeout", "10m", "--socket"]).arg(self.dir.path().join("sock"));
        Caller(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().unwrap())
    }

    /// Takes the next connection.
    pub(crate) fn accept(&self) -> UnixStream {
        self.listener.accept().unwrap().0
    }

    /// Who the next connection is of.
    pub(crate) fn peer(&self) -> Peer {
        self.resolver().resolve(self.accept().as_fd())
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("sock")
    }
}

pub(crate) fn resolver(pod_logs: &Path) -> Resolver {
    Resolver::new(Kubepods { cgroup_root: "/sys/fs/cgroup".into(), pod_logs: pod_logs.to_path_buf() }, Vec::new()).unwrap()
}

// === impl Caller ===

impl Caller {
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Ends it, and waits until it has been reaped.
    pub(crate) fn end(mut self) {
        self.end_now();
    }

    fn end_now(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.end_now();
    }
}
