//! `cargo xtask test`: everything that must pass before a change is merged.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::report::Report;
use crate::{build_ebpf, lab, means, shell, tidy, vm};

/// Everything that must pass: tidy, unit, integration, a virtual machine, real clients, real kubelet
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this area; may be given more than once
    #[arg(long, value_enum, value_name = "AREA")]
    only: Vec<Area>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Area {
    /// Formatting, lints, documentation links, the rules of the house, licences
    Tidy,
    /// The committed eBPF objects, rebuilt and compared
    Ebpf,
    /// Tests beside the code, and the examples in its documentation
    Unit,
    /// Tests of tests/ that need nothing but this machine's sockets and files
    Integration,
    /// The HTTP/2 conformance test
    H2spec,
    /// Never stale: real cgroups changed under a running proxy
    Freshness,
    /// Nobody starves anybody: bad clients of every kind beside honest ones
    Abuse,
    /// The eBPF programs in a kernel that grants all of them: an emulated virtual machine
    Vm,
    /// A real kubelet, and real clients of every age in front of it
    Kubelet,
    /// A whole cluster: what multus is told at each CNI ADD
    Cluster,
}

/// Test targets that need something built first: they belong to an area of their own.
const H2SPEC: &str = "h2spec";
const REAL_KUBELET: &str = "real_kubelet";
const FRESHNESS: &str = "freshness";
const ABUSE: &str = "abuse";
const EBPF: &str = "ebpf";
const CORPUS: &str = "corpus";
/// What only a kernel with fexit or kprobes can hold; the test in the virtual machine runs it.
const IN_THE_VM: &str = "any_change";
/// What takes a whole cluster.
const IN_A_CLUSTER: &str = "cni_add";

pub(crate) fn run(Args { only }: &Args) -> ExitCode {
    let wanted = |area| only.is_empty() || only.contains(&area);
    let mut report = Report::new();
    if wanted(Area::Tidy) {
        tidy::steps(&mut report);
    }
    if wanted(Area::Ebpf) {
        report.step("eBPF objects are what the sources give", &[], || build_ebpf::build(true));
    }
    if wanted(Area::Unit) {
        report.step("unit", &[], || shell::run(shell::cargo().args(["test", "--locked", "--workspace", "--lib", "--bins"])));
        report.step("documentation examples", &[], || shell::run(shell::cargo().args(["test", "--locked", "--doc"])));
    }
    if wanted(Area::Integration) {
        report.step("integration", &[], integration);
        // The doors to private parsers are open here alone.
        let corpus = ["test", "--locked", "--features", "fuzzing", "--test", CORPUS];
        report.step("what fuzzing has kept", &[], || shell::run(shell::cargo().args(corpus)));
    }
    if wanted(Area::H2spec) {
        report.step("h2spec", &[means::GO], h2spec);
    }
    if wanted(Area::Freshness) {
        report.step("freshness, on real cgroups", &[means::ROOT], freshness);
    }
    if only.contains(&Area::Abuse) {
        report.step("abuse beside honest clients", &[means::ROOT, means::GO, means::PRLIMIT], abuse);
    } else if only.is_empty() {
        // Some of its cases do not hold yet: docs/ABUSE.md.
        report.by_hand("abuse beside honest clients", "cargo xtask test --only abuse");
    }
    if only.contains(&Area::Vm) {
        report.step("eBPF in a virtual machine", &vm::needs(vm::Arch::X86_64), in_vm);
    } else if only.is_empty() {
        report.by_hand("eBPF in a virtual machine", "cargo xtask test --only vm");
    }
    if wanted(Area::Kubelet) {
        let needs = [&means::NODE[..], &[means::NPM, means::JAVAC, means::MAVEN, means::OPENSSL]].concat();
        report.step("real kubelet, real clients", &needs, real_kubelet);
    }
    if only.contains(&Area::Cluster) {
        report.step("multus in a cluster", &[&means::NODE[..], &[means::OPENSSL]].concat(), cluster);
    } else if only.is_empty() {
        // Building all of Kubernetes takes longer than all the rest.
        report.by_hand("multus in a cluster", "cargo xtask test --only cluster");
    }
    report.finish()
}

/// All test targets of the root package, save those with an area of their own.
fn integration() -> Result<()> {
    let mut command = shell::cargo();
    command.args(["test", "--locked"]);
    let targets = test_targets()?;
    let mut some = false;
    for target in targets.iter().filter(|target| ![H2SPEC, REAL_KUBELET, FRESHNESS, CORPUS, ABUSE].contains(&target.as_str())) {
        command.args(["--test", target]);
        some = true;
    }
    if !some {
        bail!("no integration test is left in Cargo.toml");
    }
    shell::run(&mut command)
}

/// The root package's; the other members' run elsewhere.
fn test_targets() -> Result<Vec<String>> {
    let metadata = shell::output(shell::cargo().args(["metadata", "--locked", "--no-deps", "--format-version", "1"]))?;
    let metadata: Value = serde_json::from_str(&metadata).context("cargo metadata is not JSON")?;
    let mut packages = metadata["packages"].as_array().into_iter().flatten();
    let package =
        packages.find(|package| package["name"] == "podresources-proxy").context("the root package is not in cargo metadata")?;
    let targets = package["targets"].as_array().into_iter().flatten();
    let tests = targets.filter(|target| target["kind"].as_array().is_some_and(|kinds| kinds.contains(&"test".into())));
    Ok(tests.filter_map(|target| target["name"].as_str().map(str::to_owned)).collect())
}

fn h2spec() -> Result<()> {
    let clients = build_clients(&["h2spec"])?;
    let mut command = shell::cargo();
    command.args(["test", "--locked", "--test", H2SPEC, "--", "--include-ignored"]).env("H2SPEC", clients.join("h2spec-2.2.1"));
    shell::run(&mut command)
}

fn freshness() -> Result<()> {
    let mut command = shell::cargo();
    // Latencies are printed, and one storm at a time is enough.
    command.args(["test", "--locked", "--test", FRESHNESS, "--", "--include-ignored", "--test-threads=1", "--nocapture"]);
    shell::run(command.args(["--skip", IN_THE_VM]))
}

fn abuse() -> Result<()> {
    let clients = build_clients(&["storm"])?;
    shell::run(shell::cargo().args(["test", "--locked", "--test", ABUSE]).env("CLIENTS_BIN", clients))
}

/// One kernel; the others by hand, with `cargo xtask vm`.
fn in_vm() -> Result<()> {
    let xtask = std::env::current_exe().context("cannot find this program")?;
    let vm = || {
        let mut command = Command::new(&xtask);
        command.args(["vm", "--kernel", "6.1"]);
        command
    };
    shell::run(vm().args(["--numa", "2", "--package", "vm-guest", "--test", "ordered", "--", "--include-ignored"]))?;
    shell::run(vm().args(["--test", EBPF]))?;
    // A round takes half a second where every instruction is emulated.
    shell::run(vm().args(["--env", "RACE_ROUNDS=200", "--test", FRESHNESS, "--", "--include-ignored", IN_THE_VM]))
}

fn real_kubelet() -> Result<()> {
    let bin = lab::build(lab::VERSION, &[])?;
    let clients = build_clients(&["grpc-go", "multus", "kubernetes", "storm", "python", "node", "java"])?;
    let mut command = shell::cargo();
    // One node after the other: each test has one of its own, and a machine has CPUs for one.
    command.args(["test", "--locked", "--test", REAL_KUBELET, "--", "--include-ignored", "--test-threads=1", "--nocapture"]);
    shell::run(command.args(["--skip", IN_A_CLUSTER]).env("LAB_BIN", bin).env("CLIENTS_BIN", clients))
}

fn cluster() -> Result<()> {
    let bin = lab::build(lab::VERSION, &["kube", "dradriver"])?;
    let clients = build_clients(&["multus"])?;
    let mut command = shell::cargo();
    command.args(["test", "--locked", "--test", REAL_KUBELET, "--", "--include-ignored", "--nocapture", IN_A_CLUSTER]);
    shell::run(command.env("LAB_BIN", bin).env("CLIENTS_BIN", clients))
}

/// Builds real clients, and returns the folder where they are.
fn build_clients(names: &[&str]) -> Result<PathBuf> {
    let out = shell::target().join("clients");
    shell::run(Command::new("tests/clients/build").args(names).env("CLIENTS_TARGET", &out))?;
    Ok(out)
}
