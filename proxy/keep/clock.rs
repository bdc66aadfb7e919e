//! A clock that outlives us and nobody can set: `CLOCK_BOOTTIME`, with the boot that it belongs to.

use std::fs;
use std::io;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Where the kernel tells which boot this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A moment since the boot, suspended time included; setting the wall clock does not move it. To the nanosecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(u64);

// === impl Stamp ===

impl Stamp {
    /// This moment.
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
        Self(seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or_default()))
    }

    /// So many nanoseconds after the boot.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the boot.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long before `later` this was; `None` where it was not before it.
    pub fn age(self, later: Self) -> Option<Duration> {
        later.0.checked_sub(self.0).map(Duration::from_nanos)
    }
}

/// The id that the kernel has drawn for this boot.
pub(super) fn boot_id() -> io::Result<String> {
    let text =
        fs::read_to_string(BOOT_ID).map_err(|error| io::Error::new(error.kind(), format!("cannot read {BOOT_ID}: {error}")))?;
    Ok(text.trim_end().to_owned())
}
