//! Puts the gRPC length prefix before messages once, so that serving them is no work.

use bytes::Bytes;

use super::wire::Malformed;
use crate::grpc::{PREFIX_LEN, prefix};

/// Many framed messages in one allocation; each is a slice of it, counted by reference.
#[derive(Debug)]
pub(super) struct Arena {
    bytes: Vec<u8>,
}

/// `message` with its prefix.
pub(super) fn frame(message: &[u8]) -> Result<Bytes, Malformed> {
    let mut arena = Arena::with_room(1, message.len());
    arena.push(message)?;
    Ok(arena.finish())
}

/// The message behind the prefix.
pub(super) fn unframed(framed: &[u8]) -> &[u8] {
    framed.get(PREFIX_LEN..).unwrap_or_default()
}

// === impl Arena ===

impl Arena {
    /// Room for exactly `messages` messages of `bytes` bytes together.
    pub(super) fn with_room(messages: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(messages * PREFIX_LEN + bytes) }
    }

    /// Appends `message` with its prefix; gives where it begins, prefix included.
    pub(super) fn push(&mut self, message: &[u8]) -> Result<usize, Malformed> {
        let len = u32::try_from(message.len()).map_err(|_| Malformed::TooLong { len: message.len() })?;
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&prefix(len));
        self.bytes.extend_from_slice(message);
        Ok(start)
    }

    /// All of it, no longer growing.
    pub(super) fn finish(self) -> Bytes {
        self.bytes.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_the_prefix_and_the_message() {
        assert_eq!(frame(b"abc").unwrap()[..], [0, 0, 0, 0, 3, b'a', b'b', b'c']);
        assert_eq!(unframed(&frame(b"abc").unwrap()), b"abc");
        assert_eq!(frame(b"").unwrap()[..], [0; 5]);
    }

    #[test]
    fn an_arena_lays_frames_one_after_another() {
        let mut arena = Arena::with_room(2, 3);
        assert_eq!(arena.push(b"ab"), Ok(0));
        assert_eq!(arena.push(b"c"), Ok(7));
        assert_eq!(arena.finish()[..], [0, 0, 0, 0, 2, b'a', b'b', 0, 0, 0, 0, 1, b'c']);
    }
}
