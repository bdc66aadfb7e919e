//! What a proxy costs the machine: its own CPU time, and that of its programs in the kernel.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use crate::harness::Proxy;

/// The kernel counts its programs' time while this is "1", for some 20 ns a run.
const STATISTICS: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// So far, or of a span.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    /// CPU time of all threads.
    own: Duration,
    /// The programs' time, as far as the kernel counts it, and how often they ran.
    programs: Duration,
    runs: u64,
}

/// The kernel counts until this is dropped.
pub(crate) struct Statistics {
    before: String,
}

// === impl Costs ===

impl Costs {
    pub(crate) fn of(proxy: &Proxy) -> Self {
        let process = format!("/proc/{}", proxy.child.id());
        let entries = |folder: &str| fs::read_dir(format!("{process}/{folder}")).unwrap().flatten().map(|entry| entry.path());
        // A thread may end meanwhile. The first field is its time (`proc_pid_schedstat`).
        let spent =
            |task: std::path::PathBuf| fs::read_to_string(task.join("schedstat")).ok()?.split(' ').next()?.parse::<u64>().ok();
        let own = Duration::from_nanos(entries("task").filter_map(spent).sum());
        // Of a program that has more than one descriptor the times count once.
        let programs: BTreeMap<u64, (u64, u64)> =
            entries("fdinfo").filter_map(|file| program(&fs::read_to_string(file).ok()?)).collect();
        let (time, runs) = programs.values().fold((0, 0), |(time, runs), program| (time + program.0, runs + program.1));
        Self { own, programs: Duration::from_nanos(time), runs }
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            own: self.own.saturating_sub(before.own),
            programs: self.programs.saturating_sub(before.programs),
            runs: self.runs - before.runs,
        }
    }

    /// As shares of a core.
    pub(crate) fn told(&self, took: Duration) -> String {
        let share = |time: Duration| time.as_secs_f64() / took.as_secs_f64() * 100.0;
        let own = format!("the proxy took {:.2} % of a core", share(self.own));
        if self.runs == 0 {
            return own;
        }
        format!(
            "{own}, its programs in {} runs {:.2} %, both {:.2} %",
            self.runs,
            share(self.programs),
            share(self.own + self.programs)
        )
    }
}

/// Number, time and runs of the program that a descriptor stands for, if it does (`bpf_prog_show_fdinfo`).
fn program(info: &str) -> Option<(u64, (u64, u64))> {
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    Some((field("prog_id:")?, (field("run_time_ns:")?, field("run_cnt:")?)))
}

// === impl Statistics ===

impl Statistics {
    /// Begins where it may; else nothing is counted, and costs are told without.
    pub(crate) fn begin() -> Option<Self> {
        let before = fs::read_to_string(STATISTICS).ok()?;
        match fs::write(STATISTICS, "1") {
            Ok(()) => Some(Self { before }),
            Err(error) => {
                println!("the programs' time is not counted: {STATISTICS}: {error}");
                None
            }
        }
    }
}

impl Drop for Statistics {
    fn drop(&mut self) {
        if let Err(error) = fs::write(STATISTICS, self.before.trim()) {
            eprintln!("{STATISTICS} stays on: {error}");
        }
    }
}
