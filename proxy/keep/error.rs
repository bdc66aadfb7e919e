//! Why nothing can be kept, why what was kept is not used, and what to do about it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;

use super::Unreadable;
use crate::snapshot::Malformed;

/// Why the state directory is none.
#[derive(Debug, thiserror::Error)]
pub enum DirError {
    /// It could not be made or opened.
    #[error("cannot {call} the state directory {}: {source}{}", path.display(), hint(source))]
    Unavailable {
        /// What failed.
        call: &'static str,
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something else stands there.
    #[error("the state directory {} is no directory (a link to one will not do either): choose another with --state-dir", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// Somebody else's.
    #[error(
        "the state directory {} belongs to uid {owner}, not to ours ({ours}): whoever can write there could give every client a false answer. \
         Give it to uid {ours}, or choose another with --state-dir",
        path.display()
    )]
    Owner {
        /// The directory.
        path: PathBuf,
        /// Who owns it.
        owner: u32,
        /// Who we are.
        ours: u32,
    },
    /// Open to others.
    #[error(
        "the state directory {} has mode {mode:04o}: others than its owner must have no access, for whoever can write there could give every client a \
         false answer. Run `chmod 0700` on it, or choose another with --state-dir",
        path.display()
    )]
    Mode {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
}

/// Why a saved snapshot is not used.
#[derive(Debug, thiserror::Error)]
pub enum NotUsed {
    /// It could not be read.
    #[error("it cannot be {call}: {source}")]
    Io {
        /// What failed.
        call: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Not written by us.
    #[error("{0}; it is left as it is, and nothing is saved until it is moved away")]
    NotOurs(NotOurs),
    /// Not what was written.
    #[error(transparent)]
    Unreadable(Unreadable),
    /// From before a reboot.
    #[error("it was saved before this boot, or in another time namespace: no container of that time lives any more")]
    Boot,
    /// Replies of another kubelet.
    #[error("it holds replies of {found}, and --kubelet-socket is {wanted}")]
    Upstream {
        /// The file's.
        found: String,
        /// Ours.
        wanted: String,
    },
    /// A clock that does not fit.
    #[error("it was saved {ahead:?} from now by the clock since the boot, which cannot be")]
    Future {
        /// How far.
        ahead: Duration,
    },
    /// Older than `--max-stale`.
    #[error("it is {} old, longer than --max-stale {}", humantime::format_duration(whole(*age)), humantime::format_duration(*limit))]
    TooOld {
        /// How old.
        age: Duration,
        /// What is allowed.
        limit: Duration,
    },
    /// Replies that do not parse.
    #[error("what it holds does not parse: {0}")]
    Malformed(#[from] Malformed),
}

/// What shows that a file was not written by us.
#[derive(Debug, thiserror::Error)]
pub enum NotOurs {
    /// No file.
    #[error("it is no regular file")]
    Kind,
    /// Somebody else's.
    #[error("it belongs to uid {owner}, and this process runs as {ours}")]
    Owner {
        /// Who owns it.
        owner: u32,
        /// Who we are.
        ours: u32,
    },
    /// Open to others.
    #[error("its mode is {mode:04o}, so others could have written it")]
    Mode {
        /// Its permission bits.
        mode: u32,
    },
    /// Larger than all that we would write.
    #[error("it has {len} bytes, more than this program would write ({limit})")]
    TooLarge {
        /// Its length.
        len: u64,
        /// The most that it could have.
        limit: u64,
    },
    /// Another content.
    #[error("{}", Unreadable::Foreign)]
    Content,
}

/// Why a snapshot was not saved.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Somebody else's file stands there.
    #[error("{} is not ours: move it away", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
    },
    /// Another living instance has the directory.
    #[error("another instance saves to {}", path.display())]
    Busy {
        /// The directory.
        path: PathBuf,
    },
    /// The system.
    #[error("cannot {call} {}: {source}", path.display())]
    Io {
        /// What failed.
        call: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

// === impl DirError ===

impl DirError {
    /// Whether what would be read there could be anybody's.
    pub const fn is_unsafe(&self) -> bool {
        match self {
            Self::Unavailable { .. } => false,
            Self::NotADirectory { .. } | Self::Owner { .. } | Self::Mode { .. } => true,
        }
    }
}

fn hint(source: &io::Error) -> &'static str {
    match Errno::from_io_error(source) {
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => {
            "; choose one that can be written to with --state-dir, or --state-dir off"
        }
        _ => "",
    }
}

/// For people.
const fn whole(age: Duration) -> Duration {
    Duration::from_secs(age.as_secs())
}
