//! `cargo xtask tidy`: everything about the sources that can be said without running them.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};

use crate::report::Report;
use crate::{means, rules, shell};

/// Formatting, lints, documentation links, the rules of the house, licences
#[derive(clap::Args)]
pub(crate) struct Args {}

/// The feature sets that must compile without a warning: all of it, the client side alone, the command line without a server.
const FEATURE_SETS: [(&str, &[&str]); 3] = [
    ("default features", &[]),
    ("no default features", &["--no-default-features"]),
    ("features: cli", &["--no-default-features", "--features", "cli"]),
];

pub(crate) fn run(Args {}: &Args) -> ExitCode {
    let mut report = Report::new();
    steps(&mut report);
    report.finish()
}

pub(crate) fn steps(report: &mut Report) {
    report.step("rules of the house", &[], check_rules);
    report.step("fmt", &[], || shell::run(shell::cargo().args(["fmt", "--all", "--check"])));
    for (name, features) in FEATURE_SETS {
        report.step(&format!("clippy, {name}"), &[], || clippy(features));
    }
    // The documentation is for who works on the code: it may point at private items.
    report.step("doc links", &[], || {
        let mut doc = shell::cargo();
        doc.args(["doc", "--locked", "--workspace", "--no-deps", "--document-private-items"]);
        shell::run(doc.env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private-intra-doc-links"))
    });
    // Not the advisories: they need a database from the network, and change without a change of ours.
    report.step("licences and sources", &[means::CARGO_DENY], || {
        shell::run(Command::new("cargo-deny").args(["--locked", "check", "bans", "licenses", "sources"]))
    });
}

fn clippy(features: &[&str]) -> Result<()> {
    let mut command = shell::cargo();
    command.args(["clippy", "--locked", "--all-targets"]);
    // The other members have no features of their own.
    command.args(if features.is_empty() { &["--workspace"][..] } else { &["--package", "podresources-proxy"] });
    shell::run(command.args(features).args(["--", "-D", "warnings"]))
}

/// Holds every file that is or will be tracked against [`rules`].
fn check_rules() -> Result<()> {
    let listing = shell::output(Command::new("git").args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]))?;
    let mut complaints = 0;
    let mut files = 0;
    for path in listing.split_terminator('\0').map(Path::new).filter(|path| path.is_file()) {
        files += 1;
        let content = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        for complaint in rules::check(path, &String::from_utf8_lossy(&content)) {
            println!("{}: {complaint}", path.display());
            complaints += 1;
        }
    }
    if complaints > 0 {
        bail!("{complaints} complaints in {files} files");
    }
    println!("{files} files keep the rules");
    Ok(())
}
