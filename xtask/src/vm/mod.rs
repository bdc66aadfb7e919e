//! `cargo xtask vm`: runs a program in a virtual machine, on a kernel of one's choice, and brings back its output and its exit code.
//! Emulated (no KVM, no rights), so that it runs anywhere. Never a part of what is shipped.

mod apt;
mod build;
mod expected;
mod initramfs;
mod kernel;
mod machine;
mod root;

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
pub(crate) use kernel::Arch;
use kernel::{Kernel, Version};
use machine::Machine;

/// The overlay file system's module, in the guest.
const OVERLAY: &str = "/overlay.ko";
/// What `tests/lab/node` takes from `LAB_BIN`.
const NODE_PROGRAMS: [&str; 2] = ["kubelet", "deviceplugin"];

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
    /// A node for a real kubelet: containerd, `tests/lab`, and the programs of this folder, which is `LAB_BIN` in the environment
    #[arg(long, value_name = "FOLDER")]
    kubelet: Option<PathBuf>,
    /// NUMA nodes, CPUs and memory being split evenly [default: 1, with --kubelet 2]
    #[arg(long, value_name = "NODES")]
    numa: Option<u32>,
    #[arg(long, default_value_t = 4)]
    cpus: u32,
    /// [default: 2 GiB, with --kubelet 4 GiB]
    #[arg(long, value_name = "SIZE")]
    memory: Option<ByteSize>,
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
    let (qemu, target, gcc) = match arch {
        Arch::X86_64 => (means::QEMU_X86_64, means::MUSL_X86_64, means::GCC_X86_64),
        Arch::Aarch64 => (means::QEMU_AARCH64, means::MUSL_AARCH64, means::GCC_AARCH64),
    };
    vec![qemu, target, gcc, means::APT, means::DPKG, means::SETPRIV, means::XZ]
}

/// What is to be run, and the files that it takes in the guest.
struct Cargo {
    program: PathBuf,
    arguments: Vec<String>,
    init: PathBuf,
    /// The folder with the kubelet's programs.
    kubelet: Option<PathBuf>,
    files: Vec<PathBuf>,
}

fn program(args: &Args) -> Result<Cargo> {
    let init = build::init(args.arch)?;
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
    let kubelet = args.kubelet.as_ref().map(std::path::absolute).transpose()?;
    if kubelet.is_some() {
        files.push(shell::root().join("tests/lab"));
        files.push(shell::root().join("tests/vm"));
    }
    Ok(Cargo { program, arguments, init, kubelet, files })
}

fn boot(args: &Args, cargo: &Cargo, kernel: &Kernel, identity: &Identity) -> Result<End> {
    let folder = shell::target().join("vm").join("run");
    std::fs::create_dir_all(&folder)?;
    let folder = tempfile::Builder::new().prefix("vm-").tempdir_in(folder)?;
    let machine = Machine {
        arch: args.arch,
        cpus: args.cpus,
        memory: args.memory.unwrap_or(ByteSize::gib(if args.kubelet.is_some() { 4 } else { 2 })),
        nodes: args.numa.unwrap_or(if args.kubelet.is_some() { 2 } else { 1 }),
        lockdown: args.lockdown,
        timeout: args.timeout,
        folder: folder.path(),
    };
    let always = [("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), ("HOME", "/"), ("TMPDIR", vm_guest::SCRATCH)];
    let mut environment: BTreeMap<_, _> = always.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    if let Some(kubelet) = &cargo.kubelet {
        environment.insert("LAB_BIN".to_owned(), kubelet.display().to_string());
    }
    // Where nothing may be missing, nothing may be missing in the guest either.
    environment.extend(std::env::var("CI").map(|value| ("CI".to_owned(), value)));
    let expected = expected::of(kernel.version, args.arch, identity, args.lockdown);
    environment.extend(expected.map(|parts| (expected::VARIABLE.to_owned(), parts)));
    environment.extend(args.environment.iter().cloned());
    let job = Job {
        program: cargo.program.clone(),
        arguments: cargo.arguments.clone(),
        environment,
        folder: shell::root(),
        identity: identity.clone(),
        cgroups: args.cgroups,
        machine: machine.ordered(kernel.version),
        modules: cargo.kubelet.iter().map(|_| OVERLAY.into()).collect(),
        port: args.arch.port().into(),
        seal: seal()?,
    };
    let initramfs = folder.path().join("initramfs");
    pack(args.arch, cargo, kernel, &job, &initramfs)?;
    machine.run(&kernel.image, &initramfs, &job.seal)
}

fn pack(arch: Arch, cargo: &Cargo, kernel: &Kernel, job: &Job, into: &Path) -> Result<()> {
    let mut archive = Initramfs::create(into)?;
    archive.file(Path::new("/init"), &cargo.init)?;
    archive.text(Path::new(vm_guest::JOB), &job.to_text()?)?;
    if let Some(kubelet) = &cargo.kubelet {
        archive.tree(Path::new("/"), &root::node(arch)?)?;
        archive.file(Path::new(OVERLAY), &kernel.overlay)?;
        for name in NODE_PROGRAMS {
            archive.file(&kubelet.join(name), &kubelet.join(name))?;
        }
    } else {
        archive.tree(Path::new("/"), &root::small(arch)?)?;
    }
    archive.folder(&job.folder)?;
    for path in &cargo.files {
        // A link's target would not be there.
        archive.tree(path, &path.canonicalize().with_context(|| format!("cannot find {}", path.display()))?)?;
    }
    archive.finish()
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
