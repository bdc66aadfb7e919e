//! The one message of a unary request, collected from the pieces in which it arrives.

use bytes::{Bytes, BytesMut};
use tonic::Code;

use super::{PREFIX_LEN, Status};

/// Why the bytes of a request are not one message. Texts for people; the two that grpc-go has words for use those.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnaryError {
    /// No byte at all.
    #[error("the request carries no message; a unary call has exactly one")]
    Missing,
    /// The stream ended within the prefix or the message.
    #[error("the request message is cut off: {have} bytes came of {need}")]
    CutOff {
        /// Bytes that came, prefix included.
        have: usize,
        /// Bytes that were announced, prefix included; the prefix alone where not even that came whole.
        need: usize,
    },
    /// Bytes after the message.
    #[error("the request carries more than one message; a unary call has exactly one")]
    TooMany,
    /// The flag says compressed, and no header says how.
    #[error("grpc: compressed flag set with identity or empty encoding")]
    Compressed,
    /// A flag byte that the protocol does not have.
    #[error("the request message begins with flag {0}; only 0 (not compressed) is understood")]
    Flag(u8),
    /// Longer than allowed.
    #[error("grpc: received message larger than max ({len} vs. {limit})")]
    TooLarge {
        /// Announced length in bytes.
        len: usize,
        /// Most bytes that are taken.
        limit: usize,
    },
}

/// Collects one message. A message that arrives whole, as almost all do, is not copied.
#[derive(Debug)]
pub struct Unary {
    limit: usize,
    held: Held,
}

#[derive(Debug)]
enum Held {
    Whole(Bytes),
    Pieces(BytesMut),
}

// === impl Unary ===

impl Unary {
    /// Takes messages of up to `limit` bytes.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { limit, held: Held::Whole(Bytes::new()) }
    }

    /// Adds a piece. Fails as soon as it is clear that no good message can come of it, so that no more than the limit is ever held.
    pub fn push(&mut self, piece: Bytes) -> Result<(), UnaryError> {
        match &mut self.held {
            Held::Whole(bytes) if bytes.is_empty() => *bytes = piece,
            Held::Whole(bytes) => {
                let mut pieces = BytesMut::with_capacity(bytes.len() + piece.len());
                pieces.extend_from_slice(bytes);
                pieces.extend_from_slice(&piece);
                self.held = Held::Pieces(pieces);
            }
            Held::Pieces(pieces) => pieces.extend_from_slice(&piece),
        }
        match self.announced()? {
            Some(len) if self.bytes().len() > PREFIX_LEN + len => Err(UnaryError::TooMany),
            _ => Ok(()),
        }
    }

    /// The message without its prefix, once the request has ended.
    pub fn finish(self) -> Result<Bytes, UnaryError> {
        let have = self.bytes().len();
        let need = PREFIX_LEN + self.announced()?.unwrap_or(0);
        match have {
            0 => Err(UnaryError::Missing),
            _ if have < need => Err(UnaryError::CutOff { have, need }),
            _ => Ok(match self.held {
                Held::Whole(bytes) => bytes,
                Held::Pieces(pieces) => pieces.freeze(),
            }
            .slice(PREFIX_LEN..)),
        }
    }

    /// The length that the prefix tells, once it is there.
    fn announced(&self) -> Result<Option<usize>, UnaryError> {
        let Some(&[flag, a, b, c, d]) = self.bytes().first_chunk::<PREFIX_LEN>() else { return Ok(None) };
        match flag {
            0 => {}
            1 => return Err(UnaryError::Compressed),
            other => return Err(UnaryError::Flag(other)),
        }
        let len = u32::from_be_bytes([a, b, c, d]) as usize;
        if len > self.limit { Err(UnaryError::TooLarge { len, limit: self.limit }) } else { Ok(Some(len)) }
    }

    fn bytes(&self) -> &[u8] {
        match &self.held {
            Held::Whole(bytes) => bytes,
            Held::Pieces(pieces) => pieces,
        }
    }
}

// === impl UnaryError ===

impl From<UnaryError> for Status {
    fn from(error: UnaryError) -> Self {
        let code = match error {
            UnaryError::TooLarge { .. } => Code::ResourceExhausted,
            _ => Code::Internal,
        };
        Self::new(code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(limit: usize, pieces: &[&'static [u8]]) -> Result<Bytes, UnaryError> {
        let mut unary = Unary::new(limit);
        for piece in pieces {
            unary.push(Bytes::from_static(piece))?;
        }
        unary.finish()
    }

    #[test]
    fn a_message_is_found_however_it_was_cut() {
        assert_eq!(collect(9, &[b"\0\0\0\0\0"]).unwrap(), "");
        assert_eq!(collect(9, &[b"\0\0\0\0\x03abc"]).unwrap(), "abc");
        assert_eq!(collect(9, &[b"\0", b"\0\0\0\x03a", b"", b"b", b"c"]).unwrap(), "abc");
    }

    #[test]
    fn a_whole_message_is_not_copied() {
        let piece = Bytes::from(b"\0\0\0\0\x03abc".to_vec());
        let at = piece.as_ptr() as usize;
        let mut unary = Unary::new(9);
        unary.push(piece).unwrap();
        assert_eq!(unary.finish().unwrap().as_ptr() as usize, at + PREFIX_LEN);
    }

    #[test]
    fn a_message_as_long_as_the_limit_is_taken_and_one_byte_more_is_not() {
        assert!(collect(3, &[b"\0\0\0\0\x03abc"]).is_ok());
        assert_eq!(collect(2, &[b"\0\0\0\0\x03abc"]), Err(UnaryError::TooLarge { len: 3, limit: 2 }));
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_the_message_comes() {
        let error = Unary::new(4096).push(Bytes::from_static(b"\0\xff\xff\xff\xff")).unwrap_err();
        assert_eq!(error.to_string(), "grpc: received message larger than max (4294967295 vs. 4096)");
    }

    #[test]
    fn nothing_a_cut_and_a_second_message_are_told_apart() {
        assert_eq!(collect(9, &[]), Err(UnaryError::Missing));
        assert_eq!(collect(9, &[b"\0\0"]), Err(UnaryError::CutOff { have: 2, need: 5 }));
        assert_eq!(collect(9, &[b"\0\0\0\0\x03ab"]), Err(UnaryError::CutOff { have: 7, need: 8 }));
        assert_eq!(collect(9, &[b"\0\0\0\0\0", b"\0\0\0\0\0"]), Err(UnaryError::TooMany));
    }

    #[test]
    fn flags_other_than_zero_are_refused() {
        assert_eq!(collect(9, &[b"\x01\0\0\0\0"]), Err(UnaryError::Compressed));
        assert_eq!(collect(9, &[b"\x80\0\0\0\0"]), Err(UnaryError::Flag(0x80)));
    }

    #[test]
    fn only_a_message_too_large_is_a_matter_of_resources() {
        assert_eq!(Status::from(UnaryError::TooLarge { len: 9, limit: 1 }).code, Code::ResourceExhausted);
        assert_eq!(Status::from(UnaryError::Missing).code, Code::Internal);
    }
}
