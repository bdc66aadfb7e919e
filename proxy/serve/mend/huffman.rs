//! The Huffman code of HPACK (RFC 7541, section 5.2 and appendix B), read bit by bit across byte boundaries.
//!
//! The code is canonical: the lengths alone give every code. Nothing is written out here; callers count symbols or look at them.

use super::Malformed;

/// Where decoding stands between two bytes: the bits of a code that has begun.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bits {
    code: u32,
    len: u8,
}

/// How many bits each byte's code has (RFC 7541, appendix B).
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28,
    28, //
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, //
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, //
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, //
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23,
    24, //
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22,
    23, //
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27,
    27, //
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27,
    26, //
];

const SHORTEST: u8 = 5;
const LONGEST: u8 = 30;

/// A symbol and its code's length; a length of 0 stands for "longer than eight bits".
type Short = (u8, u8);

struct Code {
    /// Each byte's code, in the low bits.
    codes: [u32; 256],
    /// The bytes in the order of their codes.
    symbols: [u8; 256],
    /// By length: the first code.
    first: [u32; 31],
    /// By length: one more than the last code.
    limit: [u32; 31],
    /// By length: where its symbols begin in `symbols`.
    offset: [usize; 31],
    /// By the next eight bits: the symbol they begin with.
    short: [Short; 256],
}

static CODE: Code = Code::new();

/// The code of `byte` and its length in bits.
pub(super) const fn code(byte: u8) -> (u32, u8) {
    (CODE_OF[byte as usize], LENGTHS[byte as usize])
}

const CODE_OF: [u32; 256] = Code::new().codes;

// === impl Code ===

impl Code {
    #[expect(clippy::cast_possible_truncation, reason = "symbols and lengths are below 256")]
    const fn new() -> Self {
        let mut this =
            Self { codes: [0; 256], symbols: [0; 256], first: [0; 31], limit: [0; 31], offset: [0; 31], short: [(0, 0); 256] };
        let mut code = 0;
        let mut at = 0;
        let mut len = 1;
        while len <= LONGEST as usize {
            code <<= 1;
            this.first[len] = code;
            this.offset[len] = at;
            let mut symbol = 0;
            while symbol < 256 {
                if LENGTHS[symbol] as usize == len {
                    this.symbols[at] = symbol as u8;
                    this.codes[symbol] = code;
                    let mut fill = 0;
                    while len <= 8 && fill < 1 << (8 - len) {
                        this.short[((code as usize) << (8 - len)) + fill] = (symbol as u8, len as u8);
                        fill += 1;
                    }
                    at += 1;
                    code += 1;
                }
                symbol += 1;
            }
            this.limit[len] = code;
            len += 1;
        }
        this
    }

    /// The symbol that the last `have` bits of `bits` begin with, where it is complete.
    #[expect(clippy::cast_possible_truncation, reason = "masked, or compared with a limit that fits")]
    fn first_of(&self, bits: u64, have: u8) -> Option<Short> {
        let next = if have >= 8 { bits >> (have - 8) } else { bits << (8 - have) } as u8;
        let short = self.short[usize::from(next)];
        if short.1 != 0 {
            return (short.1 <= have).then_some(short);
        }
        (9..=have.min(LONGEST)).find_map(|len| {
            let at = usize::from(len);
            let code = (bits >> (have - len)) as u32;
            (code < self.limit[at]).then(|| (self.symbols[self.offset[at] + (code - self.first[at]) as usize], len))
        })
    }
}

// === impl Bits ===

impl Bits {
    /// Reads one byte more. `each` gets every symbol that ends in it, and how many of the byte's bits come after that symbol.
    #[expect(clippy::cast_possible_truncation, reason = "fewer than 30 bits are left over")]
    pub(super) fn take(&mut self, byte: u8, mut each: impl FnMut(u8, u8)) -> Result<(), Malformed> {
        let mut bits = u64::from(self.code) << 8 | u64::from(byte);
        let mut have = self.len + 8;
        while have >= SHORTEST {
            let Some((symbol, len)) = CODE.first_of(bits, have) else { break };
            have -= len;
            bits &= (1 << have) - 1;
            each(symbol, have);
        }
        // Thirty bits that are no symbol: the end-of-string code, which must not be sent.
        if have >= LONGEST {
            return Err(Malformed);
        }
        (self.code, self.len) = (bits as u32, have);
        Ok(())
    }

    /// The bits of the code that has begun, and how many they are.
    pub(super) fn begun(self) -> (u32, u8) {
        (self.code, self.len)
    }

    /// Takes the begun code as having been sent with these bits turned over.
    pub(super) fn turn(&mut self, mask: u8) {
        self.code ^= u32::from(mask);
    }
}
