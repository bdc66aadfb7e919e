//! Classes of clients: `[[class]]` in the file. What is written there, not what is made of it.

use std::num::NonZeroU32;
use std::time::Duration;

/// The methods that a class can name, in the order of [`Class::methods`].
pub const METHODS: [&str; 4] = ["List", "GetAllocatableResources", "Get", "v1alpha1.List"];

/// A class: whom it takes, and what they may have. The first class that takes a client is its class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Class {
    /// Its name, for logs, metadata and messages.
    pub name: String,
    /// Pods in one of these namespaces; empty: in any.
    pub namespaces: Vec<String>,
    /// Pods whose names begin with one of these; empty: with anything.
    pub pods: Vec<String>,
    /// One of these systemd units.
    pub units: Vec<String>,
    /// One of these users, where they are neither pods nor units.
    pub uids: Vec<u32>,
    /// For these methods only, as [`METHODS`]; none: for all of them.
    pub methods: [bool; METHODS.len()],
    /// They get nothing.
    pub deny: bool,
    /// What each of them may have, where it differs from everybody's.
    pub each: Each,
    /// What all of them together may have.
    pub whole: Whole,
    /// An answer that is younger will do, however much has changed since.
    pub max_age: Option<Duration>,
    /// Where no answer is to be had that is as new as it should be.
    pub on_stale: Option<OnStale>,
}

/// What each client of a class may have; `None`: as everybody.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Each {
    /// Calls a second in the long run.
    pub rate: Option<f64>,
    /// Calls at once after a quiet time.
    pub burst: Option<NonZeroU32>,
    /// Its part of what is scarce, against those of others.
    pub weight: Option<NonZeroU32>,
    /// Connections open at a time.
    pub connections: Option<NonZeroU32>,
    /// Calls in flight at a time.
    pub calls: Option<NonZeroU32>,
    /// Bytes of replies that wait to be written.
    pub waiting_bytes: Option<usize>,
}

/// What all clients of a class together may have; `None`: whatever they have one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Whole {
    /// Calls a second in the long run.
    pub rate: Option<f64>,
    /// Calls at once after a quiet time; `None`: as many as a second brings.
    pub burst: Option<NonZeroU32>,
    /// Connections open at a time.
    pub connections: Option<NonZeroU32>,
}

/// What a client gets where no answer is to be had that is as new as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStale {
    /// The last good one, marked, after a short wait.
    Serve,
    /// An error, also while the kubelet cannot be reached.
    Fail,
}

// === impl Class ===

impl Class {
    /// Whether it names methods.
    pub fn has_methods(&self) -> bool {
        self.methods.contains(&true)
    }

    /// Whether it names nobody, and so takes everybody.
    pub fn takes_everybody(&self) -> bool {
        let Self { namespaces, pods, units, uids, .. } = self;
        namespaces.is_empty() && pods.is_empty() && units.is_empty() && uids.is_empty()
    }
}
