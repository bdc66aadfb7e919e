//! What a client writes, made by hand: HPACK representations, frames, and the ways to cut them.

use crate::serve::mend::huffman;

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// How a literal relates to the dynamic table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Insert,
    Without,
    Never,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Named<'a> {
    Index(u32),
    Plain(&'a str),
    Huffman(&'a str),
}

/// A header block in the making.
#[derive(Clone, Debug, Default)]
pub(super) struct Block(pub(super) Vec<u8>);

/// What is around a block on the wire.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wrap {
    pub(super) padding: Option<u8>,
    pub(super) priority: bool,
    /// A CONTINUATION frame begins here.
    pub(super) cut: Option<usize>,
}

pub(super) fn integer(flags: u8, prefix: u8, value: u32, out: &mut Vec<u8>) {
    let mask = (1u32 << prefix) - 1;
    if value < mask {
        out.push(flags | u8::try_from(value).unwrap());
        return;
    }
    out.push(flags | u8::try_from(mask).unwrap());
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(0x80 | u8::try_from(rest & 0x7f).unwrap());
        rest >>= 7;
    }
    out.push(u8::try_from(rest).unwrap());
}

pub(super) fn huffman(text: &[u8]) -> Vec<u8> {
    let codes = text.iter().map(|byte| huffman::code(*byte));
    let mut bits: Vec<bool> = codes.flat_map(|(code, len)| (0..len).rev().map(move |bit| code >> bit & 1 == 1)).collect();
    bits.resize(bits.len().next_multiple_of(8), true);
    bits.chunks(8).map(|byte| byte.iter().fold(0, |byte, bit| byte << 1 | u8::from(*bit))).collect()
}

fn text(text: &[u8], coded: bool, out: &mut Vec<u8>) {
    let bytes = if coded { huffman(text) } else { text.to_vec() };
    integer(if coded { 0x80 } else { 0 }, 7, u32::try_from(bytes.len()).unwrap(), out);
    out.extend(bytes);
}

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

/// A request without a body.
pub(super) fn request(stream: u32, block: &Block, wrap: Wrap) -> Vec<u8> {
    let cut = wrap.cut.unwrap_or(block.0.len());
    let mut payload = Vec::new();
    let mut flags = 0x1;
    if let Some(padding) = wrap.padding {
        flags |= 0x8;
        payload.push(padding);
    }
    if wrap.priority {
        flags |= 0x20;
        payload.extend([0, 0, 0, 0, 15]);
    }
    payload.extend(&block.0[..cut]);
    payload.extend(vec![0; wrap.padding.unwrap_or(0).into()]);
    if wrap.cut.is_none() {
        return frame(1, flags | 0x4, stream, &payload);
    }
    let mut out = frame(1, flags, stream, &payload);
    out.extend(frame(9, 0x4, stream, &block.0[cut..]));
    out
}

// === impl Block ===

impl Block {
    pub(super) fn indexed(mut self, index: u32) -> Self {
        integer(0x80, 7, index, &mut self.0);
        self
    }

    pub(super) fn resize(mut self, size: u32) -> Self {
        integer(0x20, 5, size, &mut self.0);
        self
    }

    pub(super) fn literal(mut self, kind: Kind, name: Named<'_>, value: &[u8], coded: bool) -> Self {
        let (flags, prefix) = match kind {
            Kind::Insert => (0x40, 6),
            Kind::Without => (0, 4),
            Kind::Never => (0x10, 4),
        };
        let index = if let Named::Index(index) = name { index } else { 0 };
        integer(flags, prefix, index, &mut self.0);
        match name {
            Named::Index(_) => {}
            Named::Plain(name) => text(name.as_bytes(), false, &mut self.0),
            Named::Huffman(name) => text(name.as_bytes(), true, &mut self.0),
        }
        text(value, coded, &mut self.0);
        self
    }

    /// `:method`, `:scheme` and `:path`, as grpc-go has them before `:authority`, leaving the table as it is.
    pub(super) fn call() -> Self {
        Self::default().indexed(3).indexed(6).literal(Kind::Without, Named::Index(4), b"/v1.PodResourcesLister/List", true)
    }

    pub(super) fn content_type(self) -> Self {
        self.literal(Kind::Without, Named::Index(31), b"application/grpc", true)
    }
}
