//! Which source an operator wants, told from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::Notify;

/// What an operator wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wish {
    /// The kubelet while it answers, else the host.
    #[default]
    Auto,
    /// The kubelet, whatever it does.
    Kubelet,
    /// The host.
    Host,
}

/// Takes the wish. A clone shares everything.
#[derive(Clone, Debug, Default)]
pub struct Board(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    wish: AtomicU8,
    stirred: Notify,
}

// === impl Wish ===

impl Wish {
    const ALL: [Self; 3] = [Self::Auto, Self::Kubelet, Self::Host];

    /// As it is typed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Kubelet => "kubelet",
            Self::Host => "host",
        }
    }

    /// Reads one; `None`: there is no such.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|wish| wish.name() == text)
    }
}

// === impl Board ===

impl Board {
    /// What is wanted now.
    #[must_use]
    pub fn wish(&self) -> Wish {
        Wish::ALL[usize::from(self.0.wish.load(Ordering::Acquire)) % Wish::ALL.len()]
    }

    /// From now on this is wanted.
    pub fn want(&self, wish: Wish) {
        self.0.wish.store(wish as u8, Ordering::Release);
        self.stir();
    }

    /// There may be reason to switch.
    pub(super) fn stir(&self) {
        self.0.stirred.notify_one();
    }

    pub(super) async fn stirred(&self) {
        self.0.stirred.notified().await;
    }
}
