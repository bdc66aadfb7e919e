//! Which characters of an `:authority` `http::uri::Authority` refuses, and what stands in for them.
//!
//! One pass, no look-ahead: a character is judged by what came before it. So the first colon stays and later ones go, a bracket stays
//! only as the first character, and `@` always goes: userinfo has no place in `:authority` (RFC 9113, section 8.3.1). An
//! authority that is valid by RFC 3986, without userinfo, is never changed.
//!
//! What stays refused: a bracket that is opened and never closed, in Huffman code; and, in Huffman code, a character with no accepted
//! one of the same length (`#`, `<`, `>`, `\`, `^`, a backtick, braces, control characters and what is not ASCII). Encoders send what is
//! not ASCII plain, since its codes are longer than its bytes.

use super::Malformed;
use super::huffman::{self, Bits};

/// What has been seen of one value.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Authority {
    begun: bool,
    bracket: Bracket,
    colons: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Bracket {
    #[default]
    None,
    Open,
    Closed,
}

/// The most colons that `http` takes between brackets.
const BRACKET_COLONS: u8 = 8;

/// What a refused character becomes where it is not Huffman-coded.
const PLAIN: u8 = b'-';

// === impl Authority ===

impl Authority {
    /// Mends a piece of a value that is not Huffman-coded. `ends`: the piece is the value's last.
    pub(super) fn mend_plain(&mut self, bytes: &mut [u8], ends: bool) {
        let count = bytes.len();
        for (at, byte) in bytes.iter_mut().enumerate() {
            let last = ends && at + 1 == count;
            if last && !self.begun && *byte == b'[' {
                *byte = PLAIN;
            }
            if self.refuses(*byte) {
                *byte = PLAIN;
            }
            if last && self.bracket == Bracket::Open {
                *byte = b']';
            }
        }
    }

    /// Mends `bytes[from..to]`, a piece of a Huffman-coded value, and counts the characters that end in it. `bytes[..from]` is what came
    /// just before it on the wire: its last byte may hold bits of the first character, and may be changed.
    pub(super) fn mend_huffman(&mut self, bits: &mut Bits, bytes: &mut [u8], from: usize, to: usize) -> Result<u32, Malformed> {
        let mut count = 0;
        for at in from..to {
            let (mut here, mut before) = (0, 0);
            bits.take(bytes[at], |symbol, after| {
                count += 1;
                let open = self.bracket == Bracket::Open;
                if !self.refuses(symbol) {
                    return;
                }
                let Some(other) = stand_in(symbol, open) else { return };
                let [.., high, low] = ((huffman::code(symbol).0 ^ huffman::code(other).0) << after).to_be_bytes();
                if high == 0 || at > 0 {
                    here ^= low;
                    before ^= high;
                }
            })?;
            bytes[at] ^= here;
            if before != 0 {
                bytes[at - 1] ^= before;
            }
            let mask = self.foregone(*bits);
            bytes[at] ^= mask;
            bits.turn(mask);
        }
        Ok(count)
    }

    /// Which of the last bits to turn over because whatever character they begin will be refused, and its last bit alone, in the next
    /// byte, could not mend it.
    fn foregone(self, bits: Bits) -> u8 {
        match bits.begun() {
            // A space or `%`; with this, `-` or `.`.
            (0b01010, 5) if self.bracket != Bracket::Open => 0b01,
            // `@` or `[`; with this, `]` or `~`.
            (0b1111_1111_1101, 12) => 0b11,
            _ => 0,
        }
    }

    /// Whether `bits` begin a character whose stand-in may differ in more than the bits to come.
    pub(super) fn may_reach_back(bits: Bits) -> bool {
        matches!(bits.begun().1, 8..=10)
    }

    fn refuses(&mut self, char: u8) -> bool {
        let first = !std::mem::replace(&mut self.begun, true);
        let open = self.bracket == Bracket::Open;
        match char {
            b'[' if first => self.bracket = Bracket::Open,
            b']' if open => {
                self.bracket = Bracket::Closed;
                self.colons = 0;
            }
            b':' if self.colons < if open { BRACKET_COLONS } else { 1 } => self.colons += 1,
            // A zone (RFC 6874).
            b'%' => return !open,
            b'!' | b'$' | b'&'..=b'.' | b';' | b'=' | b'_' | b'~' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => {}
            _ => return true,
        }
        false
    }
}

/// The accepted character that stands in for a refused one in Huffman code: its code is as long, and differs as late as can be.
const fn stand_in(char: u8, open: bool) -> Option<u8> {
    Some(match char {
        b'/' => b'3',
        b'%' => b'.',
        b' ' if open => b'%',
        b' ' => b'-',
        b':' => b'B',
        b'?' => b')',
        b'"' => b'!',
        b'|' => b'+',
        b'@' | b'[' | 0 => b'$',
        b']' => b'~',
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stand_in_is_accepted_and_its_code_is_as_long() {
        for open in [false, true] {
            for char in 0..=u8::MAX {
                let Some(other) = stand_in(char, open) else { continue };
                assert_eq!(huffman::code(char).1, huffman::code(other).1, "{char}");
                let mut rule = Authority { begun: true, bracket: if open { Bracket::Open } else { Bracket::None }, colons: 0 };
                assert!(!rule.refuses(other), "{char}");
            }
        }
    }

    #[test]
    fn every_refused_character_has_a_stand_in_where_any_accepted_one_is_as_long() {
        let mut rule = Authority { begun: true, ..Authority::default() };
        let accepted: Vec<u8> = (0..=u8::MAX).filter(|char| *char != b':' && !rule.refuses(*char)).collect();
        for char in (0..=u8::MAX).filter(|char| !accepted.contains(char)) {
            let possible = accepted.iter().any(|other| huffman::code(*other).1 == huffman::code(char).1);
            assert_eq!(stand_in(char, false).is_some(), possible, "{char}");
        }
    }
}
