//! The digest of a reply's content: the same for every order the kubelet may send it in, another when anything real differs.
//!
//! A message's sum is the sum, modulo 2^128, of one term for each of its records. A term is a 128-bit hash of the record's value,
//! keyed by which field of which message it is; a value that is a message goes in as that message's own sum.
//!
//! - **Order does not matter** because addition does not care, at each level by itself. A sum, unlike exclusive or, also counts: two
//!   equal records do not cancel out.
//! - **Levels cannot be confused**: a nested sum is not added to its parent's but hashed into one term first. A device that moves
//!   from one container to another changes two terms of the pod, in ways that have nothing to do with each other. Each field of each
//!   message has its own key, so a pod's CPUs are not a container's, and a name is not a namespace.
//! - **Strength**: two different sets of terms have the same sum by a chance of about 2^-128, two terms are the same by one of 2^-64
//!   or less (a number or a short string of one field against one of another; within one field never). This guards against chance,
//!   not against somebody who computes replies for it: only the kubelet sends replies.
//! - Packed and unpacked numbers are the same numbers. Records of one field that repeats, and the fields among each other, may
//!   come in any order. Where the API has one string or number but the bytes have several, the last counts, so there the order
//!   is part of the digest. An undeclared field counts by its number, wire type and bytes, each record for itself.
//! - A value that is written out although it is the default counts as a difference: that costs one comparison, never a change unseen.
//!
//! The hash is XXH3, the same on every machine.

use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::schema::{Kind, Known, Message};
use super::wire::{Field, Fields, Malformed, Value};

/// The sum of a message, growing record by record. Adding a record checks it, and all within it, against the API.
#[derive(Debug)]
pub(super) struct Sum {
    message: &'static Message,
    terms: u128,
    /// One bit for each field number that the API has once and that was seen.
    seen: u32,
    /// How often such a field was seen again.
    again: u64,
}

// === impl Sum ===

impl Sum {
    /// The sum of an empty message.
    pub(super) fn of(message: &'static Message) -> Self {
        Self { message, terms: 0, seen: 0, again: 0 }
    }

    /// Adds one record and all that is within it.
    #[inline]
    pub(super) fn add(&mut self, field: &Field<'_>) -> Result<(), Malformed> {
        let Some(known) = self.message.field(field.number) else {
            self.add_unknown(field);
            return Ok(());
        };
        match (&known.kind, field.value) {
            (Kind::Text, Value::Bytes(text)) => {
                self.check_text(known, field, text)?;
                let key = self.key_of_single(known, field);
                self.term(hash(key, text));
            }
            (Kind::Texts, Value::Bytes(text)) => {
                self.check_text(known, field, text)?;
                self.term(hash(known.key, text));
            }
            (Kind::Number, Value::Varint(number)) => {
                let key = self.key_of_single(known, field);
                self.term(hash_number(key, number));
            }
            (Kind::Numbers, Value::Varint(number)) => self.term(hash_number(known.key, number)),
            (Kind::Numbers, Value::Bytes(packed)) => {
                let mut numbers = field.within(packed);
                while let Some(number) = numbers.next_packed()? {
                    self.term(hash_number(known.key, number));
                }
            }
            (Kind::Message(message), Value::Bytes(body)) => {
                let mut inner = Self::of(message);
                inner.add_all(field.within(body))?;
                self.term(hash_sum(known.key, inner.terms));
            }
            (_, value) => {
                return Err(Malformed::Mistyped {
                    offset: field.offset,
                    message: self.message.name,
                    field: known.name,
                    wire_type: value.wire_type(),
                });
            }
        }
        Ok(())
    }

    /// Adds all records of a message.
    pub(super) fn add_all(&mut self, mut fields: Fields<'_>) -> Result<(), Malformed> {
        while let Some(field) = fields.next()? {
            self.add(&field)?;
        }
        Ok(())
    }

    /// Adds a message that the caller has summed up by itself, as the value of field `number`.
    #[inline]
    pub(super) fn add_message(&mut self, number: u32, inner: &Self) {
        if let Some(known) = self.message.field(number) {
            self.term(hash_sum(known.key, inner.terms));
        }
    }

    /// The digest of the message as an outermost one.
    pub(super) fn digest(&self) -> u128 {
        hash_sum(self.message.root_key(), self.terms)
    }

    fn add_unknown(&mut self, field: &Field<'_>) {
        let key = self.message.unknown_key(field.number, field.value.wire_type());
        match field.value {
            Value::Varint(number) | Value::Fixed64(number) => self.term(hash_number(key, number)),
            Value::Fixed32(number) => self.term(hash_number(key, number.into())),
            Value::Bytes(bytes) => self.term(hash(key, bytes)),
        }
    }

    /// The key of a field that the API has once. Seen again, it gets one that says how many came before.
    fn key_of_single(&mut self, known: &Known, field: &Field<'_>) -> u64 {
        let bit = 1 << field.number;
        if self.seen & bit == 0 {
            self.seen |= bit;
            known.key
        } else {
            self.again += 1;
            known.key.wrapping_add(self.again)
        }
    }

    fn check_text(&self, known: &Known, field: &Field<'_>, text: &[u8]) -> Result<(), Malformed> {
        if text.is_ascii() || std::str::from_utf8(text).is_ok() {
            return Ok(());
        }
        Err(Malformed::Text { offset: field.body_offset(text), message: self.message.name, field: known.name })
    }

    #[inline]
    fn term(&mut self, term: u128) {
        self.terms = self.terms.wrapping_add(term);
    }
}

fn hash(key: u64, bytes: &[u8]) -> u128 {
    xxh3_128_with_seed(bytes, key)
}

// By themselves, since the hash of a known length is one without branches.
fn hash_number(key: u64, number: u64) -> u128 {
    xxh3_128_with_seed(&number.to_le_bytes(), key)
}

fn hash_sum(key: u64, sum: u128) -> u128 {
    xxh3_128_with_seed(&sum.to_le_bytes(), key)
}

#[cfg(test)]
mod tests {
    use super::super::schema::LIST;
    use super::*;

    fn digest(message: &[u8]) -> Result<u128, Malformed> {
        let mut sum = Sum::of(&LIST);
        sum.add_all(Fields::of(message))?;
        Ok(sum.digest())
    }

    /// A record of wire type 2.
    fn nested(number: u8, parts: &[&[u8]]) -> Vec<u8> {
        let body = parts.concat();
        [&[number << 3 | 2, u8::try_from(body.len()).unwrap()][..], &body].concat()
    }

    #[track_caller]
    fn check(equal: bool, left: &[&[u8]], right: &[&[u8]]) {
        let of = |pod| digest(&nested(1, pod)).unwrap();
        assert_eq!(of(left) == of(right), equal, "{left:?} {right:?}");
    }

    #[test]
    fn packed_and_unpacked_numbers_in_any_order_are_the_same() {
        check(true, &[&[0x22, 2, 5, 6]], &[&[0x20, 6, 0x20, 5]]);
        check(true, &[&[0x22, 2, 5, 6]], &[&[0x22, 1, 6], &[0x20, 5]]);
        check(true, &[&[0x22, 0]], &[]);
        check(false, &[&[0x22, 2, 5, 6]], &[&[0x22, 2, 5, 7]]);
    }

    #[test]
    fn equal_records_are_counted() {
        check(false, &[&[0x22, 2, 5, 5]], &[]);
        check(false, &[&[0x22, 2, 5, 5]], &[&[0x22, 1, 5]]);
        check(false, &[&nested(3, &[]), &nested(3, &[])], &[&nested(3, &[])]);
    }

    #[test]
    fn a_thing_that_changes_its_place_is_a_change() {
        let (a, b) = (nested(1, &[b"a"]), nested(1, &[b"b"]));
        let device = nested(2, &[&nested(2, &[b"dev-0"])]);
        let on_a = [nested(3, &[&a, &device]), nested(3, &[&b])];
        let on_b = [nested(3, &[&a]), nested(3, &[&b, &device])];
        check(false, &[&on_a[0], &on_a[1]], &[&on_b[0], &on_b[1]]);
        check(true, &[&on_a[0], &on_a[1]], &[&on_a[1], &on_a[0]]);
        // A pod's own CPU and a container's; a name and a namespace.
        check(false, &[&[0x20, 1]], &[&nested(3, &[&[0x18, 1]])]);
        check(false, &[&nested(1, &[b"x"])], &[&nested(2, &[b"x"])]);
    }

    #[test]
    fn a_single_value_given_twice_counts_in_its_order() {
        let (a, b) = (nested(1, &[b"a"]), nested(1, &[b"b"]));
        check(false, &[&a, &b], &[&b, &a]);
        check(false, &[&a, &b], &[&b]);
        check(false, &[&a, &a], &[&a]);
    }

    #[test]
    fn unknown_fields_count_by_number_type_and_bytes() {
        let known = nested(1, &[b"a"]);
        check(false, &[&known], &[&known, &[0x70, 0]]);
        check(false, &[&[0x70, 1]], &[&[0x78, 1]]);
        check(false, &[&[0x75, 1, 0, 0, 0]], &[&[0x71, 1, 0, 0, 0, 0, 0, 0, 0]]);
        check(false, &[&nested(14, &[b"a"])], &[&nested(14, &[b"b"])]);
        check(true, &[&known, &nested(14, &[b"a"])], &[&nested(14, &[b"a"]), &known]);
    }

    #[test]
    fn a_known_field_of_the_wrong_type_is_named() {
        let error = digest(&nested(1, &[&[0x08, 1]])).unwrap_err().to_string();
        assert_eq!(error, "byte 2: PodResources.name cannot have wire type 0: is this a podresources reply?");
    }

    #[test]
    fn text_that_is_not_utf8_is_named() {
        let device = nested(3, &[&nested(2, &[&nested(2, &[b"\xff"])])]);
        let error = digest(&nested(1, &[&device])).unwrap_err().to_string();
        assert_eq!(error, "byte 8: ContainerDevices.device_ids is not valid UTF-8");
        assert!(digest(&nested(1, &[&nested(1, &["é".as_bytes()])])).is_ok());
    }
}
