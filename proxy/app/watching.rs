//! The thread that watches for changes: it waits on every source's descriptor, has sources mended, and wakes the refresher.
//!
//! Mending walks directories and may block. That is why it has a thread of its own, which neither serves nor captures.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tokio::time::Instant;

use crate::admin::Heartbeat;
use crate::change::{Epoch, Source, Sources};

/// How often sources are looked at without an event: what they watch may have been replaced without one.
const MEND_EVERY: Duration = Duration::from_secs(5);

/// It has to show itself this often: mending reads some thousand directories at most.
pub(super) const BEAT: Duration = Duration::from_secs(30);

/// After events that counted nothing, those of other cgroups, the next are left to gather for so long. Requests do not wait for it.
const LET_GATHER: Duration = Duration::from_millis(10);

/// The thread at work.
#[derive(Debug)]
pub(super) struct Watching {
    thread: JoinHandle<()>,
    /// Closed to stop it.
    stop: OwnedFd,
}

/// One source and what it waits on.
struct Waiting {
    source: Arc<dyn Source>,
    fd: OwnedFd,
}

pub(super) fn start(sources: Sources, epoch: Arc<Epoch>, heartbeat: Heartbeat) -> io::Result<Watching> {
    let (stopped, stop) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let mut waiting = Vec::new();
    for source in sources.iter() {
        match source.wake() {
            Ok(Some(fd)) => waiting.push(Waiting { source: source.clone(), fd }),
            Ok(None) => {}
            // Requests look at the queue themselves: nothing goes stale, only later is it known that something changed.
            Err(error) => tracing::error!(%error, source = source.name(), "cannot wait for its events"),
        }
    }
    let watch = move || watch(&sources, &waiting, &epoch, &heartbeat, &stopped);
    let thread = std::thread::Builder::new().name("changes".to_owned()).spawn(watch)?;
    Ok(Watching { thread, stop })
}

fn watch(sources: &Sources, waiting: &[Waiting], epoch: &Epoch, heartbeat: &Heartbeat, stopped: &OwnedFd) {
    let mut mend_at = Instant::now();
    let mut counted = 0;
    loop {
        let left = mend_at.saturating_duration_since(Instant::now());
        let mut fds: Vec<PollFd<'_>> = waiting.iter().map(|one| PollFd::new(&one.fd, PollFlags::IN)).collect();
        fds.push(PollFd::new(stopped, PollFlags::IN));
        match poll(&mut fds, Timespec::try_from(left).ok().as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                tracing::error!(%error, "cannot wait for events of change sources; looking every few seconds");
                std::thread::sleep(left);
            }
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready.last() == Some(&true) {
            return;
        }
        heartbeat.touch(Instant::now());
        sources.take(epoch);
        for (one, _) in waiting.iter().zip(&ready).filter(|(_, ready)| **ready) {
            sources.woken(&one.source, epoch);
        }
        if mend_at <= Instant::now() {
            sources.mend(epoch);
            mend_at = Instant::now() + MEND_EVERY;
        }
        // A word of the kernel's wakes nobody by itself.
        let now = epoch.counted();
        if now != counted {
            counted = now;
            epoch.wake();
        } else if ready.contains(&true) {
            std::thread::sleep(LET_GATHER);
        }
    }
}

// === impl Watching ===

impl Watching {
    /// Stops it and waits for its end.
    pub(super) fn join(self) {
        drop(self.stop);
        if self.thread.join().is_err() {
            tracing::error!("the thread that watches for changes panicked");
        }
    }
}
