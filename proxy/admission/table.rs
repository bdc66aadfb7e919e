//! All clients: touched when a connection comes and when it goes, never by a call.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use dashmap::DashMap;
use tokio::time::Instant;
use tracing::warn;

use crate::peer::{Client, Peer};

use super::state::State;
use super::{Admitted, Bucket, Limits, Pace, Reason, Rules};

/// Whether limits hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// What is over its limit is refused.
    #[default]
    Enforce,
    /// It is counted and served.
    Observe,
    /// Nobody looks who a client is.
    Off,
}

/// What admission needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// Whether limits hold.
    pub mode: Mode,
    /// What each client may have, unless a rule says otherwise.
    pub limits: Limits,
    /// Most connections of all clients together.
    pub max_connections: usize,
}

/// Says by which rules a client goes.
pub type Classify = dyn Fn(&Peer) -> Arc<Rules> + Send + Sync;

/// All clients that are there, or were and may not be forgotten yet.
pub struct Table {
    config: Config,
    started: Instant,
    classify: ArcSwap<Box<Classify>>,
    clients: DashMap<Client, Arc<State>>,
    /// Clients without a connection that cannot be let go yet.
    leaving: Mutex<VecDeque<Client>>,
    next_id: AtomicU64,
    /// Log lines that may still be written on all clients together.
    lines: Bucket,
    totals: Totals,
}

/// What became of all clients. Written where something is refused, on cache lines that nothing else is on.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Totals {
    refused: [AtomicU64; Reason::ALL.len()],
    pauses: AtomicU64,
}

/// One client, as seen from outside.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Who it is; of its connections the first, or the first of which the pod's name was known.
    pub peer: Arc<Peer>,
    /// What it may have.
    pub rules: Arc<Rules>,
    /// Connections open now.
    pub connections: u64,
    /// Calls in flight now.
    pub in_flight: u64,
    /// Calls that have ended, refused ones included.
    pub calls: u64,
    /// What was refused, by [`Reason::ALL`].
    pub refused: [u64; Reason::ALL.len()],
    /// How often it was left unread.
    pub pauses: u64,
    /// It is left unread now.
    pub paused: bool,
    /// Bytes of replies that wait to be written.
    pub waiting_bytes: u64,
    /// Calls that it may make at once now.
    pub tokens: u64,
}

/// Of all connections, one in so many is kept for clients that have none yet.
const FOR_NEWCOMERS: usize = 16;
/// And one in so many for uid 0.
const FOR_ROOT: usize = 64;
/// Log lines a second on all clients together, and at once.
const LINES: (f64, u32) = (1.0, 30);
/// How many of those that are leaving are looked at whenever a connection comes or goes.
const LOOKS: usize = 4;

// === impl Config ===

impl Default for Config {
    fn default() -> Self {
        Self { mode: Mode::Enforce, limits: Limits::default(), max_connections: 4096 }
    }
}

impl Config {
    /// Connections that are there for uid 0 outside of pods alone.
    pub const fn for_root(&self) -> usize {
        self.max_connections.div_ceil(FOR_ROOT)
    }

    /// Connections that are there for clients that have none yet, beside [`Self::for_root`].
    pub const fn for_newcomers(&self) -> usize {
        self.max_connections.div_ceil(FOR_NEWCOMERS)
    }

    /// The same limits for all, and a tenth of them for those who were gone before it could be told who they were.
    fn same_for_all(&self) -> Box<Classify> {
        let each = Arc::new(Rules::new(self.limits.clone()));
        let departed = Arc::new(Rules::new(self.limits.departed()));
        Box::new(move |peer| Arc::clone(if peer.client == Client::Departed { &departed } else { &each }))
    }
}

// === impl Table ===

impl Table {
    /// A table in which every client has the limits of the configuration. Needs tokio's clock.
    pub fn new(config: Config) -> Arc<Self> {
        let classify = ArcSwap::from_pointee(config.same_for_all());
        Arc::new(Self {
            config,
            started: Instant::now(),
            classify,
            clients: DashMap::new(),
            leaving: Mutex::default(),
            next_id: AtomicU64::new(1),
            lines: Bucket::full(),
            totals: Totals::default(),
        })
    }

    /// What it goes by.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Puts other rules in force, also for the clients that are there.
    pub fn reclassify(&self, classify: Box<Classify>) {
        self.classify.store(Arc::new(classify));
        let classify = self.classify.load();
        for entry in &self.clients {
            let rules = classify(&entry.value().peer.load());
            entry.value().rules.store(rules);
        }
    }

    /// A connection of this client has come; `open` are with it, of all clients. Where it may not stay, the reason has been counted and
    /// logged.
    pub fn join(self: &Arc<Self>, peer: Peer, open: usize, now: Instant) -> Result<Admitted, Reason> {
        let now = self.clock(now);
        let (client, uid) = (peer.client.clone(), peer.uid);
        let state = {
            let entry = self.clients.entry(client).or_insert_with(|| {
                let rules = (**self.classify.load())(&peer);
                Arc::new(State::new(self.next_id.fetch_add(1, Relaxed), peer.clone(), rules))
            });
            // Counted before the entry is let go, so that it is not removed meanwhile.
            entry.connections.fetch_add(1, Relaxed);
            Arc::clone(&entry)
        };
        if state.peer.load().pod.is_none() && peer.pod.is_some() {
            // Its class may be one of its namespace.
            state.rules.store((**self.classify.load())(&peer));
            state.peer.store(Arc::new(peer));
        }
        self.look_at_leaving(LOOKS, now);
        let admitted = Admitted::new(Arc::clone(self), state);
        let Some(reason) = self.too_many(&admitted, uid, open) else { return Ok(admitted) };
        self.note(admitted.state(), reason, now);
        if self.config.mode == Mode::Enforce { Err(reason) } else { Ok(admitted) }
    }

    fn too_many(&self, admitted: &Admitted, uid: u32, open: usize) -> Option<Reason> {
        let state = admitted.state();
        let (for_root, for_newcomers) = (self.config.for_root(), self.config.for_newcomers());
        let mine = state.connections.load(Relaxed);
        // Most agents run as root in their pods; it is the node's own that is let in last.
        let is_root = uid == 0 && !matches!(state.peer.load().client, Client::Pod { .. });
        let kept = match (is_root, mine) {
            (true, _) => 0,
            (false, 0..=1) => for_root,
            (false, _) => for_root + for_newcomers,
        };
        let rules = state.rules.load();
        if mine > u64::from(rules.limits.connections) || rules.whole.as_ref().is_some_and(|whole| whole.is_crowded()) {
            Some(Reason::Connections)
        } else if open > self.config.max_connections.saturating_sub(kept).max(1) {
            Some(Reason::Full)
        } else {
            None
        }
    }

    /// Forgets the clients that have gone and whose limits are whole again. To be called every now and then; coming and going connections
    /// do a part of it.
    pub fn sweep(&self, now: Instant) {
        let count = self.lock_leaving().len();
        self.look_at_leaving(count, self.clock(now));
    }

    /// How many clients are known: those with a connection, and those that may not be forgotten yet.
    pub fn len(&self) -> usize {
        self.clients.len()
    }

    /// Whether no client is known.
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// The clients that were refused most, then those that called most; at most so many.
    pub fn top(&self, most: usize, now: Instant) -> Vec<Seen> {
        let now = self.clock(now);
        let mut seen: Vec<Seen> = self.clients.iter().map(|entry| Seen::of(entry.value(), now)).collect();
        seen.sort_by_cached_key(|seen| std::cmp::Reverse((seen.refused.iter().sum::<u64>(), seen.calls, seen.connections)));
        seen.truncate(most);
        seen
    }

    /// What was refused of all clients together for this reason; where limits are only observed, what would have been.
    pub fn refused(&self, reason: Reason) -> u64 {
        self.totals.refused[reason as usize].load(Relaxed)
    }

    /// How often a client was left unread.
    pub fn pauses(&self) -> u64 {
        self.totals.pauses.load(Relaxed)
    }

    /// How many clients are left unread now.
    pub fn paused(&self, now: Instant) -> usize {
        let now = self.clock(now);
        self.clients.iter().filter(|entry| entry.value().paused_until.load(Relaxed) > now).count()
    }

    /// Nanoseconds since the table was made.
    pub(super) fn clock(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.started).as_nanos()).unwrap_or(u64::MAX)
    }

    pub(super) fn at(&self, clock: u64) -> Instant {
        self.started + Duration::from_nanos(clock)
    }

    /// A connection has gone.
    pub(super) fn leave(&self, state: &Arc<State>, now: u64) {
        if state.connections.fetch_sub(1, Relaxed) == 1 {
            let client = state.peer.load().client.clone();
            if !self.let_go(&client, now) && !state.leaving.swap(true, Relaxed) {
                self.lock_leaving().push_back(client);
            }
        }
        self.look_at_leaving(LOOKS, now);
    }

    /// Counts a refusal, and logs it where nothing was said of this client for a while.
    #[cold]
    pub(super) fn note(&self, state: &State, reason: Reason, now: u64) {
        let noted = state.note(reason, self.config.mode == Mode::Enforce, now);
        self.totals.refused[reason as usize].fetch_add(1, Relaxed);
        self.totals.pauses.fetch_add(u64::from(noted.paused), Relaxed);
        if !noted.line || self.lines.take(1, Pace::new(LINES.0, LINES.1), now).is_err() {
            return;
        }
        let (peer, rules) = (state.peer.load(), state.rules.load());
        let refused: u64 = Reason::ALL.into_iter().map(|reason| state.refused(reason)).sum();
        warn!(
            client = %peer,
            uid = peer.uid,
            pid = peer.pid,
            over = reason.name(),
            limits = %rules.limits,
            connections = state.connections.load(Relaxed),
            calls = state.sums.calls.load(Relaxed),
            refused,
            observing = self.config.mode == Mode::Observe,
            "a client is over its limits; the next line on it comes in a minute at the earliest"
        );
    }

    fn look_at_leaving(&self, most: usize, now: u64) {
        for _ in 0..most {
            let Some(client) = self.lock_leaving().pop_front() else { return };
            let Some(state) = self.clients.get(&client).map(|entry| Arc::clone(&entry)) else { continue };
            if state.connections.load(Relaxed) > 0 {
                // It is back. When it leaves, it is put into the queue again.
                state.leaving.store(false, Relaxed);
                // It may have left before it could see that.
                if state.connections.load(Relaxed) > 0 || state.leaving.swap(true, Relaxed) {
                    continue;
                }
            } else if self.let_go(&client, now) {
                continue;
            }
            self.lock_leaving().push_back(client);
        }
    }

    /// Forgets a client that has no connection, where nothing is lost by it.
    fn let_go(&self, client: &Client, now: u64) -> bool {
        self.clients.remove_if(client, |_, state| state.may_go(now)).is_some()
    }

    fn lock_leaving(&self) -> std::sync::MutexGuard<'_, VecDeque<Client>> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("config", &self.config).field("clients", &self.clients.len()).finish_non_exhaustive()
    }
}

// === impl Seen ===

impl Seen {
    fn of(state: &State, now: u64) -> Self {
        let rules = state.rules.load_full();
        Self {
            peer: state.peer.load_full(),
            connections: state.connections.load(Relaxed),
            in_flight: state.sums.in_flight.load(Relaxed),
            calls: state.sums.calls.load(Relaxed),
            refused: Reason::ALL.map(|reason| state.refused(reason)),
            pauses: state.pauses(),
            paused: state.paused_until.load(Relaxed) > now,
            waiting_bytes: state.sums.waiting.load(Relaxed),
            tokens: state.bucket.left(rules.pace, now),
            rules,
        }
    }
}
