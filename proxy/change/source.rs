//! What every way of learning of changes has in common.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::sync::watch;

use super::epoch::{Epoch, Queue};
use super::pods_api::Settled;
use crate::rights::Needed;
use crate::source::host::Change;

/// One way of learning that something changed.
///
/// It counts changes in an [`Epoch`]: through words that the kernel writes to, through a queue that is asked before each compare,
/// or, late, whenever it hears of them. Only [`Queue::take_waiting`] runs on serving threads. Everything else is called by one
/// thread, which may block for a while.
pub trait Source: Send + Sync {
    /// `ebpf`, `fanotify`, `kubepods`, `kubelet-dirs`, `pods-api` or `timer`.
    fn name(&self) -> &'static str;

    /// What it consists of (programs, marks, directories), with the state of each.
    fn parts(&self) -> Vec<PartReport>;

    /// The changes that are counted, at this moment, before the system call that makes them returns or, for a source with a queue,
    /// when the queue is asked after that. May grow and shrink with what is attached.
    fn sees(&self) -> Sees {
        Sees::NOTHING
    }

    /// The queue that has to be asked before a compare. The same at each call; sources may share one.
    fn queue(&self) -> Option<Arc<dyn Queue>> {
        None
    }

    /// The rights that attaching anew takes: they are kept, all others are dropped before any thread starts. What it has now counts, and
    /// what it may yet want: there is no way back.
    fn needs(&self) -> Needed {
        Needed::NOTHING
    }

    /// A descriptor that is readable when [`Source::woken`] should be called.
    fn wake(&self) -> io::Result<Option<OwnedFd>> {
        Ok(None)
    }

    /// Called once, when the epoch exists: words are handed over here, see [`Epoch::add_words`], and
    /// a thread is started here at the earliest: rights have been dropped by now.
    fn begin(&self, _epoch: &Arc<Epoch>) {}

    /// The descriptor is readable. The queue has been asked already; what else there is to read must be read, or it stays readable.
    fn woken(&self, _epoch: &Epoch) {}

    /// Looks for what is lost, every few seconds and at once where the source asked for it by waking; puts it back, and bumps once
    /// when it did.
    fn mend(&self, epoch: &Epoch);

    /// Every change of a cgroup below kubepods that was counted since the last call and before this one; `None` where there may be one
    /// that cannot be named. For one caller only, which then reads everything.
    fn changes(&self) -> Option<Vec<Change>> {
        None
    }

    /// Whether the kubelet has said that it knows all its pods, where this source can tell; `None` inside while it has not.
    fn settled(&self) -> Option<watch::Receiver<Option<Settled>>> {
        None
    }
}

/// A piece of a source, for log line, metric, readiness and status. A source that counts its pieces together has the counts at the
/// first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartReport {
    /// A program, a mark, a directory; unique within its source.
    pub name: String,
    /// Whether it works.
    pub state: State,
    /// Events that counted so far.
    pub events: u64,
    /// How often it was lost so far: an overflow, a watch limit, a directory that went, a stream that ended.
    pub losses: u64,
}

/// Whether a part works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It does.
    Attached,
    /// The system will not have it.
    Refused {
        /// What the system said.
        why: String,
        /// What to grant, so that it would.
        grant: String,
    },
    /// Not on this kernel, or not on this node so far.
    Absent {
        /// What is missing.
        why: String,
    },
    /// It worked, and does not now.
    Lost {
        /// How it was lost.
        why: String,
    },
}

/// Kinds of change, as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sees(u8);

// === impl State ===

impl State {
    /// Every name that [`State::name`] may give.
    pub const NAMES: [&'static str; 4] = ["attached", "refused", "absent", "lost"];

    /// One word for it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Attached => Self::NAMES[0],
            Self::Refused { .. } => Self::NAMES[1],
            Self::Absent { .. } => Self::NAMES[2],
            Self::Lost { .. } => Self::NAMES[3],
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attached => f.write_str(self.name()),
            Self::Refused { why, grant } if grant.is_empty() => write!(f, "refused ({why})"),
            Self::Refused { why, grant } => write!(f, "refused ({why}; {grant})"),
            Self::Absent { why } | Self::Lost { why } => write!(f, "{} ({why})", self.name()),
        }
    }
}

// === impl Sees ===

impl Sees {
    /// None.
    pub const NOTHING: Self = Self(0);
    /// Cgroups made and removed below a kubepods root.
    pub const CGROUPS: Self = Self(1);
    /// cpusets written there.
    pub const CPUSETS: Self = Self(2);
    /// The kubelet's state files, its socket and its plugins' sockets put in place.
    pub const KUBELET: Self = Self(4);
    /// All of them.
    pub const ALL: Self = Self(7);

    /// Those of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those that `other` does not have.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether the two have one in common.
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// How many.
    pub(super) const fn count(self) -> u32 {
        self.0.count_ones()
    }
}
