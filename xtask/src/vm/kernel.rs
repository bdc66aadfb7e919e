//! The kernels: Debian's cloud images, fetched once and kept in `target/vm`.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::apt::Suite;
use super::root;
use crate::shell;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Version {
    /// Debian bullseye
    #[value(name = "5.10")]
    V5_10,
    /// Debian bookworm
    #[value(name = "6.1")]
    V6_1,
    /// Debian trixie
    #[value(name = "6.12")]
    V6_12,
}

pub(crate) const ALL: [Version; 3] = [Version::V5_10, Version::V6_1, Version::V6_12];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Arch {
    #[default]
    #[value(name = "x86_64")]
    X86_64,
    Aarch64,
}

/// A kernel to boot.
pub(crate) struct Kernel {
    pub(crate) version: Version,
    /// Its own full name, such as `6.1.0-50-cloud-amd64`.
    pub(crate) name: String,
    pub(crate) image: PathBuf,
    /// The overlay file system, a module in Debian's kernels.
    pub(crate) overlay: PathBuf,
}

/// From the cache, or from Debian.
pub(crate) fn fetch(version: Version, arch: Arch) -> Result<Kernel> {
    let home = root::kept(&format!("kernel-{version}-{arch}"), |folder| {
        let suite = Suite::open(version.suite(), arch.debian())?;
        let archive = suite.alone(&suite.stands_for(&format!("linux-image-cloud-{}", arch.debian()))?)?;
        root::unpack(&archive, folder, &["--wildcards", "./boot/vmlinuz-*", "*/overlay.ko*"])?;
        uncompress_modules(folder)
    })?;
    let image = find(&home, "vmlinuz-")?;
    let name = image.file_name().unwrap_or_default().to_string_lossy().trim_start_matches("vmlinuz-").to_owned();
    Ok(Kernel { version, name, image, overlay: find(&home, "overlay.ko")? })
}

/// Trixie's modules are compressed; the guest takes them as they are in memory.
fn uncompress_modules(folder: &Path) -> Result<()> {
    let module = find(folder, "overlay.ko")?;
    if module.extension().is_some_and(|extension| extension == "xz") {
        shell::run(Command::new("xz").arg("--decompress").arg(module))?;
    }
    Ok(())
}

/// The only file below whose name starts so.
fn find(folder: &Path, start: &str) -> Result<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else if entry.file_name().to_string_lossy().starts_with(start) {
                return Ok(entry.path());
            }
        }
    }
    bail!("no {start} in {}: remove that folder to fetch the kernel anew", folder.display())
}

// === impl Version ===

impl Version {
    const fn suite(self) -> &'static str {
        match self {
            Self::V5_10 => "bullseye",
            Self::V6_1 => "bookworm",
            Self::V6_12 => "trixie",
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V5_10 => "5.10",
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
        })
    }
}

// === impl Arch ===

impl Arch {
    /// Debian's name for it.
    pub(crate) const fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// Rust's target whose programs need nothing in the guest.
    pub(crate) const fn target(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64-unknown-linux-musl",
            Self::Aarch64 => "aarch64-unknown-linux-musl",
        }
    }

    /// Any that makes code for it; no library is looked at.
    pub(crate) const fn c_compiler(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64-linux-gnu-gcc",
            Self::Aarch64 => "aarch64-linux-gnu-gcc",
        }
    }

    /// The kernel's name for the machine's first serial line.
    pub(crate) const fn console(self) -> &'static str {
        match self {
            Self::X86_64 => "ttyS0",
            Self::Aarch64 => "ttyAMA0",
        }
    }

    /// The second one, which the kernel leaves alone.
    pub(crate) const fn port(self) -> &'static str {
        match self {
            Self::X86_64 => "/dev/ttyS1",
            Self::Aarch64 => "/dev/ttyS0",
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        })
    }
}
