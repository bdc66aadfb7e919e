//! Static programs for the guest, where no library is: musl, linked by the linker that comes with Rust.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::kernel::Arch;
use crate::shell;

/// What takes the guest's time.
const OPTIMISED: [&str; 2] = ["aya", "aya-obj"];

/// A test target and the programs that cargo built beside it, whose paths the tests know from `CARGO_BIN_EXE_…`.
pub(crate) struct Test {
    pub(crate) program: PathBuf,
    pub(crate) beside: Vec<PathBuf>,
}

/// The guest's first process.
pub(crate) fn init(arch: Arch) -> Result<PathBuf> {
    let built = cargo(arch, &["build", "--package", "vm-guest", "--bin", "vm-init"])?;
    let (_, path) = built.into_iter().next().context("cargo built no vm-init")?;
    Ok(path)
}

/// The test target `name` of a package.
pub(crate) fn test(arch: Arch, package: &str, name: &str) -> Result<Test> {
    let built = cargo(arch, &["test", "--no-run", "--package", package, "--test", name])?;
    let (tests, beside): (Vec<_>, Vec<_>) = built.into_iter().partition(|(kind, _)| kind == "test");
    let Some((_, program)) = tests.into_iter().next() else { bail!("cargo built no test target `{name}`") };
    Ok(Test { program, beside: beside.into_iter().map(|(_, path)| path).collect() })
}

/// Runs cargo and returns what it built: kind of target, path of the program.
fn cargo(arch: Arch, words: &[&str]) -> Result<Vec<(String, PathBuf)>> {
    let mut command: Command = shell::cargo();
    let target = arch.target();
    command.args(words).args(["--locked", "--target", target, "--message-format", "json-render-diagnostics"]);
    // A dependency of the benches has a line of C, which cargo builds for the tests too.
    command.env(format!("CC_{}", target.replace('-', "_")), arch.c_compiler());
    // The programs themselves need no C; no line tables, which only make the guest's memory full.
    command.env(format!("CARGO_TARGET_{}_LINKER", target.to_uppercase().replace('-', "_")), "rust-lld");
    command.env("CARGO_PROFILE_DEV_DEBUG", "0");
    // The kernel's description of its types is read for each attaching: emulated and not optimised, that is most of a test's time.
    for package in OPTIMISED {
        command.args(["--config", &format!("profile.dev.package.{package}.opt-level=2")]);
    }
    let messages = shell::output(&mut command)?;
    let mut built = Vec::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line).context("cargo's message is not JSON")?;
        if let (Some(path), Some(kind)) = (message["executable"].as_str(), message["target"]["kind"][0].as_str()) {
            built.push((kind.to_owned(), PathBuf::from(path)));
        }
    }
    Ok(built)
}
