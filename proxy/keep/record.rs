//! The saved snapshot as bytes. Pure: files and clocks are elsewhere.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | the magic |
//! | 4 | the format's version, little-endian as all numbers here |
//! | 16 | XXH3-128 of the body |
//! | 3 × 8 | when the captures of List, GetAllocatableResources and `v1alpha1` List last confirmed the body, in ns since the boot |
//! | 8 | XXH3-64 of all that stands before it |
//! | rest | the body, a protobuf message |
//!
//! The header is written again in place when a capture has brought the same content once more: it belongs to this body alone.

use bytes::Bytes;
use prost::Message;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use super::Stamp;

/// How every file of ours begins.
const MAGIC: [u8; 8] = *b"prproxy\x1a";
/// Of all that this module writes and takes.
const VERSION: u32 = 1;
/// Length of magic and version.
const BEGINNING: usize = 8 + 4;
/// Length of the header up to its sum.
const SUMMED: usize = BEGINNING + 16 + 3 * 8;
/// Length of the header.
pub(super) const HEADER: usize = SUMMED + 8;

/// What is kept, beside when.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Body {
    /// The boot that the stamps belong to.
    #[prost(string, tag = "1")]
    pub boot_id: String,
    /// Whose replies these are: the kubelet's socket.
    #[prost(string, tag = "2")]
    pub upstream: String,
    /// The message of List, without its gRPC prefix.
    #[prost(bytes = "bytes", tag = "3")]
    pub list: Bytes,
    /// That of GetAllocatableResources, where the kubelet offers it.
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub allocatable: Option<Bytes>,
    /// That of `v1alpha1` List, where somebody asked for it.
    #[prost(bytes = "bytes", optional, tag = "5")]
    pub alpha: Option<Bytes>,
    /// What tells the kubelet that they came from, where that is known and it had settled.
    #[prost(string, optional, tag = "6")]
    pub server: Option<String>,
}

/// When the captures began that brought this content last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    /// `v1` List.
    pub list: Stamp,
    /// GetAllocatableResources; means nothing where it is not kept.
    pub allocatable: Stamp,
    /// `v1alpha1` List; means nothing where it is not kept.
    pub alpha: Stamp,
}

/// Why bytes are no saved snapshot of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Somebody else's file.
    #[error("it is no saved snapshot of podresources-proxy")]
    Foreign,
    /// Written by another version of the program.
    #[error("its format is version {found}, and this program reads {VERSION}")]
    Version {
        /// The file's.
        found: u32,
    },
    /// Shorter than the header.
    #[error("it ends within its header")]
    CutOff,
    /// Header or body are not what was written.
    #[error("its checksum does not match: it is cut off or corrupted")]
    Corrupted,
}

/// The header over a body of this sum.
pub(super) fn header(body_sum: u128, stamps: Stamps) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let mut rest = &mut header[..];
    let mut put = |bytes: &[u8]| {
        if let Some((place, after)) = std::mem::take(&mut rest).split_at_mut_checked(bytes.len()) {
            place.copy_from_slice(bytes);
            rest = after;
        }
    };
    put(&MAGIC);
    put(&VERSION.to_le_bytes());
    put(&body_sum.to_le_bytes());
    for stamp in [stamps.list, stamps.allocatable, stamps.alpha] {
        put(&stamp.as_nanos().to_le_bytes());
    }
    let sum = xxh3_64(&header[..SUMMED]);
    header[SUMMED..].copy_from_slice(&sum.to_le_bytes());
    header
}

/// Header and body, and the body's sum, by which later headers are made.
pub(super) fn encode(body: &Body, stamps: Stamps) -> (Vec<u8>, u128) {
    let mut bytes = Vec::with_capacity(HEADER + body.encoded_len());
    bytes.resize(HEADER, 0);
    // A `Vec` grows.
    body.encode_raw(&mut bytes);
    let sum = xxh3_128(&bytes[HEADER..]);
    bytes[..HEADER].copy_from_slice(&header(sum, stamps));
    (bytes, sum)
}

/// Reads what [`encode`] made.
pub(super) fn decode(file: &Bytes) -> Result<(Body, Stamps), Unreadable> {
    let magic = file.len().min(MAGIC.len());
    if file[..magic] != MAGIC[..magic] {
        return Err(Unreadable::Foreign);
    }
    let number = |at: usize| file.get(at..).and_then(<[u8]>::first_chunk).map(|bytes| u64::from_le_bytes(*bytes));
    let found = file.get(MAGIC.len()..).and_then(<[u8]>::first_chunk).map(|bytes| u32::from_le_bytes(*bytes));
    match found {
        None => return Err(Unreadable::CutOff),
        Some(VERSION) => {}
        Some(found) => return Err(Unreadable::Version { found }),
    }
    let body_sum = file.get(BEGINNING..).and_then(<[u8]>::first_chunk).map(|bytes| u128::from_le_bytes(*bytes));
    let (Some(body_sum), Some(header_sum)) = (body_sum, number(SUMMED)) else { return Err(Unreadable::CutOff) };
    let body = file.slice(HEADER..);
    if header_sum != xxh3_64(&file[..SUMMED]) || body_sum != xxh3_128(&body) {
        return Err(Unreadable::Corrupted);
    }
    let stamp = |place: usize| Stamp::from_nanos(number(BEGINNING + 16 + place * 8).unwrap_or(u64::MAX));
    let stamps = Stamps { list: stamp(0), allocatable: stamp(1), alpha: stamp(2) };
    // The sum is right, so this is what was written.
    let body = Body::decode(body).map_err(|_| Unreadable::Corrupted)?;
    Ok((body, stamps))
}

/// A file whose sums are right, with any body. For [`crate::fuzzing`].
#[cfg(feature = "fuzzing")]
pub fn seal_record(body: &[u8], stamps: Stamps) -> Vec<u8> {
    [&header(xxh3_128(body), stamps)[..], body].concat()
}

/// Reads a file, and gives what would be written for what was read. For [`crate::fuzzing`].
#[cfg(feature = "fuzzing")]
pub fn unseal_record(file: &Bytes) -> Result<(Vec<u8>, Stamps), Unreadable> {
    decode(file).map(|(body, stamps)| (encode(&body, stamps).0, stamps))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn saved() -> impl Strategy<Value = (Body, Stamps)> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..200).prop_map(Bytes::from);
        let stamp = || any::<u64>().prop_map(Stamp::from_nanos);
        let body =
            (".{0,40}", ".{0,40}", bytes(), prop::option::of(bytes()), prop::option::of(bytes()), prop::option::of(".{0,9}"));
        let body = body.prop_map(|(boot_id, upstream, list, allocatable, alpha, server)| Body {
            boot_id,
            upstream,
            list,
            allocatable,
            alpha,
            server,
        });
        let stamps = (stamp(), stamp(), stamp()).prop_map(|(list, allocatable, alpha)| Stamps { list, allocatable, alpha });
        (body, stamps)
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_and_nothing_else_is((body, stamps) in saved(), at: prop::sample::Index, flip in 1..=255_u8) {
            let file = Bytes::from(encode(&body, stamps).0);
            prop_assert_eq!(decode(&file), Ok((body, stamps)));
            let mut flipped = file.to_vec();
            flipped[at.index(file.len())] ^= flip;
            prop_assert!(decode(&flipped.into()).is_err());
            prop_assert!(decode(&file.slice(..at.index(file.len()))).is_err(), "cut off");
            let mut longer = file.to_vec();
            longer.push(flip);
            prop_assert!(decode(&longer.into()).is_err());
        }

        #[test]
        fn any_bytes_are_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(decode(&bytes.into()).is_err());
        }

        #[test]
        fn a_newer_header_is_that_of_the_same_body((body, stamps) in saved(), later: u64) {
            let (mut file, sum) = encode(&body, stamps);
            let stamps = Stamps { list: Stamp::from_nanos(later), ..stamps };
            file[..HEADER].copy_from_slice(&header(sum, stamps));
            prop_assert_eq!(decode(&file.into()), Ok((body, stamps)));
        }
    }

    #[test]
    fn every_byte_of_the_header_counts() {
        let file = encode(&Body::default(), Stamps::default()).0;
        for at in 0..file.len() {
            for bit in 0..8 {
                let mut flipped = file.clone();
                flipped[at] ^= 1 << bit;
                assert!(decode(&flipped.into()).is_err(), "byte {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn each_refusal_says_what_it_is() {
        let file = Bytes::from(encode(&Body::default(), Stamps::default()).0);
        let error = |bytes: &[u8]| decode(&Bytes::copy_from_slice(bytes)).unwrap_err();
        assert_eq!(error(b"#!/bin/sh\nexit 1\n"), Unreadable::Foreign);
        let mut other = file.to_vec();
        other[MAGIC.len()] = 9;
        assert_eq!(error(&other), Unreadable::Version { found: 9 });
        assert_eq!(error(&file[..HEADER - 1]), Unreadable::CutOff);
        assert_eq!(error(&[]), Unreadable::CutOff, "a file that nothing was written to yet");
    }
}
