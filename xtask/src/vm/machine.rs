//! The emulated machine: from a kernel and an initramfs to the way the guest's job ended. A panic, a hang and a missing last line are errors
//! with the end of the console.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use bytesize::ByteSize;
use vm_guest::End;

use super::kernel::{Arch, Version};

/// How much of the console is shown when something went wrong.
const CONSOLE_LINES: usize = 40;

/// What kind of machine, and for how long.
pub(crate) struct Machine<'a> {
    pub(crate) arch: Arch,
    pub(crate) cpus: u32,
    pub(crate) memory: ByteSize,
    pub(crate) nodes: u32,
    pub(crate) lockdown: bool,
    pub(crate) timeout: Duration,
    /// Where the console's log is kept.
    pub(crate) folder: &'a Path,
}

// === impl Machine ===

impl Machine<'_> {
    /// Boots, and returns how the job ended. What the program prints goes to our standard output as it comes.
    pub(crate) fn run(&self, kernel: &Path, initramfs: &Path, seal: &str) -> Result<End> {
        let console = self.folder.join("console.log");
        // Should we be killed, the emulator goes too: it is no child that anyone else knows of.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", self.emulator()]).args(self.arguments(kernel, initramfs, &console)?);
        let mut emulator = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot run setpriv")?;
        let end = self.follow(&mut emulator, seal);
        // It may be ended or not by now; either way nothing of it stays.
        drop(emulator.kill());
        emulator.wait().context("cannot wait for the emulator")?;
        end.map_err(|error| with_console(&error, &fs::read(&console).unwrap_or_default()))
    }

    /// As the job tells it to the guest.
    pub(crate) fn ordered(&self, kernel: Version) -> vm_guest::Machine {
        vm_guest::Machine { kernel: kernel.to_string(), cpus: self.cpus, nodes: self.nodes, lockdown: self.lockdown }
    }

    fn follow(&self, emulator: &mut Child, seal: &str) -> Result<End> {
        let output = emulator.stdout.take().context("the emulator has no output")?;
        let lines = lines(output);
        #[expect(clippy::disallowed_types, reason = "nobody pauses the clock of a virtual machine")]
        let start = std::time::Instant::now();
        loop {
            match lines.recv_timeout(self.timeout.saturating_sub(start.elapsed())) {
                Ok(line) => match End::from_line(&line, seal) {
                    Some(end) => return Ok(end),
                    None => println!("{line}"),
                },
                Err(RecvTimeoutError::Timeout) => {
                    bail!("the guest did not end within {} (--timeout)", humantime::format_duration(self.timeout))
                }
                Err(RecvTimeoutError::Disconnected) => bail!("the machine stopped without a result"),
            }
        }
    }

    const fn emulator(&self) -> &'static str {
        match self.arch {
            Arch::X86_64 => "qemu-system-x86_64",
            Arch::Aarch64 => "qemu-system-aarch64",
        }
    }

    fn arguments(&self, kernel: &Path, initramfs: &Path, console: &Path) -> Result<Vec<OsString>> {
        let mut words: Vec<OsString> = Vec::new();
        let mut add = |more: &[&str]| words.extend(more.iter().map(OsString::from));
        add(&["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-accel", "tcg,thread=multi"]);
        match self.arch {
            Arch::X86_64 => add(&["-machine", "q35", "-cpu", "max"]),
            // Not `max`: its address size is too new for 5.10.
            Arch::Aarch64 => add(&["-machine", "virt,gic-version=3", "-cpu", "cortex-a72"]),
        }
        for argument in topology(self.cpus, self.memory, self.nodes)? {
            add(&[&argument]);
        }
        let console = console.to_str().context("the console's path is not UTF-8")?;
        add(&["-chardev", &format!("file,id=console,path={console}"), "-serial", "chardev:console"]);
        add(&["-chardev", "stdio,id=port,signal=off"]);
        match self.arch {
            Arch::X86_64 => add(&["-serial", "chardev:port"]),
            Arch::Aarch64 => add(&["-device", "pci-serial,chardev=port"]),
        }
        // A panic ends the machine at once.
        let mut line = format!("console={} loglevel=5 panic=-1", self.arch.console());
        if self.lockdown {
            line.push_str(" lockdown=confidentiality");
        }
        add(&["-append", &line]);
        words.extend(["-kernel".into(), kernel.into(), "-initrd".into(), initramfs.into()]);
        Ok(words)
    }
}

/// CPUs and memory, evenly on the NUMA nodes, each a socket of its own.
fn topology(cpus: u32, memory: ByteSize, nodes: u32) -> Result<Vec<String>> {
    let mebibytes = memory.as_u64() >> 20;
    if nodes == 0 || cpus == 0 || !cpus.is_multiple_of(nodes) || !mebibytes.is_multiple_of(nodes.into()) {
        bail!("{cpus} CPUs and {mebibytes} MiB cannot be split evenly on {nodes} NUMA nodes");
    }
    let (each, size) = (cpus / nodes, mebibytes / u64::from(nodes));
    let mut words =
        vec!["-smp".to_owned(), format!("{cpus},sockets={nodes},cores={each},threads=1"), "-m".to_owned(), mebibytes.to_string()];
    for node in 0..nodes {
        let (first, last) = (node * each, (node + 1) * each - 1);
        words.extend(["-object".to_owned(), format!("memory-backend-ram,id=memory{node},size={size}M")]);
        words.extend(["-numa".to_owned(), format!("node,nodeid={node},cpus={first}-{last},memdev=memory{node}")]);
    }
    Ok(words)
}

/// The lines that come, each without its end; bytes that are not UTF-8 are replaced.
fn lines(output: impl Read + Send + 'static) -> Receiver<String> {
    let (tell, heard) = channel();
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&line);
            if tell.send(text.trim_end_matches(['\n', '\r']).to_owned()).is_err() {
                return;
            }
            line.clear();
        }
    });
    heard
}

/// Says what the kernel said last, and whether it panicked.
fn with_console(error: &anyhow::Error, console: &[u8]) -> anyhow::Error {
    let console = String::from_utf8_lossy(console);
    let panic = console.lines().find_map(|line| Some(line.split_once("Kernel panic")?.1));
    let verdict = panic.map_or_else(|| format!("{error:#}"), |why| format!("{error:#}: the kernel panicked{why}"));
    let lines: Vec<_> = console.lines().collect();
    let end = lines[lines.len().saturating_sub(CONSOLE_LINES)..].join("\n");
    anyhow!("{verdict}\nthe end of the console:\n{}", if end.is_empty() { "(nothing)" } else { &end })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_and_memory_are_split_on_the_nodes() {
        let words = topology(4, ByteSize::gib(2), 2).unwrap().join(" ");
        assert!(words.contains("node,nodeid=0,cpus=0-1,memdev=memory0"), "{words}");
        assert!(words.contains("node,nodeid=1,cpus=2-3,memdev=memory1"), "{words}");
        assert!(words.contains("id=memory1,size=1024M"), "{words}");
    }

    #[test]
    fn what_cannot_be_split_is_refused_with_its_numbers() {
        let error = topology(3, ByteSize::gib(2), 2).unwrap_err().to_string();
        assert_eq!(error, "3 CPUs and 2048 MiB cannot be split evenly on 2 NUMA nodes");
        assert!(topology(4, ByteSize::gib(2), 0).is_err());
    }

    #[test]
    fn a_panic_is_told_before_the_console() {
        let error = with_console(&anyhow!("no result"), b"[1.0] fine\n[2.0] Kernel panic - not syncing: no init\n");
        let text = error.to_string();
        assert!(text.starts_with("no result: the kernel panicked - not syncing: no init\n"), "{text}");
        assert!(text.contains("[1.0] fine"), "{text}");
    }
}
