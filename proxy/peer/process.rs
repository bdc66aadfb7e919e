//! A process that is held on to, so that what is read of its pid is known to be its own.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// How many threads of a process are asked for its cgroup, where its first one has ended.
const THREADS: usize = 8;

/// A process, dead or alive.
#[derive(Debug)]
pub(super) struct Process {
    hold: Hold,
}

#[derive(Debug)]
enum Hold {
    /// Names the process itself.
    Pidfd(OwnedFd),
    /// Before Linux 5.3: a pid and when the process that has it started, in ticks since boot. Nobody else has both.
    StartTime { pid: u32, started: u64 },
}

/// What became of a look at a process.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// It lives, and these are its cgroups: its `/proc/<pid>/cgroup`, more than one where its threads were asked.
    Alive {
        /// Its pid, as our `/proc` numbers it.
        pid: u32,
        /// The files' texts.
        cgroups: Vec<String>,
    },
    /// It has ended.
    Gone,
    /// It is in no pid namespace that our `/proc` shows, or that hides it from us.
    OutOfSight,
}

// === impl Process ===

impl Process {
    pub(super) const fn of_pidfd(pidfd: OwnedFd) -> Self {
        Self { hold: Hold::Pidfd(pidfd) }
    }

    /// The process that has this pid now.
    pub(super) fn of_pid(pid: u32) -> Result<Self, Errno> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
        let hold = match pidfd_open(raw, PidfdFlags::empty()) {
            Ok(pidfd) => Hold::Pidfd(pidfd),
            Err(Errno::NOSYS) => Self::by_start_time(pid)?.hold,
            Err(error) => return Err(error),
        };
        Ok(Self { hold })
    }

    pub(super) fn by_start_time(pid: u32) -> Result<Self, Errno> {
        let started = start_time(pid).ok_or(Errno::SRCH)?;
        Ok(Self { hold: Hold::StartTime { pid, started } })
    }

    /// Reads its cgroups, then makes sure that it was still this process of which they were read. Blocks.
    pub(super) fn look(&self) -> Look {
        let pid = match self.pid() {
            Ok(Some(pid)) => pid,
            Ok(None) => return Look::OutOfSight,
            Err(_) => return self.otherwise(),
        };
        let mut cgroups = match fs::read(format!("/proc/{pid}/cgroup")) {
            Ok(text) => vec![text],
            Err(_) => return self.otherwise(),
        };
        // A first thread that has ended, while others go on, is in no cgroup of v1 any more; its others are.
        if is_nowhere(&cgroups[0])
            && let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task"))
        {
            let others = threads.flatten().filter(|thread| thread.file_name().to_str() != Some(&pid.to_string()));
            cgroups.extend(others.take(THREADS).filter_map(|thread| fs::read(thread.path().join("cgroup")).ok()));
        }
        if !self.is_alive() {
            return Look::Gone;
        }
        Look::Alive { pid, cgroups: cgroups.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect() }
    }

    /// Nothing could be read: because it has ended, or is not to be seen.
    fn otherwise(&self) -> Look {
        if self.is_alive() { Look::OutOfSight } else { Look::Gone }
    }

    /// Its pid in the namespace of our `/proc`; `None` where it has none there.
    fn pid(&self) -> io::Result<Option<u32>> {
        match &self.hold {
            Hold::StartTime { pid, .. } => Ok(Some(*pid)),
            Hold::Pidfd(pidfd) => {
                let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd()))?;
                // -1 once it has been reaped, 0 where it is outside.
                let pid = info.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse::<i64>().ok());
                match pid {
                    Some(0) => Ok(None),
                    Some(pid) => u32::try_from(pid).map(Some).map_err(io::Error::other),
                    None => Err(io::ErrorKind::InvalidData.into()),
                }
            }
        }
    }

    fn is_alive(&self) -> bool {
        match &self.hold {
            Hold::StartTime { pid, started } => start_time(*pid) == Some(*started),
            // A pidfd is readable once the last of the process's threads has ended.
            Hold::Pidfd(pidfd) => {
                let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
                matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
            }
        }
    }
}

/// Whether these are the roots of all hierarchies.
fn is_nowhere(cgroups: &[u8]) -> bool {
    cgroups.split(|byte| *byte == b'\n').all(|line| line.is_empty() || line.ends_with(b":/"))
}

/// When the process that has this pid now started, in ticks since boot; `None` where there is none.
fn start_time(pid: u32) -> Option<u64> {
    let process = procfs::process::Process::new(i32::try_from(pid).ok()?).ok()?;
    let stat = process.stat().ok()?;
    (stat.state != 'Z').then_some(stat.starttime)
}
