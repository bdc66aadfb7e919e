//! What the parts of one connection tell each other: its socket's layers, its calls and its replies, all on one thread.

use std::cell::Cell;
use std::rc::Rc;

use bytes::{Buf, Bytes};
use tokio::time::Instant;

use crate::admission::{Admitted, Call, Refused};
use crate::answer::Who;

use super::Method;
use super::activity::Activity;

/// One connection, while it is served.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) activity: Rc<Activity>,
    /// `None`: nobody looks who the client is.
    admitted: Option<Admitted>,
    /// Calls begun, and bytes read, since its task was polled last.
    calls: Cell<u32>,
    bytes: Cell<usize>,
    /// Bytes read that its client has not been charged for yet.
    uncharged: Cell<usize>,
    /// It has sent too many bytes: nothing is read before this.
    bytes_until: Cell<Option<Instant>>,
    /// Bytes of replies that wait for the client's window, or for room to be written.
    unsent: Cell<usize>,
    /// Bytes that the socket has not taken.
    backed_up: Cell<usize>,
}

/// Ready-made bytes of a reply, counted as waiting until they are written or dropped.
#[derive(Debug)]
pub(super) struct Piece {
    bytes: Bytes,
    counted: Option<Counted>,
}

#[derive(Debug)]
struct Counted {
    session: Rc<Session>,
    left: usize,
}

/// Calls that one poll of a connection begins; then others have their turn.
pub(super) const CALLS_AT_ONCE: u32 = 16;
/// Bytes that one poll of a connection reads.
const BYTES_AT_ONCE: usize = 64 * 1024;
/// Bytes that are charged to a client together, so that a call does not pay for the look at the clock.
const CHARGE: usize = 16 * 1024;

// === impl Session ===

impl Session {
    pub(super) fn new(activity: Rc<Activity>, admitted: Option<Admitted>) -> Rc<Self> {
        Rc::new(Self {
            activity,
            admitted,
            calls: Cell::new(0),
            bytes: Cell::new(0),
            uncharged: Cell::new(0),
            bytes_until: Cell::new(None),
            unsent: Cell::new(0),
            backed_up: Cell::new(0),
        })
    }

    pub(super) fn who(&self) -> Who {
        self.admitted.as_ref().map_or(Who::ANYBODY, Admitted::who)
    }

    /// The headers of a call have come.
    pub(super) fn call(&self, method: Option<Method>, now: Instant) -> Result<Option<Call<'_>>, (Call<'_>, Refused)> {
        self.calls.set(self.calls.get() + 1);
        self.admitted.as_ref().map(|admitted| admitted.call(method, now)).transpose()
    }

    /// A reply is about to be handed over.
    pub(super) fn piece(self: &Rc<Self>, bytes: Bytes, now: Instant) -> Result<Piece, Refused> {
        let Some(admitted) = &self.admitted else { return Ok(bytes.into()) };
        let left = bytes.len();
        admitted.hold(left, now)?;
        self.unsent.set(self.unsent.get() + left);
        Ok(Piece { bytes, counted: Some(Counted { session: Rc::clone(self), left }) })
    }

    /// Its task is about to be polled.
    pub(super) fn turn_begins(&self) {
        self.calls.set(0);
        self.bytes.set(0);
        if let Some(admitted) = &self.admitted {
            admitted.turn_begins();
        }
    }

    /// Its task has been polled, and so many bytes wait for the socket.
    pub(super) fn turn_ends(&self, backed_up: usize) {
        let before = self.backed_up.replace(backed_up);
        if let Some(admitted) = &self.admitted {
            admitted.turn_ends(before, backed_up);
        }
    }

    /// Whether it has had enough for one poll.
    pub(super) fn turn_is_over(&self) -> bool {
        self.calls.get() >= CALLS_AT_ONCE || self.bytes.get() >= BYTES_AT_ONCE
    }

    /// So many bytes have been read.
    pub(super) fn read(&self, count: usize) {
        self.bytes.set(self.bytes.get() + count);
        let Some(admitted) = &self.admitted else { return };
        let uncharged = self.uncharged.get() + count;
        self.uncharged.set(uncharged);
        if uncharged >= CHARGE {
            let until = admitted.read(uncharged, Instant::now());
            if until.is_none() {
                self.uncharged.set(0);
            }
            self.bytes_until.set(until);
        }
    }

    /// Whether there may be a reason not to read; [`Self::unread_until`] tells, and has to look at the clock.
    pub(super) fn may_be_unread(&self) -> bool {
        self.bytes_until.get().is_some() || self.admitted.as_ref().is_some_and(|admitted| admitted.paused_until().is_some())
    }

    /// Until when nothing is to be read.
    pub(super) fn unread_until(&self, now: Instant) -> Option<Instant> {
        let admitted = self.admitted.as_ref()?;
        // A reply that waits for its window goes on only when the client's update is read. Where the socket does not take what there
        // is, the window is not what it waits for.
        let waits_for_window = self.unsent.get() > 0 && self.backed_up.get() == 0;
        let paused = admitted.paused_until().filter(|_| !waits_for_window);
        paused.max(self.bytes_until.get()).filter(|until| *until > now)
    }
}

// === impl Piece ===

impl Piece {
    /// What has not been written yet.
    pub(super) const fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

impl From<Bytes> for Piece {
    /// Bytes that nobody counts.
    fn from(bytes: Bytes) -> Self {
        Self { bytes, counted: None }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        if let Some(counted) = &mut self.counted {
            counted.written(count);
        }
    }
}

// === impl Counted ===

impl Counted {
    fn written(&mut self, count: usize) {
        let Self { session, left } = self;
        *left -= count;
        session.unsent.set(session.unsent.get() - count);
        if let Some(admitted) = &session.admitted {
            admitted.written(count);
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.written(self.left);
    }
}
