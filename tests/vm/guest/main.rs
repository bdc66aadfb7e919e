//! The guest's first process: mounts what a node has, runs one program as the job says, tells how it ended, and switches the machine off.
//! It never judges: the machine outside does.

mod mounts;
mod rights;

use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, WaitOptions, WaitStatus, wait};
use rustix::system::{RebootCommand, finit_module, reboot};
use rustix::termios::{OptionalActions, tcdrain, tcgetattr, tcsetattr};
use vm_guest::{End, JOB, Job};

fn main() {
    if let Err(error) = serve() {
        // No port yet: the console is all there is. The first process's end is a panic of the kernel, which the machine outside sees.
        eprintln!("vm-init: {error:#}");
    }
}

fn serve() -> Result<()> {
    mounts::root()?;
    mounts::machine()?;
    let text = std::fs::read_to_string(JOB).with_context(|| format!("cannot read {JOB}"))?;
    let job = Job::from_text(&text).with_context(|| format!("{JOB} is no job"))?;
    let port = open(&job.port)?;
    let end = run(&job, &port).unwrap_or_else(|error| End::Failed(format!("{error:#}")));
    tell(&port, &end.to_line(&job.seal))?;
    rustix::fs::sync();
    reboot(RebootCommand::PowerOff).context("cannot switch off")
}

/// The port as the bytes' way out, unchanged.
fn open(path: &Path) -> Result<File> {
    let port = File::options().read(true).write(true).open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut modes = tcgetattr(&port)?;
    modes.make_raw();
    tcsetattr(&port, OptionalActions::Now, &modes)?;
    Ok(port)
}

fn run(job: &Job, port: &File) -> Result<End> {
    mounts::cgroups(job.cgroups, job.identity.uid)?;
    job.modules.iter().try_for_each(|path| load(path))?;
    loopback()?;
    let mut command = Command::new(&job.program);
    command.args(&job.arguments).env_clear().envs(&job.environment).current_dir(&job.folder);
    command.stdin(Stdio::null()).stdout(port.try_clone()?).stderr(port.try_clone()?);
    rights::take(&job.identity)?;
    if job.identity.uid != 0 {
        command.uid(job.identity.uid).gid(job.identity.uid);
    }
    let child = command.spawn().with_context(|| format!("cannot run {}", job.program.display()))?;
    rights::take_back()?;
    Ok(wait_for(Pid::from_child(&child))?)
}

fn load(module: &Path) -> Result<()> {
    let file = File::open(module).with_context(|| format!("cannot open {}", module.display()))?;
    finit_module(&file, c"", 0).with_context(|| format!("cannot load {}", module.display()))
}

/// A kernel's loopback interface is down until someone says otherwise.
fn loopback() -> Result<()> {
    let status = Command::new("/bin/busybox").args(["ip", "link", "set", "lo", "up"]).status().context("cannot run busybox")?;
    if !status.success() {
        bail!("the loopback interface stays down: busybox ended with {status}");
    }
    Ok(())
}

/// Waits for the program, and meanwhile for every orphan: nobody else does.
fn wait_for(program: Pid) -> rustix::io::Result<End> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == program => return Ok(end_of(status)),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

fn end_of(status: WaitStatus) -> End {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => End::Exited(code),
        (None, Some(signal)) => End::Killed(signal),
        (None, None) => End::Failed(format!("the program ended with {status:?}")),
    }
}

fn tell(mut port: &File, line: &str) -> Result<()> {
    // The program's last line may lack its end.
    writeln!(port, "\n{line}").context("cannot write to the port")?;
    tcdrain(port).context("cannot drain the port")
}
