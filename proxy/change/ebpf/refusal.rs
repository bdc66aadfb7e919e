//! What a kernel's refusal means, and what to do about it.

use std::io;

use aya::programs::{ProgramError, kprobe::KProbeError, trace_point::TracePointError};
use rustix::io::Errno;

use super::programs::Hook;
use crate::change::State;

/// The rights of this process that matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a right that one has or not")]
pub(super) struct Rights {
    /// `CAP_BPF`
    pub(super) bpf: bool,
    /// `CAP_PERFMON`
    pub(super) perfmon: bool,
    /// `CAP_SYS_ADMIN`
    pub(super) admin: bool,
    /// The kernel is locked down against those who read its memory.
    pub(super) confidential: bool,
}

const CAP_SYS_ADMIN: u64 = 1 << 21;
const CAP_PERFMON: u64 = 1 << 38;
const CAP_BPF: u64 = 1 << 39;

// === impl Rights ===

impl Rights {
    /// Those that this process has now; none where they cannot be read.
    pub(super) fn now() -> Self {
        let status = procfs::process::Process::myself().and_then(|process| process.status());
        let effective = status.map_or(0, |status| status.capeff);
        let lockdown = std::fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
        let admin = effective & CAP_SYS_ADMIN != 0;
        Self {
            // CAP_SYS_ADMIN stands for both.
            bpf: admin || effective & CAP_BPF != 0,
            perfmon: admin || effective & CAP_PERFMON != 0,
            admin,
            confidential: lockdown.contains("[confidentiality]"),
        }
    }

    /// What to grant so that a refused permission would be given.
    fn wanted(&self, hook: Option<Hook>) -> String {
        if self.confidential {
            return "the kernel is booted with lockdown=confidentiality, which forbids all of this".to_owned();
        }
        match (self.bpf, self.perfmon) {
            (true, true) => {}
            (false, true) => return "grant CAP_BPF".to_owned(),
            (true, false) => return "grant CAP_PERFMON".to_owned(),
            (false, false) => return "grant CAP_BPF and CAP_PERFMON".to_owned(),
        }
        if !self.admin && matches!(hook, Some(Hook::Entry { .. } | Hook::Return { .. } | Hook::Classic { .. })) {
            return "grant CAP_SYS_ADMIN, which this kind needs on some kernels".to_owned();
        }
        "nothing to grant: this kernel refuses it to everybody".to_owned()
    }
}

/// What a program's refusal means.
pub(super) fn of(error: &ProgramError, hook: Hook, rights: &Rights) -> State {
    match error {
        ProgramError::LoadError { io_error, verifier_log } => {
            let state = of_io(io_error, "loading it", Some(hook), rights);
            let log = verifier_log.to_string();
            match state {
                // Whoever sees this needs the verifier's last words, and no more.
                State::Refused { why, grant: _ } if !log.trim().is_empty() => {
                    let grant = if rights.confidential {
                        // Its verifier knows no function that reads the kernel's memory.
                        rights.wanted(Some(hook))
                    } else {
                        "report this: the verifier of this kernel does not accept the program".to_owned()
                    };
                    State::Refused { why: format!("{why}: {}", last_words(&log)), grant }
                }
                state => state,
            }
        }
        ProgramError::SyscallError(error) => of_io(&error.io_error, error.call, Some(hook), rights),
        ProgramError::IOError(error) => of_io(error, "attaching it", Some(hook), rights),
        ProgramError::KProbeError(KProbeError::FileError { filename, io_error })
        | ProgramError::TracePointError(TracePointError::FileError { filename, io_error }) => {
            of_io(io_error, &filename.display().to_string(), Some(hook), rights)
        }
        ProgramError::Btf(error) => State::Absent { why: error.to_string() },
        other => State::Refused { why: other.to_string(), grant: String::new() },
    }
}

/// What a verifier's log ends with, without its statistics.
fn last_words(log: &str) -> String {
    let statistics = ["verification time", "stack depth", "processed"];
    let lines =
        log.lines().map(str::trim).filter(|line| !line.is_empty() && !statistics.iter().any(|begin| line.starts_with(begin)));
    let mut last: Vec<&str> = lines.collect::<Vec<_>>().into_iter().rev().take(3).collect();
    last.reverse();
    last.join(" | ")
}

/// What an error of the system's means.
pub(super) fn of_io(error: &io::Error, call: &str, hook: Option<Hook>, rights: &Rights) -> State {
    let errno = Errno::from_io_error(error);
    let why = match errno {
        Some(errno) => format!("{call}: {}", describe(errno)),
        None => format!("{call}: {error}"),
    };
    match errno {
        Some(Errno::PERM | Errno::ACCESS) => State::Refused { why, grant: rights.wanted(hook) },
        Some(Errno::NOENT) => State::Absent { why },
        _ => State::Refused { why, grant: String::new() },
    }
}

/// An errno with its name, as people look it up.
fn describe(errno: Errno) -> String {
    /// Not for user space, and yet what fexit answers where functions cannot be traced.
    const ENOTSUPP: i32 = 524;
    let name = match errno {
        Errno::PERM => "EPERM",
        Errno::ACCESS => "EACCES",
        Errno::NOENT => "ENOENT",
        Errno::INVAL => "EINVAL",
        Errno::NODEV => "ENODEV",
        Errno::NOSYS => "ENOSYS",
        Errno::BUSY => "EBUSY",
        Errno::TOOBIG => "E2BIG",
        Errno::NOMEM => "ENOMEM",
        Errno::OPNOTSUPP => "EOPNOTSUPP",
        other if other.raw_os_error() == ENOTSUPP => return "ENOTSUPP (functions cannot be traced on this kernel)".to_owned(),
        _ => return errno.to_string(),
    };
    let text = io::Error::from(errno).to_string();
    format!("{name} ({})", text.split(" (os error").next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Rights = Rights { bpf: true, perfmon: true, admin: true, confidential: false };
    const EXIT: Hook = Hook::Exit { function: "f", arguments: 4 };

    fn refused(error: Errno, hook: Hook, rights: &Rights) -> (String, String) {
        match of_io(&error.into(), "loading it", Some(hook), rights) {
            State::Refused { why, grant } => (why, grant),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_refused_permission_says_what_to_grant() {
        let none = Rights { bpf: false, perfmon: false, admin: false, confidential: false };
        let (why, grant) = refused(Errno::PERM, EXIT, &none);
        assert_eq!(
            (why.as_str(), grant.as_str()),
            ("loading it: EPERM (Operation not permitted)", "grant CAP_BPF and CAP_PERFMON")
        );
        assert_eq!(refused(Errno::PERM, EXIT, &Rights { bpf: true, ..none.clone() }).1, "grant CAP_PERFMON");
        let two = Rights { bpf: true, perfmon: true, ..none };
        assert!(refused(Errno::ACCESS, Hook::Entry { function: "f" }, &two).1.contains("CAP_SYS_ADMIN"));
        assert!(refused(Errno::PERM, EXIT, &two).1.contains("nothing to grant"));
        assert!(refused(Errno::PERM, EXIT, &Rights { confidential: true, ..ALL }).1.contains("lockdown"));
    }

    #[test]
    fn of_a_verifiers_log_the_reason_is_kept() {
        let log = "0: (b7) r1 = 0\nR3 unbounded memory access\nverification time 9 usec\nstack depth 24\nprocessed 9 insns\n";
        assert_eq!(last_words(log), "0: (b7) r1 = 0 | R3 unbounded memory access");
    }

    #[test]
    fn what_is_not_on_this_kernel_is_absent_and_no_refusal() {
        let state = of_io(&Errno::NOENT.into(), "/sys/kernel/tracing/kprobe_events", Some(EXIT), &ALL);
        assert_eq!(
            state,
            State::Absent { why: "/sys/kernel/tracing/kprobe_events: ENOENT (No such file or directory)".to_owned() }
        );
    }

    #[test]
    fn other_errors_are_told_by_name_and_grant_nothing() {
        assert_eq!(refused(Errno::from_raw_os_error(524), EXIT, &ALL).1, "");
        assert!(refused(Errno::from_raw_os_error(524), EXIT, &ALL).0.contains("cannot be traced"));
        assert_eq!(refused(Errno::INVAL, EXIT, &ALL).0, "loading it: EINVAL (Invalid argument)");
    }
}
