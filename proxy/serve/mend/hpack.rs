//! Walks the representations of an HPACK header block (RFC 7541, section 6), one byte or many at a time, and mends `:authority`.
//!
//! It keeps no bytes: what it must know later is a number or a flag. What it changes keeps its length, and its size in the table.

use super::Malformed;
use super::authority::Authority;
use super::huffman::Bits;
use super::order::Order;
use super::table::{Name, Table};

/// The walk over a connection's header blocks. Its state between two bytes is all there is.
#[derive(Debug, Default)]
pub(super) struct Walker {
    table: Table,
    step: Step,
    order: Order,
    /// The field in flight is to be inserted into the table.
    insert: bool,
    name: Name,
    name_len: u32,
    /// Its name was `:authority`, given by an index in one byte, the one before.
    brief: bool,
    text: Text,
    authority: Authority,
}

/// What the next byte is.
#[derive(Clone, Copy, Debug, Default)]
enum Step {
    /// The first of a representation.
    #[default]
    Field,
    /// One more of an integer (RFC 7541, section 5.1), of which `value` is known.
    Integer { number: Number, value: u32, shift: u8 },
    /// The first of a string literal.
    Length(Part),
    /// One of a string literal's text.
    Text(Part),
}

#[derive(Clone, Copy, Debug)]
enum Number {
    Field,
    Name,
    TableSize,
    Length(Part),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Name,
    Value,
}

/// A string literal in flight.
#[derive(Clone, Copy, Debug, Default)]
struct Text {
    /// Bytes to come.
    left: u32,
    huffman: bool,
    bits: Bits,
    /// Characters so far.
    count: u32,
    /// The first of them, where it is a name.
    start: [u8; Name::LONGEST],
}

/// The most bytes of an integer after its first: as many as `h2` takes.
const INTEGER_SHIFT_END: u8 = 28;

// === impl Walker ===

impl Walker {
    /// A header block begins.
    pub(super) fn begin(&mut self) {
        self.step = Step::Field;
        self.order = Order::default();
    }

    /// Whether the block may end here.
    pub(super) fn may_end(&self) -> bool {
        matches!(self.step, Step::Field)
    }

    /// Whether the next byte may make a change to the last one.
    pub(super) fn may_reach_back(&self) -> bool {
        match self.step {
            Step::Length(Part::Value) => self.brief && self.order.at_end(),
            Step::Text(Part::Value) => self.mends() && self.text.huffman && Authority::may_reach_back(self.text.bits),
            _ => false,
        }
    }

    /// Walks over `bytes[from..]`. `bytes[..from]` was walked over before and lies just before it in the same frame: its last byte may
    /// still be changed.
    pub(super) fn walk(&mut self, bytes: &mut [u8], from: usize) -> Result<(), Malformed> {
        let mut at = from;
        while let Some(&byte) = bytes.get(at) {
            match self.step {
                Step::Field => {
                    let (number, prefix) = self.field(byte);
                    self.begin_integer(number, byte, prefix, bytes, at)?;
                }
                Step::Length(part) => {
                    self.text = Text { huffman: byte & 0x80 != 0, ..Text::default() };
                    self.begin_integer(Number::Length(part), byte, 7, bytes, at)?;
                }
                Step::Integer { number, value, shift } => {
                    let value = value + (u32::from(byte & 0x7f) << shift);
                    let shift = shift + 7;
                    if byte & 0x80 == 0 {
                        self.end_integer(number, value, None)?;
                    } else if shift < INTEGER_SHIFT_END {
                        self.step = Step::Integer { number, value, shift };
                    } else {
                        return Err(Malformed);
                    }
                }
                Step::Text(part) => {
                    at = self.text(part, bytes, at)?;
                    continue;
                }
            }
            at += 1;
        }
        Ok(())
    }

    /// What a representation's first byte says: the meaning of the integer in it, and its bits.
    fn field(&mut self, byte: u8) -> (Number, u8) {
        self.insert = byte & 0xc0 == 0x40;
        match byte.leading_zeros() {
            0 => (Number::Field, 7),
            1 => (Number::Name, 6),
            2 => (Number::TableSize, 5),
            _ => (Number::Name, 4),
        }
    }

    fn begin_integer(&mut self, number: Number, byte: u8, prefix: u8, bytes: &mut [u8], at: usize) -> Result<(), Malformed> {
        let mask = (1 << prefix) - 1;
        let value = byte & mask;
        if value < mask {
            return self.end_integer(number, value.into(), Some((bytes, at)));
        }
        self.step = Step::Integer { number, value: value.into(), shift: 0 };
        Ok(())
    }

    /// `alone`: where the integer stands, where it is one byte.
    fn end_integer(&mut self, number: Number, value: u32, alone: Option<(&mut [u8], usize)>) -> Result<(), Malformed> {
        match number {
            Number::Field => {
                let entry = self.table.get(value)?;
                self.step = Step::Field;
                match alone {
                    Some((bytes, at)) if entry.name == Name::Authority && entry.empty || self.order.had(bytes[at]) => {
                        self.order.fill(&mut bytes[at]);
                    }
                    _ => self.order.saw(entry.name),
                }
            }
            Number::TableSize => {
                self.table.resize(value)?;
                self.step = Step::Field;
            }
            Number::Name if value == 0 => {
                self.step = Step::Length(Part::Name);
            }
            Number::Name => {
                let entry = self.table.get(value)?;
                (self.name, self.name_len) = (entry.name, entry.name_len.into());
                self.brief = alone.is_some() && self.mends();
                self.begin_value();
            }
            Number::Length(part) => {
                self.text.left = value;
                if let (0, Part::Value, true, Some((bytes, at @ 1..))) = (value, part, self.brief, alone)
                    && let [.., first, second] = &mut bytes[..=at]
                {
                    self.order.fill_literal(self.insert, first, second);
                }
                self.step = Step::Text(part);
                if value == 0 {
                    self.end_text(part);
                }
            }
        }
        Ok(())
    }

    fn begin_value(&mut self) {
        self.authority = Authority::default();
        self.step = Step::Length(Part::Value);
    }

    /// A piece of a string literal; returns where it ends.
    fn text(&mut self, part: Part, bytes: &mut [u8], at: usize) -> Result<usize, Malformed> {
        let have = bytes.len() - at;
        let (end, left) = match usize::try_from(self.text.left) {
            Ok(left) if left <= have => (at + left, 0),
            #[expect(clippy::cast_possible_truncation, reason = "less than `left`, which is a u32")]
            _ => (bytes.len(), self.text.left - have as u32),
        };
        self.text.left = left;
        match part {
            Part::Name => self.text.name(&bytes[at..end])?,
            Part::Value if self.mends() && self.text.huffman => {
                self.text.count += self.authority.mend_huffman(&mut self.text.bits, bytes, at, end)?;
            }
            Part::Value => {
                if self.mends() {
                    self.authority.mend_plain(&mut bytes[at..end], left == 0);
                }
                // A value that goes into no table may have any length.
                if self.insert {
                    self.text.count(&bytes[at..end])?;
                }
            }
        }
        if left == 0 {
            self.end_text(part);
        }
        Ok(end)
    }

    fn end_text(&mut self, part: Part) {
        match part {
            Part::Name => {
                let known = self.text.start.get(..self.text.count as usize);
                (self.name, self.name_len) = (known.map_or(Name::Other, Name::of), self.text.count);
                self.brief = false;
                self.begin_value();
            }
            Part::Value => {
                if self.insert {
                    self.table.insert(self.name, self.name_len, self.text.count);
                }
                self.order.saw(self.name);
                self.step = Step::Field;
            }
        }
    }

    fn mends(&self) -> bool {
        self.name == Name::Authority
    }
}

// === impl Text ===

impl Text {
    fn name(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let Self { count, start, bits, .. } = self;
        let mut each = |char| {
            if let Some(slot) = start.get_mut(*count as usize) {
                *slot = char;
            }
            *count += 1;
        };
        if self.huffman {
            return bytes.iter().try_for_each(|byte| bits.take(*byte, |char, _| each(char)));
        }
        bytes.iter().copied().for_each(each);
        Ok(())
    }

    fn count(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        if self.huffman {
            return bytes.iter().try_for_each(|byte| self.bits.take(*byte, |_, _| self.count += 1));
        }
        self.count = self.count.saturating_add(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        Ok(())
    }
}
