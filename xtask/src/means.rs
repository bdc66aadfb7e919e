//! What a machine needs for a step beyond Rust, and how to get it. A step whose means are missing is named at the end, never left out in silence.

use std::path::Path;
use std::process::{Command, Stdio};

/// One thing that a step needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Means {
    what: What,
    /// What to do where it is missing.
    pub(crate) install: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// The program to look for in `PATH`.
    Program(&'static str),
    /// The rights of root.
    Root,
    /// Rust's standard library for this target.
    RustTarget(&'static str),
}

pub(crate) const GO: Means = program("go", "Go");
pub(crate) const PYTHON: Means = program("python3", "python3, python3-venv (Debian)");
pub(crate) const NPM: Means = program("npm", "nodejs, npm");
pub(crate) const JAVAC: Means = program("javac", "default-jdk-headless (Debian)");
pub(crate) const MAVEN: Means = program("mvn", "maven (Debian)");
pub(crate) const CARGO_DENY: Means = program("cargo-deny", "cargo-deny (cargo install --locked cargo-deny)");
pub(crate) const ROOT: Means = Means { what: What::Root, install: "nothing: run it as root" };
/// libFuzzer is C++.
pub(crate) const CXX: Means = program("c++", "g++ (Debian)");
pub(crate) const OPENSSL: Means = program("openssl", "openssl (Debian)");

pub(crate) const QEMU_X86_64: Means = program("qemu-system-x86_64", "qemu-system-x86 (Debian)");
pub(crate) const QEMU_AARCH64: Means = program("qemu-system-aarch64", "qemu-system-arm (Debian)");
pub(crate) const GCC_X86_64: Means = program("x86_64-linux-gnu-gcc", "gcc-x86-64-linux-gnu (Debian; on x86_64 gcc)");
pub(crate) const GCC_AARCH64: Means = program("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu (Debian; on aarch64 gcc)");
pub(crate) const APT: Means = program("apt-get", "apt (Debian: the guest's kernels are Debian's)");
pub(crate) const DPKG: Means = program("dpkg-deb", "dpkg (Debian)");
pub(crate) const XZ: Means = program("xz", "xz-utils (Debian)");
pub(crate) const PRLIMIT: Means = program("prlimit", "util-linux (Debian)");
pub(crate) const SETPRIV: Means = program("setpriv", "util-linux (Debian)");
pub(crate) const MUSL_X86_64: Means =
    rust_target("x86_64-unknown-linux-musl", "Rust's target (rustup target add x86_64-unknown-linux-musl)");
pub(crate) const MUSL_AARCH64: Means =
    rust_target("aarch64-unknown-linux-musl", "Rust's target (rustup target add aarch64-unknown-linux-musl)");

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
    Means { what: What::Program(program), install }
}

const fn rust_target(target: &'static str, install: &'static str) -> Means {
    Means { what: What::RustTarget(target), install }
}

// === impl Means ===

impl Means {
    /// Whether this machine has it.
    pub(crate) fn is_here(self) -> bool {
        match self.what {
            What::Program(program) => in_path(program),
            What::Root => rustix::process::geteuid().is_root(),
            What::RustTarget(target) => has_library(target),
        }
    }
}

fn in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian keeps some of these where only root looks.
    std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]).any(|folder| is_file(&folder.join(program)))
}

fn has_library(target: &str) -> bool {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let output = rustc.args(["--print", "target-libdir", "--target", target]).stdin(Stdio::null()).output();
    output.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
}

fn is_file(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file())
}
