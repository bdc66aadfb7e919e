//! The process's own figures, under the names that Prometheus client libraries share.

use std::fmt;

use procfs::process::LimitValue;
use procfs::{ProcResult, boot_time_secs, page_size, ticks_per_second};
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::{Collector, gauge};

/// CPU time, memory, descriptors and threads, read from `/proc/self` at each scrape.
#[derive(Debug)]
pub struct Process;

struct Figures {
    cpu_seconds: f64,
    resident_bytes: u64,
    virtual_bytes: u64,
    threads: i64,
    open_fds: Option<u64>,
    max_fds: Option<u64>,
    start_seconds: Option<f64>,
}

// === impl Process ===

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        // Without /proc there is nothing to tell; the other families still are.
        let Ok(figures) = Figures::read() else { return Ok(()) };
        let e = &mut encoder;
        e.encode_descriptor("process_cpu_seconds", "CPU time, user and system", None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, u64>(&figures.cpu_seconds, None)?;
        gauge(e, "process_resident_memory_bytes", "Resident memory", Some(figures.resident_bytes))?;
        gauge(e, "process_virtual_memory_bytes", "Virtual memory", Some(figures.virtual_bytes))?;
        gauge(e, "process_threads", "Threads", Some(figures.threads))?;
        gauge(e, "process_open_fds", "Open file descriptors", figures.open_fds)?;
        gauge(e, "process_max_fds", "Most file descriptors that may be open", figures.max_fds)?;
        gauge(e, "process_start_time_seconds", "Start of the process, in seconds since 1970", figures.start_seconds)
    }
}

// === impl Figures ===

impl Figures {
    #[expect(clippy::cast_precision_loss, reason = "ticks and seconds stay far below 2^52")]
    fn read() -> ProcResult<Self> {
        let process = procfs::process::Process::myself()?;
        let stat = process.stat()?;
        let seconds = |ticks: u64| ticks as f64 / ticks_per_second() as f64;
        let max_fds = match process.limits().map(|limits| limits.max_open_files.soft_limit) {
            Ok(LimitValue::Value(most)) => Some(most),
            Ok(LimitValue::Unlimited) | Err(_) => None,
        };
        Ok(Self {
            cpu_seconds: seconds(stat.utime + stat.stime),
            resident_bytes: stat.rss * page_size(),
            virtual_bytes: stat.vsize,
            threads: stat.num_threads,
            open_fds: process.fd_count().ok().and_then(|count| count.try_into().ok()),
            max_fds,
            start_seconds: boot_time_secs().ok().map(|boot| boot as f64 + seconds(stat.starttime)),
        })
    }
}
