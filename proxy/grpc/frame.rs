//! The length prefix before every gRPC message.

use bytes::{Bytes, BytesMut};

/// Bytes before each message: one of flags (0: not compressed), four of length, big-endian.
pub const PREFIX_LEN: usize = 5;

/// The prefix of an uncompressed message of `len` bytes.
#[must_use]
pub const fn prefix(len: u32) -> [u8; PREFIX_LEN] {
    let [a, b, c, d] = len.to_be_bytes();
    [0, a, b, c, d]
}

/// A message with its prefix before it; `None` where it is longer than a prefix can say (4 GiB).
#[must_use]
pub fn frame_message(message: &[u8]) -> Option<Bytes> {
    let len = u32::try_from(message.len()).ok()?;
    let mut framed = BytesMut::with_capacity(PREFIX_LEN + message.len());
    framed.extend_from_slice(&prefix(len));
    framed.extend_from_slice(message);
    Some(framed.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_zero_flag_and_the_big_endian_length() {
        assert_eq!(prefix(0), [0; 5]);
        assert_eq!(prefix(0x0102_0304), [0, 1, 2, 3, 4]);
    }
}
