//! `cargo xtask vm`: runs a program in a virtual machine, on a kernel of one's choice, and brings back its output and its exit code.
//! Emulated (no KVM, no rights), so that it runs anywhere. Never a part of what is shipped.

mod apt;
mod build;
mod initramfs;
mod kernel;
mod machine;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytesize::ByteSize;
use comfy_table::{Table, presets};
use vm_guest::{Cgroups, End, Identity, Job};

use crate::means::Means;
use crate::{means, shell};
use initramfs::Initramfs;
use kernel::{Arch, Version};
use machine::Machine;

/// A program of the project in a virtual machine, on each kernel asked for
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kernel, as Debian has it; may be given more than once [default: all of them]
    #[arg(long = "kernel", value_enum, value_name = "VERSION")]
    kernels: Vec<Version>,
    #[arg(long, value_enum, default_value_t)]
    arch: Arch,
    /// Build this test target statically and run it, in place of a program
    #[arg(long, value_name = "TARGET")]
    test: Option<String>,
    /// The package that has it
    #[arg(long, default_value = "podresources-proxy", requires = "test")]
    package: String,
    /// Boot with lockdown=confidentiality: the kernel refuses all tracing
    #[arg(long)]
    lockdown: bool,
    /// NUMA nodes; CPUs and memory are split evenly
    #[arg(long, value_name = "NODES", default_value_t = 1)]
    numa: u32,
    #[arg(long, default_value_t = 4)]
    cpus: u32,
    #[arg(long, default_value = "2GiB", value_name = "SIZE")]
    memory: ByteSize,
    /// Cgroup hierarchies below /sys/fs/cgroup: v1, v2 or hybrid
    #[arg(long, default_value = "v2", value_parser = cgroups)]
    cgroups: Cgroups,
    /// Who runs it: `root`, `UID`, or `UID:CAPABILITY,…` with these capabilities alone; may be given more than once
    #[arg(long = "as", value_name = "UID[:CAPS]", default_value = "root", value_parser = Identity::parse)]
    identities: Vec<Identity>,
    /// A variable of its environment
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    environment: Vec<(String, String)>,
    /// A file or folder to have at the same place in the machine; may be given more than once
    #[arg(long = "with", value_name = "PATH")]
    with: Vec<PathBuf>,
    /// How long one machine may run
    #[arg(long, default_value = "10m", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// A static program and its arguments; with --test the arguments alone
    #[arg(last = true, value_name = "PROGRAM")]
    words: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let missing: Vec<_> = needs(args.arch).into_iter().filter(|means| !means.is_here()).map(|means| means.install).collect();
    if !missing.is_empty() {
        bail!("no virtual machine can run here: install {}", missing.join("; "));
    }
    let kernels = if args.kernels.is_empty() { kernel::ALL.to_vec() } else { args.kernels.clone() };
    let cargo = program(args)?;
    let mut rows = Vec::new();
    for version in kernels {
        let kernel = kernel::fetch(version, args.arch)?;
        for identity in &args.identities {
            println!("\n── kernel {version} ({}), {identity} ──", kernel.name);
            let end = boot(args, &cargo, &kernel, identity);
            if let Err(error) = &end {
                println!("{error:#}");
            }
            rows.push((version, identity, end));
        }
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["KERNEL", "AS", "RESULT"]);
    for (version, identity, end) in &rows {
        table.add_row([version.to_string(), identity.to_string(), tell(end)]);
    }
    println!("\n{table}");
    Ok(exit_code(rows.iter().map(|(_, _, end)| end.as_ref().ok())))
}

/// What a machine of this architecture takes.
pub(crate) fn needs(arch: Arch) -> Vec<Means> {
    let (qemu, target) = match arch {
        Arch::X86_64 => (means::QEMU_X86_64, means::MUSL_X86_64),
        Arch::Aarch64 => (means::QEMU_AARCH64, means::MUSL_AARCH64),
    };
    vec![qemu, target, means::APT, means::DPKG, means::SETPRIV]
}

/// What is to be run, and the files that it takes in the guest.
struct Cargo {
    program: PathBuf,
    arguments: Vec<String>,
    folder: PathBuf,
    init: PathBuf,
    files: Vec<PathBuf>,
}

fn program(args: &Args) -> Result<Cargo> {
    let init = build::init(args.arch)?;
    let root = shell::root();
    let (program, arguments, mut files) = match (&args.test, args.words.split_first()) {
        (Some(test), _) => {
            let built = build::test(args.arch, &args.package, test)?;
            // One process and its output: nothing is gained by hiding what a passing test says.
            let arguments = std::iter::once("--nocapture".to_owned()).chain(args.words.iter().cloned()).collect();
            (built.program, arguments, built.beside)
        }
        (None, Some((program, arguments))) => {
            let program = std::path::absolute(program)?;
            (program, arguments.to_vec(), Vec::new())
        }
        (None, None) => bail!("nothing to run: `cargo xtask vm --test TARGET` or `cargo xtask vm -- PROGRAM [ARGUMENTS]`"),
    };
    files.push(program.clone());
    for path in &args.with {
        files.push(std::path::absolute(path)?);
    }
    Ok(Cargo { program, arguments, folder: root, init, files })
}

fn boot(args: &Args, cargo: &Cargo, kernel: &kernel::Kernel, identity: &Identity) -> Result<End> {
    let folder = shell::target().join("vm").join("run");
    std::fs::create_dir_all(&folder)?;
    let folder = tempfile::Builder::new().prefix("vm-").tempdir_in(folder)?;
    let environment = BTreeMap::from([
        ("PATH".to_owned(), "/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
        ("PODRESOURCES_VM".to_owned(), format!("{} {}", args.arch, kernel.version)),
    ]);
    let job = Job {
        program: cargo.program.clone(),
        arguments: cargo.arguments.clone(),
        environment: environment.into_iter().chain(args.environment.iter().cloned()).collect(),
        folder: cargo.folder.clone(),
        identity: identity.clone(),
        cgroups: args.cgroups,
        machine: vm_guest::Machine {
            kernel: kernel.version.to_string(),
            cpus: args.cpus,
            nodes: args.numa,
            lockdown: args.lockdown,
        },
        port: args.arch.port().into(),
        seal: seal()?,
    };
    let initramfs = folder.path().join("initramfs");
    let mut archive = Initramfs::create(&initramfs)?;
    archive.folder(&cargo.folder)?;
    archive.file(Path::new("/init"), &cargo.init)?;
    archive.text(Path::new(vm_guest::JOB), &job.to_text()?)?;
    for path in &cargo.files {
        archive.tree(path)?;
    }
    archive.finish()?;
    let machine = Machine {
        arch: args.arch,
        cpus: args.cpus,
        memory: args.memory,
        numa: args.numa,
        lockdown: args.lockdown,
        timeout: args.timeout,
        folder: folder.path(),
    };
    machine.run(&kernel.image, &initramfs, &job.seal)
}

/// A word that nobody in the guest can know before the job is read.
fn seal() -> Result<String> {
    let random = std::fs::read_to_string("/proc/sys/kernel/random/uuid").context("cannot read /proc/sys/kernel/random/uuid")?;
    Ok(format!("vm-{}", random.trim()))
}

fn tell(end: &Result<End>) -> String {
    match end {
        Ok(End::Exited(0)) => "passed".to_owned(),
        Ok(End::Exited(code)) => format!("FAILED: exit code {code}"),
        Ok(End::Killed(signal)) => format!("FAILED: ended by signal {signal}"),
        Ok(End::Failed(why)) => format!("FAILED: {why}"),
        Err(error) => format!("FAILED: {}", format!("{error:#}").lines().next().unwrap_or_default()),
    }
}

/// The first exit code that is not 0; failure where a machine brought none.
fn exit_code<'a>(mut ends: impl Iterator<Item = Option<&'a End>>) -> ExitCode {
    match ends.find(|end| *end != Some(&End::Exited(0))) {
        None => ExitCode::SUCCESS,
        Some(Some(End::Exited(code))) => u8::try_from(*code).map_or(ExitCode::FAILURE, ExitCode::from),
        Some(_) => ExitCode::FAILURE,
    }
}

fn cgroups(text: &str) -> Result<Cgroups, String> {
    match text {
        "v1" => Ok(Cgroups::V1),
        "v2" => Ok(Cgroups::V2),
        "hybrid" => Ok(Cgroups::Hybrid),
        _ => Err("v1, v2 or hybrid".to_owned()),
    }
}

fn variable(text: &str) -> Result<(String, String), String> {
    text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())).ok_or_else(|| "NAME=VALUE".to_owned())
}
