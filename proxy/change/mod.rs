//! Knows *that* something changed, never what the answer is now.
//!
//! Every source moves the same [`Epoch`]; a request compares one number. What a change was about (the [`Kind`]) only saves work
//! upstream and feeds the logs: freshness rests on the number alone.

mod choice;
#[cfg(feature = "ebpf")]
pub mod ebpf;
mod epoch;
mod fanotify;
mod gap;
mod inotify;
mod journal;
mod plain;
mod pods_api;
mod source;
mod sources;
mod wait;
mod word;

pub use choice::Watched;
pub use epoch::{Epoch, Kind, Queue, TooManyWords};
pub use inotify::{Inotify, KubeletDirs, KubepodsDirs, Layout, WatchError};
pub use pods_api::Settled;
pub use source::{PartReport, Sees, Source, State};
pub use sources::{Report, Sources};
pub use word::Words;

#[cfg(test)]
mod test_node;
