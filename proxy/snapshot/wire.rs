//! Walks protobuf records in place: every read is checked against the bytes that are there, nothing is copied or built.
//! Source: <https://protobuf.dev/programming-guides/encoding/>. How deep to walk is the caller's business: nothing here recurses.

/// Why a reply cannot be used. Offsets count bytes from the start of the message that was given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// The bytes end before a record does.
    #[error("byte {offset}: cut off: {what} needs {needed} bytes, {left} are left")]
    Truncated {
        /// Where the missing part would begin.
        offset: usize,
        /// What was being read.
        what: &'static str,
        /// How many bytes it needs.
        needed: u64,
        /// How many there are.
        left: usize,
    },
    /// A varint that goes on after ten bytes, or holds more than 64 bits.
    #[error("byte {offset}: a varint of more than 64 bits")]
    Overlong {
        /// Where the varint begins.
        offset: usize,
    },
    /// A field number outside 1 to 536870911.
    #[error("byte {offset}: field number {number} is not between 1 and 536870911")]
    FieldNumber {
        /// Where the tag begins.
        offset: usize,
        /// The number.
        number: u64,
    },
    /// A group (3, 4), which proto3 does not have, or a wire type that no protobuf has (6, 7).
    #[error("byte {offset}: field {number} has wire type {wire_type}; only 0, 1, 2 and 5 exist in proto3")]
    WireType {
        /// Where the tag begins.
        offset: usize,
        /// The field's number.
        number: u32,
        /// The wire type.
        wire_type: u8,
    },
    /// A field of the podresources API with a wire type that its declaration does not have: not the message it was taken for.
    #[error("byte {offset}: {message}.{field} cannot have wire type {wire_type}: is this a podresources reply?")]
    Mistyped {
        /// Where the tag begins.
        offset: usize,
        /// The message's name in the API.
        message: &'static str,
        /// The field's name in the API.
        field: &'static str,
        /// The wire type found.
        wire_type: u8,
    },
    /// A proto3 string that is not UTF-8: no generated client would take it.
    #[error("byte {offset}: {message}.{field} is not valid UTF-8")]
    Text {
        /// Where the string begins.
        offset: usize,
        /// The message's name in the API.
        message: &'static str,
        /// The field's name in the API.
        field: &'static str,
    },
    /// A message that a gRPC length prefix cannot count.
    #[error("a message of {len} bytes; gRPC counts at most {}", u32::MAX)]
    TooLong {
        /// The message's length in bytes.
        len: usize,
    },
    /// More pods, or more CPUs and devices, than any node has.
    #[error("more than {limit} {what} in one reply: no node has that many")]
    TooMany {
        /// What was counted.
        what: &'static str,
        /// The most that is taken.
        limit: usize,
    },
}

/// A record's value, as its wire type gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// Wire type 0.
    Varint(u64),
    /// Wire type 1.
    Fixed64(u64),
    /// Wire type 2: a string, a message, or packed numbers.
    Bytes(&'a [u8]),
    /// Wire type 5.
    Fixed32(u32),
}

/// One record of a message: tag and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field<'a> {
    /// The field's number.
    pub(super) number: u32,
    /// Its value.
    pub(super) value: Value<'a>,
    /// The whole record as it stands in the message: tag, length where there is one, value.
    pub(super) record: &'a [u8],
    /// Where the record begins, from the start of the outermost message.
    pub(super) offset: usize,
}

/// The records of one message, in their order.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Where `bytes` begin in the outermost message, for errors.
    base: usize,
}

const MAX_FIELD_NUMBER: u64 = (1 << 29) - 1;
const MAX_VARINT_LEN: usize = 10;

// === impl Value ===

impl Value<'_> {
    /// The wire type's number.
    pub(super) fn wire_type(&self) -> u8 {
        match self {
            Self::Varint(_) => 0,
            Self::Fixed64(_) => 1,
            Self::Bytes(_) => 2,
            Self::Fixed32(_) => 5,
        }
    }
}

// === impl Field ===

impl<'a> Field<'a> {
    /// The records within `body`, the value of this field.
    pub(super) fn within(&self, body: &'a [u8]) -> Fields<'a> {
        Fields { bytes: body, at: 0, base: self.body_offset(body) }
    }

    /// Where `body`, the value of this field, begins in the outermost message.
    pub(super) fn body_offset(&self, body: &[u8]) -> usize {
        self.offset + (self.record.len() - body.len())
    }
}

// === impl Fields ===

impl<'a> Fields<'a> {
    /// The records of an outermost message.
    pub(super) fn of(message: &'a [u8]) -> Self {
        Self { bytes: message, at: 0, base: 0 }
    }

    /// The next record, or `None` where the message ends.
    #[expect(clippy::inline_always, reason = "measured: building a List takes a third longer without")]
    #[inline(always)]
    pub(super) fn next(&mut self) -> Result<Option<Field<'a>>, Malformed> {
        let start = self.at;
        if start == self.bytes.len() {
            return Ok(None);
        }
        let tag = self.varint("a tag")?;
        let offset = self.base + start;
        let number = match u32::try_from(tag >> 3) {
            Ok(number) if number != 0 && u64::from(number) <= MAX_FIELD_NUMBER => number,
            _ => return Err(Malformed::FieldNumber { offset, number: tag >> 3 }),
        };
        let value = match tag & 7 {
            0 => Value::Varint(self.varint("a number")?),
            1 => Value::Fixed64(u64::from_le_bytes(self.array("a 64-bit number")?)),
            2 => {
                let len = self.varint("a length")?;
                Value::Bytes(self.take(len, "a string or message")?)
            }
            5 => Value::Fixed32(u32::from_le_bytes(self.array("a 32-bit number")?)),
            wire_type => {
                #[expect(clippy::cast_possible_truncation, reason = "three bits")]
                let wire_type = wire_type as u8;
                return Err(Malformed::WireType { offset, number, wire_type });
            }
        };
        Ok(Some(Field { number, value, record: &self.bytes[start..self.at], offset }))
    }

    /// The next number of a packed field, or `None` where it ends.
    pub(super) fn next_packed(&mut self) -> Result<Option<u64>, Malformed> {
        if self.at == self.bytes.len() { Ok(None) } else { self.varint("a packed number").map(Some) }
    }

    #[expect(clippy::inline_always, reason = "as for `next`")]
    #[inline(always)]
    fn varint(&mut self, what: &'static str) -> Result<u64, Malformed> {
        match self.bytes.get(self.at) {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(byte.into())
            }
            _ => self.long_varint(what),
        }
    }

    #[inline(never)]
    fn long_varint(&mut self, what: &'static str) -> Result<u64, Malformed> {
        let rest = &self.bytes[self.at..];
        let offset = self.base + self.at;
        let mut value = 0;
        for (place, &byte) in rest.iter().take(MAX_VARINT_LEN).enumerate() {
            // The tenth byte has room for one bit.
            if place == MAX_VARINT_LEN - 1 && byte > 1 {
                return Err(Malformed::Overlong { offset });
            }
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                self.at += place + 1;
                return Ok(value);
            }
        }
        Err(Malformed::Truncated { offset, what, needed: rest.len() as u64 + 1, left: rest.len() })
    }

    #[expect(clippy::inline_always, reason = "as for `next`")]
    #[inline(always)]
    fn take(&mut self, len: u64, what: &'static str) -> Result<&'a [u8], Malformed> {
        let rest = &self.bytes[self.at..];
        match usize::try_from(len).ok().and_then(|len| rest.get(..len)) {
            Some(taken) => {
                self.at += taken.len();
                Ok(taken)
            }
            None => Err(Malformed::Truncated { offset: self.base + self.at, what, needed: len, left: rest.len() }),
        }
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Malformed> {
        let rest = &self.bytes[self.at..];
        match rest.first_chunk() {
            Some(taken) => {
                self.at += N;
                Ok(*taken)
            }
            None => Err(Malformed::Truncated { offset: self.base + self.at, what, needed: N as u64, left: rest.len() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(bytes: &[u8]) -> Result<Vec<(u32, Value<'_>)>, Malformed> {
        let mut fields = Fields::of(bytes);
        let mut all = Vec::new();
        while let Some(field) = fields.next()? {
            all.push((field.number, field.value));
        }
        Ok(all)
    }

    #[test]
    fn every_wire_type_of_proto3_is_read() {
        let bytes = [0x08, 0x96, 0x01, 0x11, 1, 0, 0, 0, 0, 0, 0, 0, 0x1a, 2, b'h', b'i', 0x25, 2, 0, 0, 0];
        let expected = vec![(1, Value::Varint(150)), (2, Value::Fixed64(1)), (3, Value::Bytes(b"hi")), (4, Value::Fixed32(2))];
        assert_eq!(walk(&bytes), Ok(expected));
    }

    #[test]
    fn the_largest_number_is_read_and_one_bit_more_is_overlong() {
        let mut bytes = vec![0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(walk(&bytes), Ok(vec![(1, Value::Varint(u64::MAX))]));
        bytes[10] = 0x02;
        assert_eq!(walk(&bytes), Err(Malformed::Overlong { offset: 1 }));
        bytes[10] = 0x81;
        assert_eq!(walk(&bytes), Err(Malformed::Overlong { offset: 1 }));
    }

    #[test]
    fn a_cut_record_says_where_and_how_much_is_missing() {
        let cut = |bytes: &[u8]| walk(bytes).unwrap_err().to_string();
        assert_eq!(cut(&[0x80]), "byte 0: cut off: a tag needs 2 bytes, 1 are left");
        assert_eq!(cut(&[0x08]), "byte 1: cut off: a number needs 1 bytes, 0 are left");
        assert_eq!(cut(&[0x0a, 5, 1, 2]), "byte 2: cut off: a string or message needs 5 bytes, 2 are left");
        assert_eq!(cut(&[0x09, 1]), "byte 1: cut off: a 64-bit number needs 8 bytes, 1 are left");
        assert_eq!(cut(&[0x0d]), "byte 1: cut off: a 32-bit number needs 4 bytes, 0 are left");
        let whole_range = [0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(cut(&whole_range), format!("byte 11: cut off: a string or message needs {} bytes, 0 are left", u64::MAX));
    }

    #[test]
    fn groups_and_wire_types_that_do_not_exist_are_refused() {
        for wire_type in [3, 4, 6, 7] {
            assert_eq!(walk(&[0x08, 1, 0x10 | wire_type]), Err(Malformed::WireType { offset: 2, number: 2, wire_type }));
        }
    }

    #[test]
    fn field_numbers_outside_the_range_are_refused() {
        assert_eq!(walk(&[0x00, 0x00]), Err(Malformed::FieldNumber { offset: 0, number: 0 }));
        let largest = [0xf8, 0xff, 0xff, 0xff, 0x0f, 7];
        assert_eq!(walk(&largest), Ok(vec![(536_870_911, Value::Varint(7))]));
        let too_large = [0x80, 0x80, 0x80, 0x80, 0x10, 7];
        assert_eq!(walk(&too_large), Err(Malformed::FieldNumber { offset: 0, number: 1 << 29 }));
    }

    #[test]
    fn offsets_within_a_nested_message_count_from_the_outermost() {
        let bytes = [0x08, 1, 0x12, 3, 0x0a, 9, 9];
        let mut fields = Fields::of(&bytes);
        fields.next().unwrap();
        let outer = fields.next().unwrap().unwrap();
        let Value::Bytes(body) = outer.value else { panic!("{outer:?}") };
        assert_eq!(outer.record, &bytes[2..]);
        assert_eq!(
            outer.within(body).next().unwrap_err().to_string(),
            "byte 6: cut off: a string or message needs 9 bytes, 1 are left"
        );
    }
}
