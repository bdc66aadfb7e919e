//! Finds the header blocks in the bytes that an HTTP/2 client sends (RFC 9113, sections 3.4, 4.1, 6.2 and 6.10).

use super::Malformed;
use super::hpack::Walker;

/// The walk over a connection's bytes, from the preface on. It can stop and go on between any two bytes, and the outcome does not depend
/// on where. Every other frame is passed over by its length.
///
/// Whatever is malformed ends the mending: the bytes pass as they are from there on, for `h2` to refuse.
#[derive(Debug, Default)]
pub struct Frames {
    step: Step,
    head: [u8; HEAD_LEN],
    /// Bytes of padding after the fragment.
    padding: u8,
    /// The block ends with this fragment (`END_HEADERS`).
    ends: bool,
    /// A block has begun and not ended.
    open: bool,
    walker: Walker,
}

/// What the next byte belongs to.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The preface, of which so many bytes have passed.
    Preface(usize),
    /// A frame's head, of which so many bytes have passed.
    Head(usize),
    /// What stands before a HEADERS frame's fragment; then so many bytes, padding included.
    Before { padded: bool, priority: u8, rest: u32 },
    /// The fragment of a header block.
    Fragment { left: u32, begun: bool },
    /// What is of no interest.
    Skip(u32),
    /// All that is to come.
    Pass,
}

const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD_LEN: usize = 9;
const PRIORITY_LEN: u8 = 5;

const HEADERS: u8 = 1;
const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;

const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

// === impl Frames ===

impl Default for Step {
    fn default() -> Self {
        Self::Preface(0)
    }
}

impl Frames {
    /// Mends `bytes[from..]`, the next that came. `from` is 1 where the last byte of the call before is shown again at `bytes[0]`, which
    /// is asked for by [`Self::may_reach_back`]; else 0.
    pub fn mend(&mut self, bytes: &mut [u8], from: usize) {
        if self.walk(bytes, from).is_err() {
            self.step = Step::Pass;
        }
    }

    /// Whether the next byte may change the last one, so that the last one must not be given away yet.
    pub fn may_reach_back(&self) -> bool {
        matches!(self.step, Step::Fragment { begun: true, .. }) && self.walker.may_reach_back()
    }

    fn walk(&mut self, bytes: &mut [u8], from: usize) -> Result<(), Malformed> {
        let mut at = from;
        while let Some(rest @ [byte, ..]) = bytes.get(at..) {
            match self.step {
                Step::Pass => return Ok(()),
                Step::Skip(left) => {
                    let (skipped, left) = split(left, rest.len());
                    at += skipped;
                    self.step = if left == 0 { Step::Head(0) } else { Step::Skip(left) };
                }
                Step::Head(had) => {
                    let count = rest.len().min(HEAD_LEN - had);
                    self.head[had..had + count].copy_from_slice(&rest[..count]);
                    at += count;
                    self.step = Step::Head(had + count);
                    if had + count == HEAD_LEN {
                        self.begin()?;
                    }
                }
                Step::Before { padded: true, priority, rest } => {
                    self.padding = *byte;
                    at += 1;
                    self.before(priority, rest.checked_sub(u32::from(*byte)).ok_or(Malformed)?)?;
                }
                Step::Before { padded: false, priority, rest } => {
                    at += 1;
                    self.before(priority - 1, rest)?;
                }
                Step::Fragment { left, begun } => {
                    let (count, left) = split(left, rest.len());
                    // Only a byte of this same fragment may be changed afterwards.
                    let back = usize::from(begun && at > 0);
                    self.walker.walk(&mut bytes[at - back..at + count], back)?;
                    at += count;
                    self.fragment(left, true)?;
                }
                Step::Preface(had) => {
                    let count = rest.len().min(PREFACE.len() - had);
                    if rest[..count] != PREFACE[had..had + count] {
                        return Err(Malformed);
                    }
                    at += count;
                    self.step = if had + count == PREFACE.len() { Step::Head(0) } else { Step::Preface(had + count) };
                }
            }
        }
        Ok(())
    }

    /// A frame begins, whose head is whole.
    fn begin(&mut self) -> Result<(), Malformed> {
        let [a, b, c, kind, flags, ..] = self.head;
        let len = u32::from_be_bytes([0, a, b, c]);
        self.padding = 0;
        match kind {
            CONTINUATION if self.open => {
                self.ends = flags & END_HEADERS != 0;
                self.fragment(len, false)
            }
            // Nothing may stand between a block's fragments; a client must not push.
            CONTINUATION | PUSH_PROMISE => Err(Malformed),
            _ if self.open => Err(Malformed),
            HEADERS => {
                self.ends = flags & END_HEADERS != 0;
                self.open = true;
                self.walker.begin();
                let padded = flags & PADDED != 0;
                let priority = if flags & PRIORITY != 0 { PRIORITY_LEN } else { 0 };
                let rest = len.checked_sub(u32::from(padded) + u32::from(priority)).ok_or(Malformed)?;
                if padded {
                    self.step = Step::Before { padded, priority, rest };
                    return Ok(());
                }
                self.before(priority, rest)
            }
            _ => {
                self.step = if len == 0 { Step::Head(0) } else { Step::Skip(len) };
                Ok(())
            }
        }
    }

    /// The padding's length is known; so many bytes of priority are to come, and of the fragment.
    fn before(&mut self, priority: u8, rest: u32) -> Result<(), Malformed> {
        if priority == 0 {
            return self.fragment(rest, false);
        }
        self.step = Step::Before { padded: false, priority, rest };
        Ok(())
    }

    /// So many bytes of the fragment are to come.
    fn fragment(&mut self, left: u32, begun: bool) -> Result<(), Malformed> {
        if left > 0 {
            self.step = Step::Fragment { left, begun };
            return Ok(());
        }
        if self.ends {
            if !self.walker.may_end() {
                return Err(Malformed);
            }
            self.open = false;
        }
        self.step = if self.padding == 0 { Step::Head(0) } else { Step::Skip(self.padding.into()) };
        Ok(())
    }
}

/// How many of `left` bytes there are among `have`, and how many are left then.
#[expect(clippy::cast_possible_truncation, reason = "less than `left`, which is a u32")]
fn split(left: u32, have: usize) -> (usize, u32) {
    match usize::try_from(left) {
        Ok(left) if left <= have => (left, 0),
        _ => (have, left - have as u32),
    }
}
