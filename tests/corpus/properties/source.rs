//! Choices drawn from an input's bytes: what it lacks is zero, so that every input is a whole one.

/// What is left of an input.
pub(crate) struct Source<'a>(pub(crate) &'a [u8]);

// === impl Source ===

impl<'a> Source<'a> {
    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// At most so many bytes.
    pub(crate) fn take(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u8) -> u8 {
        self.byte() % end
    }

    /// A piece whose length, below 256, stands before it.
    pub(crate) fn piece(&mut self) -> &'a [u8] {
        let most = self.byte().into();
        self.take(most)
    }

    /// The input in two, where its first two bytes say.
    pub(crate) fn halves(&mut self) -> (&'a [u8], &'a [u8]) {
        let at = usize::from(self.byte()) << 8 | usize::from(self.byte());
        let first = self.take(at);
        (first, std::mem::take(&mut self.0))
    }
}
