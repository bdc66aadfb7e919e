//! The log's level, readable and settable while running.

use std::sync::{Arc, Mutex, PoisonError};

/// Turns the log up and down. Clones share one level.
#[derive(Clone)]
pub struct LogLevel {
    inner: Arc<Inner>,
}

struct Inner {
    in_force: Mutex<String>,
    set: Box<Set>,
}

type Set = dyn Fn(&str) -> Result<(), String> + Send + Sync;

// === impl LogLevel ===

impl LogLevel {
    /// `initial` is in force now; `set` puts another in force, or says what is wrong with it.
    pub fn new(initial: impl Into<String>, set: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self { inner: Arc::new(Inner { in_force: Mutex::new(initial.into()), set: Box::new(set) }) }
    }

    /// The level in force.
    pub fn get(&self) -> String {
        self.inner.in_force.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts a level in force. A refused one changes nothing and comes back as text for people.
    pub fn set(&self, level: &str) -> Result<(), String> {
        let mut in_force = self.inner.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        (self.inner.set)(level)?;
        level.clone_into(&mut in_force);
        Ok(())
    }
}

impl std::fmt::Debug for LogLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("LogLevel").field(&self.get()).finish()
    }
}
