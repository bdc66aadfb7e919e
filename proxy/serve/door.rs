//! Who may come in: each connection is put down to a client before its first byte is served.

use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use tokio::task::spawn_blocking;
use tokio::time::Instant;
use tracing::debug;

use crate::admission::{Admitted, Reason, Table};
use crate::peer::Peer;

use super::Stats;
use super::lobby::Waiting;
use super::pause::has_hung_up;

/// Says who is at the other end of a socket. May block: it is called on threads that are there for it.
pub type Identify = dyn Fn(BorrowedFd<'_>) -> Peer + Send + Sync;

/// What a connection goes through before it is served. A clone is the same door.
#[derive(Clone)]
pub struct Door {
    /// The clients and what they may have.
    pub table: Arc<Table>,
    /// Tells them apart.
    pub identify: Arc<Identify>,
}

/// Threads of one worker that look who has come.
pub(super) const LOOKING: usize = 2;

// === impl Door ===

impl Door {
    /// Lets a connection in, or says nothing and closes it: its client is told by the end of the connection, before any HTTP/2.
    pub(super) async fn enter(&self, socket: OwnedFd, waiting: Waiting, stats: &Stats) -> Option<(OwnedFd, Admitted)> {
        let (identify, caller) = (Arc::clone(&self.identify), waiting.caller());
        let looked = spawn_blocking(move || {
            // Dialled and gone: nobody is there to be told apart.
            let peer = (!has_hung_up(&socket)).then(|| identify(socket.as_fd()));
            drop(waiting);
            (socket, peer)
        });
        let (socket, peer) = looked.await.ok()?;
        let peer = peer?;
        let now = Instant::now();
        match self.table.join(peer, stats.connections_known(), now) {
            Ok(admitted) => Some((socket, admitted)),
            Err(reason) => {
                debug!(reason = reason.name(), "connection closed: its client is over a limit");
                if reason == Reason::Connections {
                    stats.accept.lobby.shut_out(caller, now);
                }
                None
            }
        }
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("table", &self.table).finish_non_exhaustive()
    }
}
