//! `cargo xtask tidy`: everything about the sources that can be said without running them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};

use crate::report::Report;
use crate::{links, means, rules, shell};

/// Formatting, lints, links, the rules of the house, licences
#[derive(clap::Args)]
pub(crate) struct Args {}

/// The feature sets that must compile without a warning: all of it, the client side alone, the command line without a server,
/// the doors for fuzzing.
const FEATURE_SETS: [(&str, &[&str]); 4] = [
    ("default features", &[]),
    ("no default features", &["--no-default-features"]),
    ("features: cli", &["--no-default-features", "--features", "cli"]),
    ("features: fuzzing", &["--features", "fuzzing"]),
];

pub(crate) fn run(Args {}: &Args) -> ExitCode {
    let mut report = Report::new();
    steps(&mut report);
    report.finish()
}

pub(crate) fn steps(report: &mut Report) {
    report.step("rules of the house", &[], check_rules);
    report.step("Markdown links", &[], check_links);
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
    let files = files()?;
    let mut complaints = 0;
    for path in &files {
        complaints += told(path, &rules::check(path, &text(path)?));
    }
    if complaints > 0 {
        bail!("{complaints} complaints in {} files", files.len());
    }
    println!("{} files keep the rules", files.len());
    Ok(())
}

/// Looks where every link in a Markdown file leads that leads to a file of ours.
fn check_links() -> Result<()> {
    let files = files()?;
    let documents: Vec<_> = files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect();
    let mut anchors = BTreeMap::new();
    for path in &documents {
        anchors.insert((*path).clone(), links::anchors(&text(path)?));
    }
    let mut complaints = 0;
    for path in &documents {
        let exists = |path: &Path| files.iter().any(|file| file.starts_with(path));
        complaints += told(path, &links::check(path, &text(path)?, exists, &anchors));
    }
    if complaints > 0 {
        bail!("{complaints} links lead nowhere");
    }
    println!("the links in {} documents lead somewhere", documents.len());
    Ok(())
}

/// Every file that is or will be tracked.
fn files() -> Result<Vec<PathBuf>> {
    let listing = shell::output(Command::new("git").args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]))?;
    Ok(listing.split_terminator('\0').map(PathBuf::from).filter(|path| path.is_file()).collect())
}

fn text(path: &Path) -> Result<String> {
    let content = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(String::from_utf8_lossy(&content).into_owned())
}

/// Prints the complaints, and counts them.
fn told(path: &Path, complaints: &[String]) -> usize {
    for complaint in complaints {
        println!("{}: {complaint}", path.display());
    }
    complaints.len()
}
