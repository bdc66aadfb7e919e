//! What one client may have.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::config::OnStale;
use crate::serve::Method;

use super::Pace;
use super::classes::Whole;

/// What one client may have, as a user sets it.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// It gets no answer at all.
    pub deny: bool,
    /// Calls a second in the long run.
    pub rate: f64,
    /// Calls at once after a quiet time.
    pub burst: u32,
    /// Its part of what is scarce, against those of others.
    pub weight: NonZeroU32,
    /// Connections open at a time.
    pub connections: u32,
    /// Calls in flight at a time, over all its connections.
    pub calls: u32,
    /// Bytes of replies that wait to be written to it, over all its connections. One reply alone may be larger.
    pub waiting_bytes: u64,
}

/// Limits in the form that the hot path wants, and as text.
#[derive(Debug)]
pub struct Rules {
    pub(super) limits: Limits,
    pub(super) pace: Pace,
    /// The class that they are of.
    pub(super) class: Option<Arc<str>>,
    /// What all clients of that class share.
    pub(super) whole: Option<Arc<Whole>>,
    pub(super) max_age: Option<Duration>,
    pub(super) on_stale: Option<OnStale>,
    /// Other rules for some methods.
    pub(super) by_method: Option<Box<[Option<ByMethod>; METHODS]>>,
}

/// How many methods there are, and so buckets for those that go by rules of their own.
pub(super) const METHODS: usize = Method::ALL.len();

/// Rules for a method.
#[derive(Debug)]
pub(super) struct ByMethod {
    pub(super) rules: Rules,
    /// Which bucket of the client's is for them.
    pub(super) bucket: usize,
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self {
            deny: false,
            rate: 100.0,
            burst: 100,
            weight: NonZeroU32::MIN,
            connections: 128,
            calls: 256,
            waiting_bytes: 16 << 20,
        }
    }
}

impl Limits {
    /// What all those share who were gone before it could be told who they were: a tenth of one client's.
    #[must_use]
    pub fn departed(&self) -> Self {
        let tenth = |number: u32| (number / 10).max(1);
        Self {
            rate: self.rate / 10.0,
            burst: tenth(self.burst),
            connections: tenth(self.connections),
            calls: tenth(self.calls),
            waiting_bytes: self.waiting_bytes / 10,
            ..self.clone()
        }
    }
}

impl fmt::Display for Limits {
    /// As it goes into the log and into metadata.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.deny {
            return f.write_str("denied");
        }
        let Self { rate, burst, connections, calls, waiting_bytes, .. } = self;
        write!(f, "{rate}/s, burst {burst}, {connections} connections, {calls} calls in flight, {waiting_bytes} bytes waiting")
    }
}

// === impl Rules ===

impl Rules {
    /// Rules by these limits.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let pace = Pace::new(limits.rate, limits.burst);
        Self { limits, pace, class: None, whole: None, max_age: None, on_stale: None, by_method: None }
    }

    /// The class that they are of.
    pub fn class(&self) -> Option<&str> {
        self.class.as_deref()
    }

    /// The rules for a method, and which bucket of its own is for them.
    #[inline]
    pub(super) fn of(&self, method: Option<Method>) -> (&Self, Option<usize>) {
        match (&self.by_method, method) {
            (Some(by_method), Some(method)) => match &by_method[method as usize] {
                Some(other) => (&other.rules, Some(other.bucket)),
                None => (self, None),
            },
            _ => (self, None),
        }
    }

    /// The limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }
}
