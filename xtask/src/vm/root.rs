//! What of Debian's user space the guest has: busybox always, and for a node with a real kubelet a root with containerd and what
//! `tests/lab/node` calls. Packages are unpacked, never installed: their scripts do not run, so no rights are needed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::apt::Suite;
use super::kernel::Arch;
use crate::shell;

/// One for all kernels: the lab is seen to work with this one's containerd.
const SUITE: &str = "bookworm";
const NODE: [&str; 16] = [
    "base-passwd",
    "bash",
    "busybox-static",
    "containerd",
    "coreutils",
    "dash",
    "findutils",
    "grep",
    "hostname",
    "iproute2",
    "mount",
    "openssl",
    "python3",
    "runc",
    "sed",
    "util-linux",
];
/// Since Debian 12 these are links, which the packages do not all know yet.
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];
/// What nobody reads in a guest.
const LEFT_OUT: [&str; 4] = ["./usr/share/doc", "./usr/share/man", "./usr/share/locale", "./usr/share/info"];

/// A folder with a static `bin/busybox` alone, which is the shell too.
pub(crate) fn small(arch: Arch) -> Result<PathBuf> {
    kept(&format!("busybox-{arch}"), |folder| {
        let suite = Suite::open(SUITE, arch.debian())?;
        unpack(&suite.alone("busybox-static")?, folder, &["./bin/busybox"])?;
        symlink("busybox", folder.join("bin/sh")).context("cannot link bin/sh")
    })
}

/// A folder with the root of a node.
pub(crate) fn node(arch: Arch) -> Result<PathBuf> {
    kept(&format!("node-{arch}"), |folder| {
        let suite = Suite::open(SUITE, arch.debian())?;
        for name in MERGED {
            fs::create_dir_all(folder.join("usr").join(name))?;
            symlink(Path::new("usr").join(name), folder.join(name))?;
        }
        for archive in suite.with_dependencies(&NODE)? {
            unpack(&archive, folder, &[])?;
        }
        // What the installer would have written; each container gets a copy.
        fs::write(folder.join("etc/hosts"), "127.0.0.1 localhost\n")?;
        fs::write(folder.join("etc/resolv.conf"), "")?;
        for name in ["passwd", "group"] {
            let master = folder.join("usr/share/base-passwd").join(format!("{name}.master"));
            fs::copy(&master, folder.join("etc").join(name)).with_context(|| format!("no {}", master.display()))?;
        }
        Ok(())
    })
}

/// The folder as it was made once, or made now. A half made one is never taken for whole.
pub(crate) fn kept(name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let home = shell::target().join("vm").join(name);
    if !home.exists() {
        let above = shell::target().join("vm");
        fs::create_dir_all(&above)?;
        let folder = tempfile::Builder::new().prefix("new-").tempdir_in(&above)?;
        make(folder.path())?;
        fs::rename(folder.path(), &home).with_context(|| format!("cannot create {}", home.display()))?;
    }
    Ok(home)
}

/// Unpacks a package, or these members of it.
pub(crate) fn unpack(archive: &Path, into: &Path, members: &[&str]) -> Result<()> {
    let mut from =
        Command::new("dpkg-deb").arg("--fsys-tarfile").arg(archive).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let stream = from.stdout.take().context("dpkg-deb has no output")?;
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--keep-directory-symlink", "--no-same-owner", "--directory"]).arg(into);
    tar.args(LEFT_OUT.map(|path| format!("--exclude={path}"))).args(members);
    let status = tar.stdin(stream).status().context("cannot run tar")?;
    let sent = from.wait()?;
    if !status.success() || !sent.success() {
        bail!("{} cannot be unpacked: dpkg-deb ended with {sent}, tar with {status}", archive.display());
    }
    Ok(())
}
