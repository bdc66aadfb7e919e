//! One connection's hold on its client's state: what a call asks before it is answered.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::Instant;

use crate::answer::{Terms, Who};
use crate::peer::Client;
use crate::serve::Method;

use super::classes::Counted;
use super::state::State;
use super::table::{Mode, Table};
use super::{Bucket, Reason, Refused, Rules};

/// A connection that may stay. It counts as one until dropped.
#[derive(Debug)]
pub struct Admitted {
    table: Arc<Table>,
    state: Arc<State>,
    enforced: bool,
    /// The connection's own part, where its client is a whole user: within one, it is fair by connection.
    own: Option<Bucket>,
    /// Its place among those of its class, where that has a limit as a whole.
    _of_class: Option<Counted>,
}

/// A call in flight. Who ends it without a token pays for it all the same.
#[derive(Debug)]
pub struct Call<'a> {
    admitted: &'a Admitted,
    /// `None`: one that nobody knows.
    method: Option<Method>,
    arrived: Instant,
    paid: Cell<bool>,
}

/// Bytes of a reply that wait to be written, until dropped.
#[derive(Debug)]
pub struct Held {
    state: Arc<State>,
    bytes: u64,
}

// === impl Admitted ===

impl Admitted {
    pub(super) fn new(table: Arc<Table>, state: Arc<State>) -> Self {
        let shared = matches!(state.peer.load().client, Client::Uid(_) | Client::Departed);
        let enforced = table.config().mode == Mode::Enforce;
        let of_class = state.rules.load().whole.as_ref().map(|whole| whole.count());
        Self { table, state, enforced, own: shared.then(Bucket::full), _of_class: of_class }
    }

    pub(super) fn state(&self) -> &State {
        &self.state
    }

    /// Who asks, for those who put waiting calls in order.
    pub fn who(&self) -> Who {
        Who { weight: self.state.rules.load().limits.weight, ..self.state.who }
    }

    /// A call's headers have come: it is counted as in flight, and refused where the client has too many, or too much that it does not
    /// read. Nothing is paid yet.
    #[inline]
    pub fn call(&self, method: Option<Method>, now: Instant) -> Result<Call<'_>, (Call<'_>, Refused)> {
        let in_flight = self.state.begin();
        let call = Call { admitted: self, method, arrived: now, paid: Cell::new(false) };
        let rules = self.state.rules.load();
        let (rules, _) = rules.of(method);
        let reason = if rules.limits.deny {
            Reason::Denied
        } else if in_flight > u64::from(rules.limits.calls) {
            Reason::Calls
        } else if self.state.waiting.load(Relaxed) >= rules.limits.waiting_bytes {
            Reason::Bytes
        } else {
            return Ok(call);
        };
        // A refusal is as dear as a token, and counted once.
        call.paid.set(true);
        match self.refuse(reason, None, rules, now) {
            Ok(()) => {
                call.paid.set(false);
                Ok(call)
            }
            Err(refused) => Err((call, refused)),
        }
    }

    /// A reply of so many bytes is handed over, to wait until the client takes it. Refused where it has too much waiting already.
    #[inline]
    pub fn hold(&self, bytes: usize, now: Instant) -> Result<Held, Refused> {
        let bytes = bytes as u64;
        let before = self.state.waiting.fetch_add(bytes, Relaxed);
        let held = Held { state: Arc::clone(&self.state), bytes };
        let rules = self.state.rules.load();
        // One reply alone is always let through: who may have it at all may have it whole.
        if before > 0 && before.saturating_add(bytes) > rules.limits.waiting_bytes {
            self.refuse(Reason::Bytes, None, &rules, now)?;
        }
        Ok(held)
    }

    /// What waits for one of its sockets to take it is another number of bytes than before.
    pub fn waits(&self, before: usize, now: usize) {
        // A number that falls is one that grows by the rest of the circle.
        self.state.waiting.fetch_add((now as u64).wrapping_sub(before as u64), Relaxed);
    }

    /// So many bytes have been read from the client. Until when to read no more, where that was too much for a while.
    pub fn read(&self, bytes: usize, now: Instant) -> Option<Instant> {
        if !self.enforced {
            return None;
        }
        let clock = self.table.clock(now);
        let wait = self.state.read(bytes as u64, clock);
        (wait > 0).then(|| now + Duration::from_nanos(wait).min(Duration::from_secs(1)))
    }

    /// Until when the client is not to be read from, where it goes on although it is refused; in the past, too.
    #[inline]
    pub fn paused_until(&self) -> Option<Instant> {
        match self.state.paused_until.load(Relaxed) {
            0 => None,
            clock => Some(self.table.at(clock)),
        }
    }

    #[inline]
    fn take(&self, rules: &Rules, now: u64) -> Result<(), u64> {
        let bucket = &self.state.bucket;
        let Some(own) = &self.own else { return bucket.take(1, rules.pace, now) };
        let sharers = self.state.connections.load(Relaxed);
        // Half of the burst is divided among the connections, and so is the rate; the rest is for whoever comes first. So the whole is
        // never over its limit, and whoever keeps to its part always finds it there.
        if sharers <= 1 || own.take(1, rules.pace.share(sharers), now).is_ok() {
            bucket.take(1, rules.pace, now)
        } else {
            bucket.take(1, rules.pace.half(), now)
        }
    }

    #[cold]
    fn refuse(&self, reason: Reason, wait: Option<u64>, rules: &Rules, now: Instant) -> Result<(), Refused> {
        self.table.note(&self.state, reason, self.table.clock(now));
        if !self.enforced {
            return Ok(());
        }
        let after = wait.map(Duration::from_nanos);
        Err(Refused { reason, after, client: self.state.peer.load().to_string(), limit: reason.limit(rules) })
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.table.leave(&self.state, self.table.clock(Instant::now()));
    }
}

// === impl Call ===

impl Call<'_> {
    /// The request has come whole: takes a token for it.
    #[inline]
    pub fn pay(&self, now: Instant) -> Result<(), Refused> {
        self.pay_for(&mut Terms::default(), now)
    }

    /// As [`Self::pay`]; `terms` that the client has not named are its class's from here on.
    #[inline]
    pub fn pay_for(&self, terms: &mut Terms, now: Instant) -> Result<(), Refused> {
        self.paid.set(true);
        let Admitted { table, state, .. } = self.admitted;
        let rules = state.rules.load();
        let (rules, bucket) = rules.of(self.method);
        terms.max_age = terms.max_age.or(rules.max_age);
        terms.on_stale = rules.on_stale;
        let clock = table.clock(now);
        let taken = match bucket {
            None => self.admitted.take(rules, clock),
            Some(bucket) => state.by_method[bucket].take(1, rules.pace, clock),
        };
        if let Err(wait) = taken {
            return self.admitted.refuse(Reason::Rate, Some(wait), rules, now);
        }
        match rules.whole.as_ref().map(|whole| (whole, whole.take(clock))) {
            None | Some((_, Ok(()))) => Ok(()),
            Some((whole, Err(wait))) => {
                let refused = self.admitted.refuse(Reason::Rate, Some(wait), rules, now);
                refused.map_err(|refused| Refused { limit: whole.to_string(), ..refused })
            }
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if !self.paid.get() {
            // It was no good call, or its client gave it up: that costs us as much.
            drop(self.pay(self.arrived));
        }
        self.admitted.state.end();
    }
}

// === impl Held ===

impl Drop for Held {
    fn drop(&mut self) {
        self.state.waiting.fetch_sub(self.bytes, Relaxed);
    }
}
