//! What a machine needs for a step beyond Rust, and how to get it. A step whose means are missing is named at the end, never left out in silence.

use std::path::Path;

/// One thing that a step needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Means {
    /// The program to look for in `PATH`; `None` for the rights of root.
    program: Option<&'static str>,
    /// What to do where it is missing.
    pub(crate) install: &'static str,
}

pub(crate) const GO: Means = program("go", "Go");
pub(crate) const PYTHON: Means = program("python3", "python3, python3-venv (Debian)");
pub(crate) const NPM: Means = program("npm", "nodejs, npm");
pub(crate) const JAVAC: Means = program("javac", "default-jdk-headless (Debian)");
pub(crate) const MAVEN: Means = program("mvn", "maven (Debian)");
pub(crate) const CARGO_DENY: Means = program("cargo-deny", "cargo-deny (cargo install --locked cargo-deny)");
pub(crate) const ROOT: Means = Means { program: None, install: "nothing: run it as root" };
pub(crate) const OPENSSL: Means = program("openssl", "openssl (Debian)");

/// What a node with a real kubelet takes.
pub(crate) const NODE: [Means; 8] = [
    ROOT,
    GO,
    PYTHON,
    program("containerd", "containerd (Debian)"),
    program("runc", "runc (Debian)"),
    program("busybox", "busybox-static (Debian)"),
    program("ip", "iproute2 (Debian)"),
    program("unshare", "util-linux (Debian)"),
];

const fn program(program: &'static str, install: &'static str) -> Means {
    Means { program: Some(program), install }
}

// === impl Means ===

impl Means {
    /// Whether this machine has it.
    pub(crate) fn is_here(self) -> bool {
        let Some(program) = self.program else { return rustix::process::geteuid().is_root() };
        let path = std::env::var_os("PATH").unwrap_or_default();
        // Debian keeps some of these where only root looks.
        std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]).any(|folder| is_file(&folder.join(program)))
    }
}

fn is_file(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file())
}
