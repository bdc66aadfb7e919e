//! A serving process: started, measured, ended.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::thread::{self, CpuSet};

/// One of the cores that this process may use.
#[derive(Clone, Copy)]
pub(crate) enum Core {
    First,
    Last,
}

/// Keeps this thread, and what it starts from now on, on one core.
pub(crate) fn pin(core: Core) -> io::Result<()> {
    static ALLOWED: OnceLock<CpuSet> = OnceLock::new();
    // Asked before the first pinning.
    let allowed = ALLOWED.get_or_init(|| thread::sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new()));
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    let chosen = match core {
        Core::First => cores.next(),
        Core::Last => cores.next_back(),
    };
    let mut only = CpuSet::new();
    only.set(chosen.ok_or(io::ErrorKind::NotFound)?);
    Ok(thread::sched_setaffinity(None, &only)?)
}

/// A child that serves on a socket; killed when dropped.
pub(crate) struct Server {
    pub(crate) name: &'static str,
    pub(crate) socket: PathBuf,
    child: Child,
}

impl Server {
    /// The product's own binary.
    pub(crate) fn product(name: &'static str, socket: &Path, set: impl FnOnce(&mut Command)) -> io::Result<Self> {
        Self::start(name, socket, Command::new(env!("CARGO_BIN_EXE_podresources-proxy")), set)
    }

    /// This program in another part.
    pub(crate) fn own(name: &'static str, socket: &Path, set: impl FnOnce(&mut Command)) -> io::Result<Self> {
        Self::start(name, socket, Command::new(std::env::current_exe()?), set)
    }

    fn start(name: &'static str, socket: &Path, mut command: Command, set: impl FnOnce(&mut Command)) -> io::Result<Self> {
        if let Some(folder) = socket.parent() {
            std::fs::create_dir_all(folder)?;
        }
        set(&mut command);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        let mut server = Self { name, socket: socket.to_path_buf(), child };
        for _ in 0..500 {
            if std::os::unix::net::UnixStream::connect(socket).is_ok() {
                return Ok(server);
            }
            if let Some(status) = server.child.try_wait()? {
                return Err(io::Error::other(format!("{name} has ended: {status}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(io::Error::other(format!("{name} does not serve {}", socket.display())))
    }

    /// CPU time of all its threads so far, user and system, to the nanosecond (`/proc/<pid>/task/<tid>/schedstat`, first field).
    pub(crate) fn cpu_time(&self) -> io::Result<Duration> {
        let mut total = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let stat = std::fs::read_to_string(task?.path().join("schedstat"))?;
            total += stat.split(' ').next().and_then(|spent| spent.parse::<u64>().ok()).ok_or(io::ErrorKind::InvalidData)?;
        }
        Ok(Duration::from_nanos(total))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}
