//! Reads the kernel's description of its own types: `/sys/kernel/btf/vmlinux`, BTF version 1 (Documentation/bpf/btf.rst).
//!
//! Nothing is believed: every index and offset is checked, and what is not as expected is an error, never a guess.

use std::collections::HashMap;

const MAGIC: u16 = 0xeb9f;
const HEADER: usize = 24;
/// Deeper than any typedef or anonymous union of the kernel's.
const DEPTH: usize = 16;
/// More members than are looked at for one field in any kernel: anonymous structs that hold each other many times over would take forever.
const MEMBERS: usize = 1 << 16;

/// Types of a kernel.
#[derive(Debug)]
pub(super) struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// Where each type begins; the first is type 1.
    starts: Vec<u32>,
    /// Structs, functions and typedefs by name; one name may be several types'.
    named: HashMap<(Group, &'a [u8]), Vec<u32>>,
}

/// Why a type or a field cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BtfError {
    /// It ends too early.
    #[error("BTF is cut off at byte {0}")]
    Short(usize),
    /// It is something else.
    #[error("this is no BTF that we know (magic {magic:#x}, version {version})")]
    Foreign { magic: u16, version: u8 },
    /// A kind of type from the future: its length is not known.
    #[error("BTF has an unknown kind of type, {0}")]
    Kind(u32),
    /// No such type.
    #[error("BTF has no {0}")]
    Missing(String),
    /// A reference to nowhere, or in circles.
    #[error("BTF refers to a type that is not there ({0})")]
    Dangling(u32),
    /// Something is not as the programs need it.
    #[error("{what} is not as expected: {why}")]
    Strange { what: String, why: String },
}

/// What a name belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Group {
    Struct,
    Function,
    Typedef,
}

/// What a field must be, so that a program may read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A pointer to a struct of this name.
    PointerTo(&'static str),
    /// A pointer to anything.
    Pointer,
    /// An integer of this many bytes.
    Integer(u32),
    /// A struct of this name, inside this one.
    Inside(&'static str),
    /// An array of pointers to a struct of this name.
    PointersTo(&'static str),
    /// An array of integers of this many bytes.
    Integers(u32),
}

/// One type's head.
#[derive(Clone, Copy)]
struct Type {
    at: usize,
    name: u32,
    kind: u32,
    entries: usize,
    bitfields: bool,
    /// Size in bytes or another type, by kind.
    size: u32,
}

/// The kinds of type (`BTF_KIND_*`).
mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const PTR: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const FWD: u32 = 7;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNC: u32 = 12;
    pub(super) const FUNC_PROTO: u32 = 13;
    pub(super) const VAR: u32 = 14;
    pub(super) const DATASEC: u32 = 15;
    pub(super) const FLOAT: u32 = 16;
    pub(super) const DECL_TAG: u32 = 17;
    pub(super) const TYPE_TAG: u32 = 18;
    pub(super) const ENUM64: u32 = 19;
}

// === impl Btf ===

impl<'a> Btf<'a> {
    /// Walks all types once. Of this machine's byte order.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, BtfError> {
        let magic = u16::from_ne_bytes(array(bytes, 0)?);
        let [version, _flags] = array(bytes, 2)?;
        if magic != MAGIC || version != 1 {
            return Err(BtfError::Foreign { magic, version });
        }
        let header = word(bytes, 4)? as usize;
        if header < HEADER {
            return Err(BtfError::Short(header));
        }
        let section = |at: usize| -> Result<&'a [u8], BtfError> {
            let (offset, length) = (word(bytes, at)? as usize, word(bytes, at + 4)? as usize);
            let begin = header.checked_add(offset).ok_or(BtfError::Short(bytes.len()))?;
            let end = begin.checked_add(length).ok_or(BtfError::Short(bytes.len()))?;
            bytes.get(begin..end).ok_or(BtfError::Short(bytes.len()))
        };
        let mut btf = Self { types: section(8)?, strings: section(16)?, starts: Vec::new(), named: HashMap::new() };
        let mut at = 0;
        while at < btf.types.len() {
            let found = Type::read(btf.types, at)?;
            let id = u32::try_from(btf.starts.len() + 1).map_err(|_| BtfError::Short(at))?;
            let group = match found.kind {
                kind::STRUCT => Some(Group::Struct),
                kind::FUNC => Some(Group::Function),
                kind::TYPEDEF => Some(Group::Typedef),
                _ => None,
            };
            if let Some(group) = group {
                btf.named.entry((group, btf.string(found.name)?)).or_default().push(id);
            }
            btf.starts.push(u32::try_from(at).map_err(|_| BtfError::Short(at))?);
            let end = found.end().ok_or(BtfError::Kind(found.kind))?;
            at = if end <= btf.types.len() { end } else { return Err(BtfError::Short(btf.types.len())) };
        }
        Ok(btf)
    }

    /// The offset in bytes of a field, which must have this shape. A field of an anonymous struct or union inside counts as one of the
    /// struct's own. Where several structs have this name, they must agree.
    pub(super) fn field(&self, of: &'static str, name: &'static str, shape: Shape) -> Result<u32, BtfError> {
        let what = || format!("{of}.{name}");
        let structs = self.named.get(&(Group::Struct, of.as_bytes())).map(Vec::as_slice).unwrap_or_default();
        let (mut offset, mut left) = (None, MEMBERS);
        for id in structs {
            let outer = self.get(*id)?;
            let Some((bits, field)) = self.member(outer, name.as_bytes(), 0, &mut left)? else { continue };
            let strange = |why: String| BtfError::Strange { what: what(), why };
            if bits % 8 != 0 {
                return Err(strange(format!("it begins at bit {bits}")));
            }
            self.fits(field, shape).map_err(|error| match error {
                BtfError::Strange { why, .. } => strange(why),
                other => other,
            })?;
            let bytes = bits / 8;
            if bytes >= outer.size && !matches!(shape, Shape::PointersTo(_) | Shape::Integers(_)) {
                return Err(strange(format!("it begins at {bytes}, and the struct has {} bytes", outer.size)));
            }
            if offset.is_some_and(|known| known != bytes) {
                return Err(strange("there are several structs of that name".to_owned()));
            }
            offset = Some(bytes);
        }
        offset.ok_or_else(|| BtfError::Missing(what()))
    }

    /// How many arguments a function has that a program can be attached to.
    pub(super) fn arguments(&self, function: &str) -> Result<usize, BtfError> {
        let missing = || BtfError::Missing(format!("function {function}"));
        let ids = self.named.get(&(Group::Function, function.as_bytes())).ok_or_else(missing)?;
        let [id] = ids.as_slice() else {
            return Err(BtfError::Strange {
                what: function.to_owned(),
                why: "there are several functions of that name".to_owned(),
            });
        };
        self.prototype(self.get(*id)?.size)
    }

    /// How many arguments a tracepoint hands to its programs.
    pub(super) fn tracepoint_arguments(&self, name: &str) -> Result<usize, BtfError> {
        let typedef = format!("btf_trace_{name}");
        let ids = self.named.get(&(Group::Typedef, typedef.as_bytes())).ok_or(BtfError::Missing(format!("tracepoint {name}")))?;
        let strange = |why: &str| BtfError::Strange { what: typedef.clone(), why: why.to_owned() };
        let [id] = ids.as_slice() else { return Err(strange("there are several of that name")) };
        let pointer = self.resolve(self.get(*id)?.size)?;
        if pointer.kind != kind::PTR {
            return Err(strange("it is no pointer to a function"));
        }
        // The first argument is the tracepoint's own.
        self.prototype(pointer.size)?.checked_sub(1).ok_or_else(|| strange("it has no arguments"))
    }

    fn prototype(&self, id: u32) -> Result<usize, BtfError> {
        let prototype = self.get(id)?;
        if prototype.kind != kind::FUNC_PROTO {
            return Err(BtfError::Strange { what: format!("type {id}"), why: "it is no function's".to_owned() });
        }
        Ok(prototype.entries)
    }

    /// A member's offset in bits, and its type.
    fn member(&self, outer: Type, name: &[u8], depth: usize, left: &mut usize) -> Result<Option<(u32, u32)>, BtfError> {
        if depth > DEPTH {
            return Err(BtfError::Dangling(outer.size));
        }
        for index in 0..outer.entries {
            *left = left.checked_sub(1).ok_or(BtfError::Dangling(outer.size))?;
            let at = outer.at + 12 + index * 12;
            let (its_name, id, offset) = (word(self.types, at)?, word(self.types, at + 4)?, word(self.types, at + 8)?);
            let (bits, width) = if outer.bitfields { (offset & 0x00ff_ffff, offset >> 24) } else { (offset, 0) };
            if its_name != 0 {
                if self.string(its_name)? != name {
                    continue;
                }
                if width != 0 {
                    return Err(BtfError::Strange { what: String::new(), why: "it is a bit field".to_owned() });
                }
                return Ok(Some((bits, id)));
            }
            let inner = self.resolve(id)?;
            if !matches!(inner.kind, kind::STRUCT | kind::UNION) {
                continue;
            }
            if let Some((inner_bits, id)) = self.member(inner, name, depth + 1, left)? {
                return Ok(Some((bits.checked_add(inner_bits).ok_or(BtfError::Dangling(id))?, id)));
            }
        }
        Ok(None)
    }

    fn fits(&self, id: u32, shape: Shape) -> Result<(), BtfError> {
        let strange = |why: String| Err(BtfError::Strange { what: String::new(), why });
        let found = self.resolve(id)?;
        match shape {
            Shape::PointerTo(_) | Shape::Pointer if found.kind != kind::PTR => strange("it is no pointer".to_owned()),
            Shape::Pointer => Ok(()),
            Shape::PointerTo(target) => {
                let inner = self.resolve(found.size)?;
                // A pointer to a struct whose fields are not described has the right target all the same.
                let right = matches!(inner.kind, kind::STRUCT | kind::FWD) && self.string(inner.name)? == target.as_bytes();
                if right { Ok(()) } else { strange(format!("it does not point to a {target}")) }
            }
            Shape::Integer(bytes) => {
                if found.kind == kind::INT && found.size == bytes {
                    Ok(())
                } else {
                    strange(format!("it is no integer of {bytes} bytes"))
                }
            }
            Shape::Inside(name) => {
                if found.kind == kind::STRUCT && self.string(found.name)? == name.as_bytes() {
                    Ok(())
                } else {
                    strange(format!("it is no {name}"))
                }
            }
            Shape::PointersTo(_) | Shape::Integers(_) if found.kind != kind::ARRAY => strange("it is no array".to_owned()),
            Shape::PointersTo(target) => self.fits(word(self.types, found.at + 12)?, Shape::PointerTo(target)),
            Shape::Integers(bytes) => self.fits(word(self.types, found.at + 12)?, Shape::Integer(bytes)),
        }
    }

    fn get(&self, id: u32) -> Result<Type, BtfError> {
        let index = (id as usize).checked_sub(1).ok_or(BtfError::Dangling(id))?;
        let at = self.starts.get(index).ok_or(BtfError::Dangling(id))?;
        Type::read(self.types, *at as usize)
    }

    /// The type behind typedefs, tags and qualifiers.
    fn resolve(&self, id: u32) -> Result<Type, BtfError> {
        let mut id = id;
        for _ in 0..DEPTH {
            let found = self.get(id)?;
            match found.kind {
                kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => id = found.size,
                _ => return Ok(found),
            }
        }
        Err(BtfError::Dangling(id))
    }

    fn string(&self, at: u32) -> Result<&'a [u8], BtfError> {
        let rest = self.strings.get(at as usize..).ok_or(BtfError::Short(at as usize))?;
        let end = rest.iter().position(|byte| *byte == 0).ok_or(BtfError::Short(at as usize))?;
        Ok(&rest[..end])
    }
}

// === impl Type ===

impl Type {
    fn read(types: &[u8], at: usize) -> Result<Self, BtfError> {
        let (name, info, size) = (word(types, at)?, word(types, at + 4)?, word(types, at + 8)?);
        let (kind, entries) = ((info >> 24) & 0x1f, (info & 0xffff) as usize);
        Ok(Self { at, name, kind, entries, bitfields: info >> 31 == 1, size })
    }

    /// Where the next type begins. `None` where this one is of an unknown kind.
    fn end(&self) -> Option<usize> {
        let more = match self.kind {
            kind::INT | kind::VAR | kind::DECL_TAG => 4,
            kind::ARRAY => 12,
            kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => 12 * self.entries,
            kind::ENUM | kind::FUNC_PROTO => 8 * self.entries,
            kind::PTR
            | kind::FWD
            | kind::TYPEDEF
            | kind::VOLATILE
            | kind::CONST
            | kind::RESTRICT
            | kind::FUNC
            | kind::FLOAT
            | kind::TYPE_TAG => 0,
            _ => return None,
        };
        Some(self.at + 12 + more)
    }
}

fn word(bytes: &[u8], at: usize) -> Result<u32, BtfError> {
    array(bytes, at).map(u32::from_ne_bytes)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], BtfError> {
    bytes.get(at..).and_then(|rest| rest.first_chunk().copied()).ok_or(BtfError::Short(bytes.len()))
}

#[cfg(test)]
#[path = "btf_tests.rs"]
mod tests;
