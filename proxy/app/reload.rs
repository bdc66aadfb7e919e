//! Rules for clients that are read anew while we run: on SIGHUP, and when their file is written or another is put in its place.
//!
//! A file that is wrong changes nothing: the old rules stay in force, and log, metric and status say what is wrong with the new ones.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use inotify::{Event, EventMask, EventStream, Inotify, WatchMask};
use tokio::signal::unix::Signal;
use tokio::time::timeout;
use tokio_stream::StreamExt as _;

use crate::admission::{Classes, Limits, Table};
use crate::config::Class;

/// An editor writes a file in several steps, and the kubelet swaps a directory of them: it is read once they have been quiet for so long.
const QUIET: Duration = Duration::from_millis(100);
/// But not later than this, should they never be.
const AT_LAST: Duration = Duration::from_secs(2);

/// What clients may have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rulebook {
    /// Each of them, where no class says otherwise.
    pub limits: Limits,
    /// Classes of them, in their order.
    pub classes: Vec<Class>,
}

/// Rules that have been read.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// Themselves.
    pub rulebook: Rulebook,
    /// The configuration with them in force, as TOML.
    pub shown: String,
}

/// Reads the rules as they are now; the error is for people, and may have many lines.
pub type Load = dyn Fn() -> Result<Loaded, String> + Send + Sync;

/// Where rules come from.
#[derive(Clone)]
pub struct Reload {
    /// The file that is watched.
    pub file: PathBuf,
    /// Reads it, and all else that goes into the rules.
    pub load: Arc<Load>,
}

/// The rules in force, and what became of the last try to change them.
#[derive(Debug)]
pub(super) struct InForce {
    file: Option<PathBuf>,
    taken: AtomicU64,
    refused: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    rulebook: Rulebook,
    classes: Arc<Classes>,
    shown: String,
    /// What is wrong with the file as it is now.
    error: Option<String>,
}

/// What became of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Other rules are in force.
    Taken,
    /// They are the same.
    Same,
    /// They are wrong; said already, or not.
    Refused { new: bool },
}

// === impl InForce ===

impl InForce {
    /// Puts the first rules in force.
    pub(super) fn new(first: Loaded, file: Option<PathBuf>, table: &Table) -> Arc<Self> {
        let Loaded { rulebook, shown } = first;
        let classes = Arc::new(Classes::new(rulebook.limits.clone(), rulebook.classes.clone(), None));
        table.reclassify(Arc::clone(&classes).classify());
        let state = Mutex::new(State { rulebook, classes, shown, error: None });
        Arc::new(Self { file, taken: AtomicU64::new(0), refused: AtomicU64::new(0), state })
    }

    /// The file that they come from.
    pub(super) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// How many times other rules were taken, and refused.
    pub(super) fn reloads(&self) -> (u64, u64) {
        (self.taken.load(Relaxed), self.refused.load(Relaxed))
    }

    /// What is wrong with the file, where its rules are not those in force.
    pub(super) fn error(&self) -> Option<String> {
        self.lock().error.clone()
    }

    /// The configuration in force, as TOML.
    pub(super) fn shown(&self) -> String {
        self.lock().shown.clone()
    }

    /// The names of the classes, in their order.
    pub(super) fn classes(&self) -> Vec<String> {
        self.lock().rulebook.classes.iter().map(|class| class.name.clone()).collect()
    }

    fn take(&self, loaded: Result<Loaded, String>, table: &Table) -> Outcome {
        let mut state = self.lock();
        match loaded {
            Err(error) => {
                let new = state.error.as_ref() != Some(&error);
                if new {
                    self.refused.fetch_add(1, Relaxed);
                }
                state.error = Some(error);
                Outcome::Refused { new }
            }
            Ok(Loaded { rulebook, shown }) => {
                state.error = None;
                // The same rules may have come from elsewhere, and that is shown too.
                state.shown = shown;
                if rulebook == state.rulebook {
                    return Outcome::Same;
                }
                let classes = Classes::new(rulebook.limits.clone(), rulebook.classes.clone(), Some(&state.classes));
                state.classes = Arc::new(classes);
                state.rulebook = rulebook;
                table.reclassify(Arc::clone(&state.classes).classify());
                self.taken.fetch_add(1, Relaxed);
                Outcome::Taken
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the rules as their file has them, for ever.
pub(super) async fn keep(rules: &InForce, reload: Option<&Reload>, table: &Table, hangups: &mut Signal) -> Infallible {
    let mut changes = None;
    loop {
        if let (Some(reload), None) = (reload, &changes) {
            changes = watch(&reload.file);
        }
        let asked = tokio::select! {
            _ = hangups.recv() => true,
            () = changed(&mut changes) => false,
        };
        let Some(Reload { load, file }) = reload else {
            tracing::info!("SIGHUP: there is no configuration file to read again");
            continue;
        };
        let load = Arc::clone(load);
        let Ok(loaded) = tokio::task::spawn_blocking(move || load()).await else { continue };
        let error = loaded.as_ref().err().cloned().unwrap_or_default();
        let file = file.display();
        match rules.take(loaded, table) {
            Outcome::Taken => tracing::info!(%file, classes = rules.classes().len(), "other rules for clients are in force"),
            Outcome::Same if asked => tracing::info!(%file, "SIGHUP: the rules for clients are the same"),
            Outcome::Refused { new } if new || asked => {
                tracing::error!(%file, "the new rules are wrong, the old ones stay in force: {error}");
            }
            Outcome::Same | Outcome::Refused { .. } => {}
        }
    }
}

/// Whatever happens in the file's directory: it may be renamed into place, or be a link whose target is swapped there. `None` where that
/// cannot be watched; then SIGHUP alone helps.
fn watch(file: &Path) -> Option<EventStream<[u8; 4096]>> {
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mask = WatchMask::CLOSE_WRITE
        | WatchMask::CREATE
        | WatchMask::DELETE
        | WatchMask::MOVE
        | WatchMask::DELETE_SELF
        | WatchMask::MOVE_SELF;
    let started = Inotify::init().and_then(|inotify| {
        inotify.watches().add(dir, mask)?;
        inotify.into_event_stream([0; 4096])
    });
    match started {
        Ok(stream) => Some(stream),
        Err(error) => {
            tracing::debug!(dir = %dir.display(), %error, "changes of the configuration file are not seen; SIGHUP has it read again");
            None
        }
    }
}

/// Waits for a change, and until it is quiet again. Without anything to watch: for ever.
async fn changed(changes: &mut Option<EventStream<[u8; 4096]>>) {
    let Some(stream) = changes else { return std::future::pending().await };
    let mut watched = stays(stream.next().await.as_ref());
    let settle = async {
        while watched && let Ok(event) = timeout(QUIET, stream.next()).await {
            watched = stays(event.as_ref());
        }
    };
    // Never quiet: it is read all the same.
    let _ = timeout(AT_LAST, settle).await;
    if !watched {
        *changes = None;
    }
}

/// Whether the directory is still the one that is watched after this event.
fn stays(event: Option<&io::Result<Event<OsString>>>) -> bool {
    let gone = EventMask::IGNORED | EventMask::DELETE_SELF | EventMask::MOVE_SELF | EventMask::UNMOUNT;
    matches!(event, Some(Ok(Event { mask, .. })) if !mask.intersects(gone))
}

// === impl Reload ===

impl fmt::Debug for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reload").field("file", &self.file).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "reload_tests.rs"]
mod tests;
