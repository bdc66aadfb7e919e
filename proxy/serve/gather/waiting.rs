//! What waits to be written, in order: bytes that were copied, and pieces of ready-made answers that were not.
//!
//! `h2` hands its writer plain slices, so who owns them is not told. But nearly all bytes of a large reply lie in one of a few answers
//! that every client gets: [`offer`] remembers those per thread, and a slice that lies in one of them is kept as a reference to it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::Bytes;

/// Slices shorter than this are copied: that is cheaper than keeping track of them.
const SHORTEST_SHARED: usize = 1024;
/// How many answers are remembered. List, GetAllocatableResources and v1alpha1 List, with one of them just replaced.
const OFFERED: usize = 4;
/// The smallest buffer that is allocated for copies.
const SMALLEST: usize = 4 * 1024;
/// Most slices in one write; a reply of 128 KiB has 18 (`UIO_FASTIOV` is 8, `IOV_MAX` 1,024).
pub(super) const SLICES: usize = 32;

/// A queue of bytes.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pieces: VecDeque<Piece>,
    /// The copied pieces one after the other, those already written from the front included.
    copies: Vec<u8>,
    /// How much of `copies` has been written.
    written: usize,
    len: usize,
}

#[derive(Debug)]
enum Piece {
    /// So many bytes of `copies`.
    Copied(usize),
    Shared(Bytes),
}

thread_local! {
    /// What the next connection to write takes, and gives back when it is empty again: most do within one poll.
    static SPARE: Cell<Waiting> = const { Cell::new(Waiting { pieces: VecDeque::new(), copies: Vec::new(), written: 0, len: 0 }) };
    /// The answers handed out last, and where the next goes.
    static ANSWERS: RefCell<([Bytes; OFFERED], usize)> = const { RefCell::new(([const { Bytes::new() }; OFFERED], 0)) };
}

/// Says that these bytes are about to be written, on this thread, and may be kept instead of copied. They are remembered until so many
/// others have been offered.
pub fn offer(answer: &Bytes) {
    if answer.len() < SHORTEST_SHARED {
        return;
    }
    ANSWERS.with_borrow_mut(|(answers, next)| {
        if !answers.iter().any(|known| known.as_ptr_range() == answer.as_ptr_range()) {
            answers[*next] = answer.clone();
            *next = (*next + 1) % OFFERED;
        }
    });
}

/// The same bytes as a reference to an answer that they lie in.
fn shared(bytes: &[u8]) -> Option<Bytes> {
    if bytes.len() < SHORTEST_SHARED {
        return None;
    }
    let slice = bytes.as_ptr_range();
    ANSWERS.with_borrow(|(answers, _)| {
        answers.iter().find_map(|answer| {
            let whole = answer.as_ptr_range();
            (whole.start <= slice.start && slice.end <= whole.end).then(|| answer.slice_ref(bytes))
        })
    })
}

// === impl Waiting ===

impl Waiting {
    /// How many bytes wait.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Appends all of them.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.pieces.capacity() == 0 {
            *self = SPARE.take();
        }
        self.len += bytes.len();
        if let Some(shared) = shared(bytes) {
            self.pieces.push_back(Piece::Shared(shared));
            return;
        }
        // What was written makes room before the buffer grows.
        if self.written > 0 && self.copies.len() + bytes.len() > self.copies.capacity() {
            self.copies.drain(..self.written);
            self.written = 0;
        }
        let len = self.copies.len() + bytes.len();
        if len > self.copies.capacity() {
            self.copies.reserve_exact(len.next_power_of_two().max(SMALLEST) - self.copies.len());
        }
        self.copies.extend_from_slice(bytes);
        match self.pieces.back_mut() {
            Some(Piece::Copied(last)) => *last += bytes.len(),
            _ => self.pieces.push_back(Piece::Copied(bytes.len())),
        }
    }

    /// The first slices; how many of them are filled in.
    pub(super) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES]) -> usize {
        let mut copied = &self.copies[self.written..];
        let mut count = 0;
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            *slice = IoSlice::new(match piece {
                Piece::Shared(bytes) => bytes,
                Piece::Copied(len) => {
                    let (first, rest) = copied.split_at(*len);
                    copied = rest;
                    first
                }
            });
            count += 1;
        }
        count
    }

    /// So many bytes have been written, at most all that wait.
    pub(super) fn advance(&mut self, mut count: usize) {
        self.len -= count;
        while let Some(first) = self.pieces.front_mut() {
            let whole = match first {
                Piece::Copied(len) => *len,
                Piece::Shared(bytes) => bytes.len(),
            };
            let now = whole.min(count);
            match first {
                Piece::Copied(len) => {
                    *len -= now;
                    self.written += now;
                }
                Piece::Shared(bytes) => *bytes = bytes.split_off(now),
            }
            count -= now;
            if now < whole {
                break;
            }
            self.pieces.pop_front();
        }
        if self.len == 0 {
            self.clear();
        }
    }

    /// Forgets what waits, and gives the buffers back.
    pub(super) fn clear(&mut self) {
        let mut buffers = std::mem::take(self);
        if buffers.pieces.capacity() > 0 {
            buffers.pieces.clear();
            buffers.copies.clear();
            (buffers.written, buffers.len) = (0, 0);
            SPARE.set(buffers);
        }
    }

    /// Bytes of buffer that are held.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.copies.capacity() + self.pieces.capacity()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn content(waiting: &Waiting) -> Vec<u8> {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let count = waiting.slices(&mut slices);
        slices[..count].iter().flat_map(|slice| slice.iter().copied()).collect()
    }

    #[test]
    fn a_slice_of_an_offered_answer_is_not_copied() {
        let answer = Bytes::from(vec![7; 3 * SHORTEST_SHARED]);
        offer(&answer);
        let mut waiting = Waiting::default();
        waiting.push(b"head");
        waiting.push(&answer[1..=2 * SHORTEST_SHARED]);
        let mut slices = [IoSlice::new(&[]); SLICES];
        assert_eq!(waiting.slices(&mut slices), 2);
        assert_eq!(slices[1].as_ptr(), answer[1..].as_ptr());
        assert_eq!(slices[1].len(), 2 * SHORTEST_SHARED);
    }

    #[test]
    fn only_the_last_answers_are_remembered() {
        let old = Bytes::from(vec![7; SHORTEST_SHARED]);
        offer(&old);
        for _ in 0..OFFERED {
            assert!(!old.is_unique());
            offer(&Bytes::from(vec![8; SHORTEST_SHARED]));
        }
        assert!(old.is_unique(), "nobody holds an answer for ever");
    }

    proptest! {
        #[test]
        fn what_is_pushed_comes_out_in_order_however_it_is_taken(
            steps in prop::collection::vec((0usize..3, 0usize..3000, 0usize..4000), 1..30)
        ) {
            let answer: Bytes = (0..6000u32).map(|n| n.to_le_bytes()[0]).collect::<Vec<_>>().into();
            offer(&answer);
            let (mut waiting, mut expected) = (Waiting::default(), VecDeque::new());
            for (kind, len, taken) in steps {
                let bytes = if kind == 0 { vec![9; len % 50] } else { answer[len..2 * len].to_vec() };
                // Two of three come from the answer itself, one of them in a copy that is not shared.
                waiting.push(if kind == 2 { &answer[len..2 * len] } else { &bytes });
                expected.extend(bytes);
                // At most SLICES pieces are ever shown at once.
                let shown = content(&waiting);
                let front: Vec<u8> = expected.iter().copied().take(shown.len()).collect();
                prop_assert_eq!(&shown, &front);
                let taken = taken.min(shown.len());
                waiting.advance(taken);
                expected.drain(..taken);
                prop_assert_eq!(waiting.len(), expected.len());
            }
        }
    }
}
