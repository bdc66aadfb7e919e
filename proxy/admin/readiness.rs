//! Readiness as latches: ready when none is held. Also standing notes, which tell and do not block.

use std::borrow::Cow;

use tokio::sync::watch;

use super::status;

/// Who must still open before we are ready. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    state: watch::Sender<State>,
}

/// Keeps us from being ready until it is opened or dropped. Dropped by a panic it stays held, since what it stood for never came.
#[derive(Debug)]
#[must_use = "a latch that is dropped at once holds nothing"]
pub struct Latch {
    readiness: Readiness,
    id: u64,
}

#[derive(Debug, Default)]
struct State {
    /// The id of the next latch.
    next: u64,
    /// Oldest first.
    held: Vec<(u64, status::Waiting)>,
    notes: Vec<Cow<'static, str>>,
}

// === impl Readiness ===

impl Readiness {
    /// Ready, as long as nobody takes a latch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Holds readiness back under this name.
    pub fn latch(&self, name: impl Into<String>) -> Latch {
        let waiting = status::Waiting { name: name.into(), reason: None };
        let mut id = 0;
        self.state.send_modify(|state| {
            id = state.next;
            state.next += 1;
            state.held.push((id, waiting));
        });
        Latch { readiness: self.clone(), id }
    }

    /// Adds a standing note, said with every answer: "no hostPID: …". The same note twice is one.
    pub fn note(&self, text: impl Into<Cow<'static, str>>) {
        let text = text.into();
        self.state.send_if_modified(|state| {
            let new = !state.notes.contains(&text);
            if new {
                state.notes.push(text);
            }
            new
        });
    }

    /// Whether no latch is held now.
    pub fn is_ready(&self) -> bool {
        self.state.borrow().held.is_empty()
    }

    /// Returns once no latch is held.
    pub async fn ready(&self) {
        let mut changes = self.state.subscribe();
        // The only error is "every sender is gone", and `self` is one.
        let _ready = changes.wait_for(|state| state.held.is_empty()).await;
    }

    /// The latches still held, oldest first, and the notes.
    pub fn report(&self) -> status::Readiness {
        let state = self.state.borrow();
        status::Readiness {
            ready: state.held.is_empty(),
            waiting_for: state.held.iter().map(|(_, waiting)| waiting.clone()).collect(),
            notes: state.notes.iter().map(|note| note.clone().into_owned()).collect(),
        }
    }
}

// === impl Latch ===

impl Latch {
    /// Says what is being waited for, or what went wrong last; replaces what was said before.
    pub fn because(&self, reason: impl Into<String>) {
        let reason = reason.into();
        self.readiness.state.send_modify(|state| {
            if let Some((_, waiting)) = state.held.iter_mut().find(|(id, _)| *id == self.id) {
                waiting.reason = Some(reason);
            }
        });
    }

    /// Holds no longer; the same as dropping it, said aloud.
    pub fn open(self) {}
}

impl Drop for Latch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.because("what should have opened this panicked");
        } else {
            self.readiness.state.send_modify(|state| state.held.retain(|(id, _)| *id != self.id));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::Poll;

    use super::*;

    fn held(readiness: &Readiness) -> Vec<(String, Option<String>)> {
        readiness.report().waiting_for.into_iter().map(|waiting| (waiting.name, waiting.reason)).collect()
    }

    #[test]
    fn ready_when_the_last_latch_is_open_in_whatever_order() {
        let readiness = Readiness::new();
        assert!(readiness.is_ready());
        let capture = readiness.latch("first capture");
        let socket = readiness.clone().latch("socket");
        capture.because("dialling");
        capture.because("connection refused");
        assert_eq!(held(&readiness), [("first capture".into(), Some("connection refused".into())), ("socket".into(), None)]);
        drop(socket);
        assert!(!readiness.is_ready());
        capture.open();
        assert!(readiness.is_ready());
        let again = readiness.latch("source too old");
        assert!(!readiness.is_ready());
        again.open();
    }

    #[test]
    fn a_latch_that_a_panic_dropped_stays_held() {
        let readiness = Readiness::new();
        let latch = readiness.latch("worker");
        let ended = std::thread::spawn(move || {
            let _latch = latch;
            panic!("on purpose");
        });
        assert!(ended.join().is_err());
        assert_eq!(held(&readiness), [("worker".into(), Some("what should have opened this panicked".into()))]);
    }

    #[test]
    fn notes_do_not_block_and_are_kept_once() {
        let readiness = Readiness::new();
        readiness.note("no hostPID");
        readiness.note("no hostPID");
        assert!(readiness.is_ready());
        assert_eq!(readiness.report().notes, ["no hostPID"]);
    }

    async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
        std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx))).await
    }

    #[tokio::test]
    async fn whoever_waits_for_readiness_wakes_when_the_last_latch_opens() {
        let readiness = Readiness::new();
        let (one, two) = (readiness.latch("one"), readiness.latch("two"));
        let mut ready = std::pin::pin!(readiness.ready());
        assert!(poll_once(&mut ready).await.is_pending());
        one.open();
        assert!(poll_once(&mut ready).await.is_pending());
        two.open();
        assert!(poll_once(&mut ready).await.is_ready());
    }
}
