//! Builds the eBPF object of each architecture on stable Rust: the programs are compiled to LLVM bitcode for the host, and linked for
//! BPF with the LLVM that rustc itself brings along. No nightly compiler, no package of the system.
//!
//! A crate and a workspace of its own, because it takes minutes to build for the first time and nobody else needs it.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

use anyhow::{Context as _, Result, bail, ensure};
use bpf_linker::{Cpu, Linker, LinkerInput, LinkerOptions, OptLevel, OutputType};

/// The architectures whose registers the programs know. All are compiled for this one host, so that the bytes are the same everywhere.
const ARCHITECTURES: [&str; 2] = ["x86_64", "aarch64"];
const HOST: &str = "x86_64-unknown-linux-gnu";

/// How rustc is to compile for a machine that has no stack to unwind, no vectors and no loops that call memset.
const FLAGS: [&str; 9] = [
    "-Cdebuginfo=0",
    "-Cpanic=abort",
    "-Cno-vectorize-loops",
    "-Cno-vectorize-slp",
    "-Cforce-unwind-tables=no",
    "-Crelocation-model=static",
    "-Clinker=true",
    "-Cllvm-args=-disable-loop-idiom-all",
    "-Ctarget-cpu=x86-64",
];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("build-ebpf: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let check = match env::args().nth(1).as_deref() {
        None => false,
        Some("--check") => true,
        Some(other) => bail!("unknown argument {other}: --check or nothing"),
    };
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ebpf").canonicalize()?;
    let compiler = compiler()?;
    let built_by = programs.join("objects/rustc.txt");
    if check {
        let needed = fs::read_to_string(&built_by).with_context(|| format!("reading {}", built_by.display()))?;
        ensure!(
            needed.trim() == compiler,
            "the committed objects were built by {}, this is {compiler}: take that one, or build and commit them anew",
            needed.trim()
        );
    }
    let mut different = Vec::new();
    for architecture in ARCHITECTURES {
        let object = build(&programs, architecture)?;
        let committed = programs.join(format!("objects/{architecture}.o"));
        if check {
            if fs::read(&committed).is_ok_and(|bytes| bytes == object) {
                println!("{}: the same, {} bytes", committed.display(), object.len());
            } else {
                different.push(committed.display().to_string());
            }
        } else {
            fs::create_dir_all(programs.join("objects"))?;
            fs::write(&committed, &object).with_context(|| format!("writing {}", committed.display()))?;
            println!("{}: {} bytes", committed.display(), object.len());
        }
    }
    ensure!(different.is_empty(), "not what the sources give: {}; run `cargo xtask build-ebpf` and commit them", different.join(", "));
    if !check {
        fs::write(built_by, compiler + "\n")?;
    }
    Ok(())
}

/// The compiler's version, which decides the bytes.
fn compiler() -> Result<String> {
    let output = Command::new("rustc").arg("--version").output().context("running rustc")?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn build(programs: &Path, architecture: &str) -> Result<Vec<u8>> {
    let target = target()?.join(architecture);
    let mut flags = vec![format!("--cfg=bpf_target_arch=\"{architecture}\"")];
    flags.extend(FLAGS.map(str::to_owned));
    // Paths must not reach the object.
    flags.push(format!("--remap-path-prefix={}=ebpf", programs.display()));
    let status = Command::new("cargo")
        .current_dir(programs)
        .args(["rustc", "--quiet", "--locked", "--release", "--target", HOST, "--bin", "programs", "--target-dir"])
        .arg(&target)
        .args(["--", "--emit=llvm-bc", "-Clto=fat", "-Ccodegen-units=1"])
        .env_remove("RUSTFLAGS")
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .status()
        .context("running cargo")?;
    ensure!(status.success(), "cargo rustc for {architecture}: {status}");
    let bitcode = bitcode(&target.join(HOST).join("release/deps"))?;
    let exports = fs::read_to_string(programs.join("exports.txt")).context("reading exports.txt")?;
    let linker = Linker::new(LinkerOptions {
        target: Some(CString::from(c"bpfel")),
        cpu: Cpu::V2,
        cpu_features: CString::default(),
        optimize: OptLevel::Aggressive,
        unroll_loops: false,
        ignore_inline_never: false,
        llvm_args: Vec::new(),
        disable_expand_memcpy_in_order: true,
        disable_memory_builtins: false,
        btf: false,
        allow_bpf_trap: false,
    });
    let object = linker.link_to_buffer([LinkerInput::new_from_file(&bitcode)], OutputType::Object, exports.lines())?;
    ensure!(!linker.has_errors(), "LLVM reports errors for {architecture}");
    Ok(object.as_slice().to_vec())
}

/// The bitcode that was just made. Older ones are of other flags.
fn bitcode(deps: &Path) -> Result<PathBuf> {
    let files = fs::read_dir(deps).with_context(|| format!("reading {}", deps.display()))?.flatten();
    let bitcode = files.map(|file| file.path()).filter(|path| path.extension().is_some_and(|extension| extension == "bc"));
    let newest = bitcode.max_by_key(|path| path.metadata().and_then(|metadata| metadata.modified()).ok());
    newest.with_context(|| format!("no bitcode in {}", deps.display()))
}

/// Where to build: beside everything else that this project builds.
fn target() -> Result<PathBuf> {
    let here = env::current_exe()?;
    let folder = here.ancestors().nth(2).context("this program lies in no target folder")?;
    Ok(folder.join("bpf"))
}
