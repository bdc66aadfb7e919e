//! From what a socket says of its peer to who that is.

use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::kubepods::Kubepods;
use crate::kubepods::path::{Owner, Vantage, memberships, owner};

use super::client::{Client, ContainerId, Peer, Unit};
use super::inquiry::{Caller, Inquiry};
use super::names::Names;
use super::process::Look;
use super::vantages;

/// Tells who is at the other end of a connected Unix socket.
#[derive(Debug)]
pub struct Resolver {
    vantages: HashMap<String, Vantage>,
    names: Names,
    told: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    resolved: AtomicU64,
    out_of_sight: AtomicU64,
    departed: AtomicU64,
}

/// How many connections could be put down to whom; what readiness and metrics say about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// Connections whose process was seen.
    pub resolved: u64,
    /// Connections whose process is in no pid namespace that we see: they are told apart by user alone, and the full promise needs
    /// `hostPID: true` for us (or a `/proc` that does not hide processes).
    pub out_of_sight: u64,
    /// Connections whose process had ended before we looked.
    pub departed: u64,
}

// === impl Resolver ===

impl Resolver {
    /// Finds out from where we see the cgroup hierarchies, and starts the thread that looks up names. Blocks.
    /// `bundle_dirs` are the runtimes' directories of bundles, for pods that have no log directory.
    pub fn new(kubepods: Kubepods, bundle_dirs: Vec<PathBuf>) -> io::Result<Self> {
        Ok(Self { vantages: vantages::ours(), names: Names::of_node(kubepods, bundle_dirs)?, told: Counts::default() })
    }

    /// Who connected this socket. See [`Self::answer`].
    pub fn resolve(&self, socket: BorrowedFd<'_>) -> Peer {
        self.answer(&Inquiry::of(socket))
    }

    /// Who connected a socket. Never fails: who cannot be told apart any better is a user, who was gone before we looked is
    /// [`Client::Departed`]. Blocks: reads `/proc`, and waits a little for a pod's name.
    pub fn answer(&self, inquiry: &Inquiry) -> Peer {
        let uid = inquiry.uid;
        let look = match &inquiry.process {
            Caller::Held(process) => process.look(),
            Caller::Gone => Look::Gone,
            Caller::OutOfSight => Look::OutOfSight,
            Caller::Unknown => return Peer::of_uid(uid),
        };
        match look {
            Look::Alive { pid, cgroups } => {
                self.told.resolved.fetch_add(1, Relaxed);
                Peer { pid: Some(pid), ..self.owned(uid, &cgroups) }
            }
            Look::OutOfSight => {
                self.told.out_of_sight.fetch_add(1, Relaxed);
                Peer::of_uid(uid)
            }
            Look::Gone => {
                self.told.departed.fetch_add(1, Relaxed);
                Peer::departed(uid)
            }
        }
    }

    /// What was seen so far.
    pub fn sight(&self) -> Sight {
        let Counts { resolved, out_of_sight, departed } = &self.told;
        Sight { resolved: resolved.load(Relaxed), out_of_sight: out_of_sight.load(Relaxed), departed: departed.load(Relaxed) }
    }

    /// The peer of this user and these texts of `/proc/<pid>/cgroup`.
    fn owned(&self, uid: u32, cgroups: &[String]) -> Peer {
        let owner = cgroups.iter().find_map(|text| owner(memberships(text), |controllers| self.vantages.get(controllers)));
        match owner {
            Some(Owner::Pod { uid: pod, container }) => {
                let container = container.as_deref().map(ContainerId::new);
                let name = self.names.of(pod, container.as_ref());
                Peer { client: Client::Pod { uid: pod }, container, pod: name, ..Peer::of_uid(uid) }
            }
            Some(Owner::Unit(unit)) => Peer { client: Client::Unit(Unit::new(&unit)), ..Peer::of_uid(uid) },
            None => Peer::of_uid(uid),
        }
    }
}

// === impl Sight ===

impl Sight {
    /// Whether clients have come that cannot be told apart without hostPID.
    pub const fn needs_host_pid(&self) -> bool {
        self.out_of_sight > 0
    }
}
