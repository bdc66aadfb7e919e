//! Waiting for a queue, or for somebody who emptied it and found work.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{EventfdFlags, epoll, eventfd};

/// A descriptor that is readable when a queue has events, or when [`Wait::wake`] was called.
#[derive(Debug)]
pub(super) struct Wait {
    wake: OwnedFd,
    ready: OwnedFd,
}

// === impl Wait ===

impl Wait {
    pub(super) fn new(queue: impl AsFd) -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&ready, queue, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        epoll::add(&ready, &wake, epoll::EventData::new_u64(1), epoll::EventFlags::IN)?;
        Ok(Self { wake, ready })
    }

    /// Makes it readable. Any thread may.
    pub(super) fn wake(&self) {
        // Full only after 2^64 writes.
        let _written = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// To be called before looking at what there is to do, so that what comes meanwhile wakes again.
    pub(super) fn clear(&self) {
        // Nothing to read means that nobody woke, or that another has cleared it.
        let _read = rustix::io::read(&self.wake, &mut [0_u8; 8]);
    }

    /// A descriptor of one's own.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.ready.try_clone()
    }
}
