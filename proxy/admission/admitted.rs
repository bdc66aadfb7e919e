//! One connection's hold on its client's state: what a call asks before it is answered.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use arc_swap::{ArcSwap, Cache};
use tokio::time::Instant;

use crate::answer::{Terms, Who};
use crate::peer::Client;
use crate::serve::Method;

use super::classes::Counted;
use super::state::State;
use super::table::{Mode, Table};
use super::tally::Tally;
use super::{Bucket, Reason, Refused, Rules};

/// A connection that may stay. It counts as one until dropped.
#[derive(Debug)]
pub struct Admitted {
    table: Arc<Table>,
    state: Arc<State>,
    /// Its client's rules as they were when they were looked at last: asking whether they are others now is one load.
    rules: RefCell<Cache<RulesOf, Arc<Rules>>>,
    tally: Tally,
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

/// Where a client's rules are.
#[derive(Clone, Debug)]
struct RulesOf(Arc<State>);

// === impl Admitted ===

impl Admitted {
    pub(super) fn new(table: Arc<Table>, state: Arc<State>) -> Self {
        let shared = matches!(state.peer.load().client, Client::Uid(_) | Client::Departed);
        let enforced = table.config().mode == Mode::Enforce;
        let of_class = state.rules.load().whole.as_ref().map(|whole| whole.count());
        let rules = RefCell::new(Cache::new(RulesOf(Arc::clone(&state))));
        Self { table, state, rules, tally: Tally::default(), enforced, own: shared.then(Bucket::full), _of_class: of_class }
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
        let Tally { in_flight, waiting, .. } = &self.tally;
        in_flight.add(1);
        self.tally.changed(&self.state.sums);
        let call = Call { admitted: self, method, arrived: now, paid: Cell::new(false) };
        let mut rules = self.rules.borrow_mut();
        let (rules, _) = rules.load().of(method);
        let reason = if rules.limits.deny {
            Reason::Denied
        } else if in_flight.of_all(&self.state.sums.in_flight) > u64::from(rules.limits.calls) {
            Reason::Calls
        } else if waiting.of_all(&self.state.sums.waiting) >= rules.limits.waiting_bytes {
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

    /// A reply of so many bytes is handed over, to wait until the client takes it: see [`Self::written`]. Refused where it has too much
    /// waiting already.
    #[inline]
    pub fn hold(&self, bytes: usize, now: Instant) -> Result<(), Refused> {
        let bytes = bytes as u64;
        let mut rules = self.rules.borrow_mut();
        let rules = rules.load();
        let before = self.tally.waiting.of_all(&self.state.sums.waiting);
        // One reply alone is always let through: who may have it at all may have it whole.
        if before > 0 && before.saturating_add(bytes) > rules.limits.waiting_bytes {
            self.refuse(Reason::Bytes, None, rules, now)?;
        }
        self.tally.waiting.add(bytes);
        self.tally.changed(&self.state.sums);
        Ok(())
    }

    /// Of a reply so many bytes wait no longer: they are written, or nobody wants them any more.
    #[inline]
    pub fn written(&self, bytes: usize) {
        self.tally.waiting.sub(bytes as u64);
        self.tally.changed(&self.state.sums);
    }

    /// The connection's task is about to be polled. Until [`Self::turn_ends`] what it does is its own business.
    #[inline]
    pub fn turn_begins(&self) {
        self.tally.turn_begins();
    }

    /// Its task has been polled; of what it has written the socket did not take `backed_up` bytes, and `before` bytes last time.
    #[inline]
    pub fn turn_ends(&self, before: usize, backed_up: usize) {
        self.tally.waiting.add((backed_up as u64).wrapping_sub(before as u64));
        self.tally.turn_ends(&self.state.sums);
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
        self.tally.leaves(&self.state.sums);
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
        let mut rules = self.admitted.rules.borrow_mut();
        let (rules, bucket) = rules.load().of(self.method);
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
        let Admitted { tally, state, .. } = self.admitted;
        tally.in_flight.sub(1);
        tally.calls.add(1);
        tally.changed(&state.sums);
    }
}

// === impl RulesOf ===

impl Deref for RulesOf {
    type Target = ArcSwap<Rules>;

    fn deref(&self) -> &ArcSwap<Rules> {
        &self.0.rules
    }
}
