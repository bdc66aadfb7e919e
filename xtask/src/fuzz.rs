//! `cargo xtask fuzz`: libFuzzer against the properties of `tests/corpus/properties/`, on stable Rust.
//!
//! The compiler's coverage passes are given by hand, and libFuzzer itself comes with `libfuzzer-sys`: no other tool is needed. What is
//! replayed by everybody is a pack of inputs for each target; here it is unpacked, grown, and with `--keep` made small and packed again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};

use crate::report::Report;
use crate::{means, shell};

/// Fuzz the parsers of what comes from outside
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which; all without
    target: Vec<String>,
    /// How many inputs each gets
    #[arg(long, default_value_t = 10_000_000, value_name = "N")]
    runs: u64,
    /// Afterwards, put the smallest set of inputs that reaches as much into tests/corpus/inputs
    #[arg(long)]
    keep: bool,
}

/// What the compiler adds: counters at each branch, and what is compared with what.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing";

const PACKS: &str = "tests/corpus/inputs";
const FOUND: &str = "tests/corpus/found";
/// The longest input, in bytes.
const LONGEST: usize = 2048;
/// How long one input may take, in seconds, and all the memory it may take, in MB.
const PATIENCE: &str = "-timeout=10";
const MEMORY: &str = "-rss_limit_mb=2048";
/// The most inputs of a pack, the shortest of all.
const MOST: usize = 400;

pub(crate) fn run(args: &Args) -> ExitCode {
    let mut report = Report::new();
    report.step("fuzz", &[means::CXX], || fuzz(args));
    report.finish()
}

fn fuzz(args: &Args) -> Result<()> {
    let known = names()?;
    if let Some(stranger) = args.target.iter().find(|target| !known.contains(target)) {
        bail!("there is no target {stranger:?}; there are {}", known.join(", "));
    }
    let program = build()?;
    let mut broken = Vec::new();
    for target in if args.target.is_empty() { &known } else { &args.target } {
        let work = shell::target().join("fuzz/corpus").join(target);
        unpack(target, &work)?;
        let artifacts = shell::target().join("fuzz/found").join(format!("{target}-"));
        fs::create_dir_all(shell::target().join("fuzz/found"))?;
        let mut command = Command::new(&program);
        command.env("FUZZ_TARGET", target).arg(&work).arg(format!("-runs={}", args.runs)).arg(format!("-max_len={LONGEST}"));
        command.args([PATIENCE, MEMORY, "-print_final_stats=1"]).arg(format!("-artifact_prefix={}", artifacts.display()));
        if let Err(error) = shell::run(&mut command) {
            println!("{target}: {error}; the input is {}*", artifacts.display());
            broken.push(target.as_str());
        } else if args.keep {
            pack(&program, target, &work)?;
        }
    }
    if !broken.is_empty() {
        bail!("broken: {}. Mend it, and put the input into {FOUND}/TARGET/ under a name that says what it was", broken.join(", "));
    }
    Ok(())
}

/// The targets: each has a pack.
fn names() -> Result<Vec<String>> {
    let entries = fs::read_dir(PACKS).with_context(|| format!("cannot read {PACKS}"))?;
    let stems = entries.flatten().filter_map(|entry| Some(entry.path().file_stem()?.to_str()?.to_owned()));
    let mut names: Vec<String> = stems.collect();
    names.sort_unstable();
    Ok(names)
}

/// Builds the one program for all targets. The target is named so that build scripts are built without the passes.
fn build() -> Result<PathBuf> {
    let version = shell::output(Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())).arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc -vV names no host")?;
    let folder = shell::target().join("fuzz");
    let mut command = shell::cargo();
    command.args(["build", "--locked", "--release", "--manifest-path", "fuzz/Cargo.toml", "--target", host, "--target-dir"]);
    shell::run(command.arg(&folder).env("RUSTFLAGS", COVERAGE))?;
    Ok(folder.join(host).join("release/fuzz"))
}

/// Puts what is kept of a target where libFuzzer looks, beside what earlier runs have left there.
fn unpack(target: &str, into: &Path) -> Result<()> {
    fs::create_dir_all(into)?;
    let path = Path::new(PACKS).join(format!("{target}.bin"));
    let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut pack = &bytes[..];
    let mut at = 0;
    while let Some((len, rest)) = pack.split_first_chunk() {
        let len = u32::from_le_bytes(*len).try_into()?;
        let (input, rest) = rest.split_at_checked(len).with_context(|| format!("{} is cut off", path.display()))?;
        fs::write(into.join(format!("packed-{at}")), input)?;
        at += 1;
        pack = rest;
    }
    for found in fs::read_dir(Path::new(FOUND).join(target)).into_iter().flatten().flatten() {
        fs::copy(found.path(), into.join(found.file_name()))?;
    }
    Ok(())
}

/// Has libFuzzer choose the smallest set that reaches as much, and packs it.
fn pack(program: &Path, target: &str, work: &Path) -> Result<()> {
    let least = tempfile::tempdir()?;
    shell::run(Command::new(program).env("FUZZ_TARGET", target).arg("-merge=1").arg(least.path()).arg(work))?;
    let mut inputs = Vec::new();
    for file in fs::read_dir(least.path())? {
        inputs.push(fs::read(file?.path())?);
    }
    inputs.sort_unstable_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    inputs.truncate(MOST);
    let mut bytes = Vec::new();
    for input in &inputs {
        bytes.extend(u32::try_from(input.len())?.to_le_bytes());
        bytes.extend(input);
    }
    fs::write(Path::new(PACKS).join(format!("{target}.bin")), bytes)?;
    println!("{target}: {} inputs kept", inputs.len());
    Ok(())
}
