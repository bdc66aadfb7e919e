//! One List reply, of either API version: its bytes framed as they came, and every pod in it framed as the answer to Get.

use std::fmt;
use std::hash::BuildHasher;

use bytes::Bytes;
use hashbrown::HashTable;

use super::digest::Sum;
use super::framed::{Arena, frame, unframed};
use super::schema::{LIST, POD};
use super::wire::{Field, Fields, Malformed, Value};
use crate::grpc::PREFIX_LEN;

/// The most pods that are taken from one reply: a thousand times what a kubelet is made for, so that broken bytes cannot fill memory.
pub const MAX_PODS: usize = 1 << 17;

/// The field of a List reply that holds the pods.
const PODS: u32 = 1;
const NAME: u32 = 1;
const NAMESPACE: u32 = 2;

/// What a pod takes at least as a rule, in bytes; only room is made by it.
const USUAL_POD_LEN: usize = 80;

/// A List reply, immutable and ready for the socket. It never gives out other bytes than it was built from.
pub struct PodList {
    framed: Bytes,
    /// Each pod's record as a framed `GetPodResourcesResponse`, in the reply's order.
    arena: Bytes,
    pods: Vec<Entry>,
    /// Places in `pods`, by namespace and name; of pods with the same name the first.
    index: HashTable<u32>,
    hasher: foldhash::fast::RandomState,
    digest: u128,
}

/// What a look-up gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The framed `GetPodResourcesResponse` with exactly this pod's bytes.
    Found(Bytes),
    /// No pod of this name is in the reply.
    Absent,
    /// Several pods of this name are in the reply, and nothing here says which is meant.
    Ambiguous,
}

/// A pod within a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodRef<'a> {
    /// The pod's namespace.
    pub namespace: &'a str,
    /// The pod's name.
    pub name: &'a str,
    /// Tag, length and body, as they stand in the reply: by itself a whole `GetPodResourcesResponse`, and a part of a List.
    pub record: &'a [u8],
}

/// A pod's namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodName {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
}

/// Where a pod stands in the arena.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Where its frame begins.
    start: usize,
    /// Length of its record in bytes, without the prefix.
    len: u32,
    name: Span,
    namespace: Span,
    /// Another pod has the same name. Set on the one that the index knows.
    twice: bool,
}

/// A part of a pod's record.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start: u32,
    len: u32,
}

// === impl PodList ===

impl PodList {
    /// Reads a List reply of `v1` or `v1alpha1`: the message without its gRPC prefix. Time and memory are linear in its length.
    ///
    /// Where a pod has its name several times, the last one counts, as protobuf says; a pod without one has the empty name.
    pub fn build(message: &[u8]) -> Result<Self, Malformed> {
        let framed = frame(message)?;
        let mut sum = Sum::of(&LIST);
        let mut arena = Arena::with_room(message.len() / USUAL_POD_LEN, message.len());
        let mut pods = Vec::with_capacity(message.len() / USUAL_POD_LEN);
        let mut fields = Fields::of(message);
        while let Some(field) = fields.next()? {
            match (field.number, field.value) {
                (PODS, Value::Bytes(body)) => {
                    if pods.len() == MAX_PODS {
                        return Err(Malformed::TooMany { what: "pods", limit: MAX_PODS });
                    }
                    let mut pod = Entry::read(&field, body, &mut sum)?;
                    pod.start = arena.push(field.record)?;
                    pods.push(pod);
                }
                _ => sum.add(&field)?,
            }
        }
        let index = HashTable::with_capacity(pods.len());
        let hasher = foldhash::fast::RandomState::default();
        let mut list = Self { framed, arena: arena.finish(), pods, index, hasher, digest: sum.digest() };
        list.fill_index();
        Ok(list)
    }

    fn fill_index(&mut self) {
        let Self { arena, pods, index, hasher, .. } = self;
        for place in 0..pods.len() {
            let pod = pods[place];
            let (namespace, name) = (pod.namespace(arena), pod.name(arena));
            let same = |&other: &u32| {
                let other = &pods[other as usize];
                other.name(arena) == name && other.namespace(arena) == namespace
            };
            let hash = hasher.hash_one((namespace, name));
            if let Some(&first) = index.find(hash, same) {
                pods[first as usize].twice = true;
                continue;
            }
            #[expect(clippy::cast_possible_truncation, reason = "at most MAX_PODS")]
            let place = place as u32;
            // There is room for all: nothing is hashed anew.
            index.insert_unique(hash, place, |&other| {
                let other = &pods[other as usize];
                hasher.hash_one((other.namespace(arena), other.name(arena)))
            });
        }
    }

    /// The whole reply with its gRPC prefix. The clone counts a reference.
    pub fn framed(&self) -> Bytes {
        self.framed.clone()
    }

    /// The whole reply without its prefix. It counts a reference.
    pub fn message_bytes(&self) -> Bytes {
        self.framed.slice(PREFIX_LEN..)
    }

    /// The whole reply without its prefix, byte for byte as it came.
    pub fn message(&self) -> &[u8] {
        unframed(&self.framed)
    }

    /// What Get answers for this pod.
    pub fn get(&self, namespace: &str, name: &str) -> Lookup {
        match self.place(namespace, name).map(|place| self.pods[place]) {
            None => Lookup::Absent,
            Some(pod) if pod.twice => Lookup::Ambiguous,
            Some(pod) => Lookup::Found(self.arena.slice(pod.start..pod.start + PREFIX_LEN + pod.len as usize)),
        }
    }

    /// Where the first pod of this name stands among [`PodList::pods`].
    pub(super) fn place(&self, namespace: &str, name: &str) -> Option<usize> {
        let hash = self.hasher.hash_one((namespace.as_bytes(), name.as_bytes()));
        let same = |&place: &u32| {
            let pod = &self.pods[place as usize];
            pod.name(&self.arena) == name.as_bytes() && pod.namespace(&self.arena) == namespace.as_bytes()
        };
        self.index.find(hash, same).map(|&place| place as usize)
    }

    /// The same for every order of the same content, another when anything real differs, in fields that we do not know too.
    /// It is the same in every process of the same version, on every machine.
    pub fn digest(&self) -> u128 {
        self.digest
    }

    /// All pods in the reply's order.
    pub fn pods(&self) -> impl ExactSizeIterator<Item = PodRef<'_>> {
        self.pods.iter().map(|pod| PodRef {
            // Checked when built.
            namespace: std::str::from_utf8(pod.namespace(&self.arena)).unwrap_or_default(),
            name: std::str::from_utf8(pod.name(&self.arena)).unwrap_or_default(),
            record: pod.record(&self.arena),
        })
    }

    /// How many pods the reply has.
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    /// Whether the reply has no pods.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }
}

impl fmt::Debug for PodList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PodList({} pods, {} bytes, {:032x})", self.len(), self.message().len(), self.digest)
    }
}

// === impl Entry ===

impl Entry {
    /// Reads a pod and adds it to the reply's sum. Its place in the arena is not known yet.
    fn read(field: &Field<'_>, body: &[u8], list: &mut Sum) -> Result<Self, Malformed> {
        let mut pod =
            Self { start: 0, len: length(field.record)?, name: Span::default(), namespace: Span::default(), twice: false };
        let mut sum = Sum::of(&POD);
        let mut fields = field.within(body);
        while let Some(part) = fields.next()? {
            sum.add(&part)?;
            if let (NAME | NAMESPACE, Value::Bytes(text)) = (part.number, part.value) {
                let start = length(&field.record[..part.body_offset(text) - field.offset])?;
                let span = Span { start, len: length(text)? };
                if part.number == NAME { pod.name = span } else { pod.namespace = span }
            }
        }
        list.add_message(PODS, &sum);
        Ok(pod)
    }

    fn record<'a>(&self, arena: &'a [u8]) -> &'a [u8] {
        &arena[self.start + PREFIX_LEN..][..self.len as usize]
    }

    fn name<'a>(&self, arena: &'a [u8]) -> &'a [u8] {
        self.name.of(self.record(arena))
    }

    fn namespace<'a>(&self, arena: &'a [u8]) -> &'a [u8] {
        self.namespace.of(self.record(arena))
    }
}

// === impl Span ===

impl Span {
    fn of(self, record: &[u8]) -> &[u8] {
        &record[self.start as usize..][..self.len as usize]
    }
}

/// No part of a framed message is longer than a prefix can count.
fn length(part: &[u8]) -> Result<u32, Malformed> {
    u32::try_from(part.len()).map_err(|_| Malformed::TooLong { len: part.len() })
}

// === impl PodRef ===

impl PodRef<'_> {
    /// The pod's names, to keep.
    pub fn to_name(&self) -> PodName {
        PodName { namespace: self.namespace.to_owned(), name: self.name.to_owned() }
    }
}

// === impl PodName ===

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
