//! Knows *that* something changed, never what the answer is now.
//!
//! Every source moves the same [`Epoch`]; a request compares one number. What a change was about (the [`Kind`]) only saves work
//! upstream and feeds the logs: freshness rests on the number alone.

mod epoch;
mod kubelet_dirs;

pub use epoch::{Epoch, Kind, Queue};
pub use kubelet_dirs::{KubeletDirs, Layout, WatchError};
