//! One `GetAllocatableResources` reply, framed as it came.

use std::fmt;

use bytes::Bytes;

use super::digest::Sum;
use super::framed::{frame, unframed};
use super::schema::ALLOCATABLE;
use super::wire::{Fields, Malformed, Value};

/// The field that holds the devices.
const DEVICES: u32 = 1;

/// A `GetAllocatableResources` reply, immutable and ready for the socket.
pub struct Allocatable {
    framed: Bytes,
    digest: u128,
}

// === impl Allocatable ===

impl Allocatable {
    /// Reads a reply: the message without its gRPC prefix. Time and memory are linear in its length.
    pub fn build(message: &[u8]) -> Result<Self, Malformed> {
        let mut sum = Sum::of(&ALLOCATABLE);
        sum.add_all(Fields::of(message))?;
        Ok(Self { framed: frame(message)?, digest: sum.digest() })
    }

    /// The reply with its gRPC prefix. The clone counts a reference.
    pub fn framed(&self) -> Bytes {
        self.framed.clone()
    }

    /// The reply without its prefix, byte for byte as it came.
    pub fn message(&self) -> &[u8] {
        unframed(&self.framed)
    }

    /// As [`super::PodList::digest`].
    pub fn digest(&self) -> u128 {
        self.digest
    }

    /// Each `ContainerDevices`: its whole record and what is within it.
    pub(super) fn device_records(&self) -> impl Iterator<Item = (&[u8], Fields<'_>)> {
        let mut fields = Fields::of(self.message());
        // Checked when built: no record fails here.
        std::iter::from_fn(move || fields.next().ok().flatten()).filter_map(|field| match field.value {
            Value::Bytes(body) if field.number == DEVICES => Some((field.record, field.within(body))),
            _ => None,
        })
    }
}

impl fmt::Debug for Allocatable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Allocatable({} bytes, {:032x})", self.message().len(), self.digest)
    }
}
