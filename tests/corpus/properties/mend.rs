//! Mending: no length changes, and where reads begin and end changes nothing.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use podresources_proxy::fuzzing::huffman_code;
use podresources_proxy::serve::mend::Mend;
use tokio::io::{AsyncRead, ReadBuf};

use super::source::Source;

pub(crate) fn check(input: &[u8]) {
    let mut source = Source(input);
    let cuts = [source.byte(), source.byte(), source.byte()].map(|cut| usize::from(cut % 32) + 1);
    let bytes = client(&mut source);
    let whole = mended(&bytes);
    assert_eq!(whole.len(), bytes.len(), "the length has changed");
    assert!(read(pieces(&bytes, &cuts[..2]), cuts[2]) == whole, "cut otherwise, it is another outcome");
    assert!(read(bytes.chunks(1).map(<[u8]>::to_vec).collect(), 1) == whole, "byte by byte, it is another outcome");
    assert!(mended(&whole) == whole, "what was mended is mended again");
}

/// What a client writes: any bytes, or frames whose lengths are right, or HPACK representations whose lengths are right too.
pub(crate) fn client(source: &mut Source<'_>) -> Vec<u8> {
    let form = source.below(3);
    if form == 0 {
        return source.0.to_vec();
    }
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    let mut stream = 1_u32;
    while !source.is_empty() {
        let [kind, flags] = [source.byte(), source.byte()];
        let payload = if form == 1 { source.piece().to_vec() } else { block(source) };
        // Mostly header blocks.
        let kind = if kind < 0xe0 { [1, 1, 9, 0][usize::from(kind % 4)] } else { kind & 0x1f };
        bytes.extend(&u32::try_from(payload.len()).unwrap().to_be_bytes()[1..]);
        bytes.extend([kind, if flags & 0x80 == 0 { flags | 0x5 } else { flags & 0x2d }]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
        if flags & 0x40 == 0 {
            stream += 2;
        }
    }
    bytes
}

/// A header block of a few representations.
fn block(source: &mut Source<'_>) -> Vec<u8> {
    const NAMES: [&[u8]; 6] = [b":authority", b"x-a", b":Authority", b":authorit", b"te", b":path"];
    let mut out = Vec::new();
    for _ in 0..source.below(8) {
        let choice = source.byte();
        match choice {
            0..0x40 => out.extend([0x83, 0x86, 0x04, 2, b'/', b'x']),
            0x40..0x60 => out.push(0x80 | source.byte()),
            0x60..0x70 => integer(0x20, 5, u32::from(source.byte()) * 17, &mut out),
            _ => {
                let (flags, prefix) = [(0x40, 6), (0, 4), (0x10, 4)][usize::from(choice % 3)];
                let index = if choice & 1 == 0 { 1 } else { u32::from(source.byte()) };
                integer(flags, prefix, index, &mut out);
                if index == 0 {
                    text(NAMES[usize::from(source.byte()) % NAMES.len()], choice & 2 == 0, &mut out);
                }
                let value = source.piece();
                text(value, choice & 4 == 0, &mut out);
            }
        }
    }
    out
}

pub(crate) fn integer(flags: u8, prefix: u8, value: u32, out: &mut Vec<u8>) {
    let mask = (1_u32 << prefix) - 1;
    let first = value.min(mask);
    out.push(flags | first.to_be_bytes()[3]);
    if first < mask {
        return;
    }
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(0x80 | (rest & 0x7f).to_be_bytes()[3]);
        rest >>= 7;
    }
    out.push(rest.to_be_bytes()[3]);
}

pub(crate) fn text(text: &[u8], coded: bool, out: &mut Vec<u8>) {
    let bytes = if coded { huffman(text) } else { text.to_vec() };
    integer(if coded { 0x80 } else { 0 }, 7, u32::try_from(bytes.len()).unwrap(), out);
    out.extend(bytes);
}

fn huffman(text: &[u8]) -> Vec<u8> {
    let (mut out, mut held, mut count) = (Vec::new(), 0_u64, 0);
    for &byte in text {
        let (code, len) = huffman_code(byte);
        held = held << len | u64::from(code);
        count += len;
        while count >= 8 {
            count -= 8;
            out.push((held >> count).to_be_bytes()[7]);
        }
    }
    if count > 0 {
        // The end of a string is filled up with ones.
        out.push((held << (8 - count) | ((1 << (8 - count)) - 1)).to_be_bytes()[7]);
    }
    out
}

/// What comes of bytes that are read at once.
pub(crate) fn mended(bytes: &[u8]) -> Vec<u8> {
    read(VecDeque::from([bytes.to_vec()]), bytes.len() + 2)
}

/// Pieces of these lengths, over and over.
fn pieces(mut bytes: &[u8], lengths: &[usize]) -> VecDeque<Vec<u8>> {
    let mut out = VecDeque::new();
    for length in lengths.iter().cycle() {
        if bytes.is_empty() {
            break;
        }
        let (piece, rest) = bytes.split_at((*length).min(bytes.len()));
        out.push_back(piece.to_vec());
        bytes = rest;
    }
    out
}

/// Gives its pieces one by one, each in as many reads as it takes.
struct Pieces(VecDeque<Vec<u8>>);

impl AsyncRead for Pieces {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while let Some(mut piece) = self.0.pop_front() {
            if piece.is_empty() {
                continue;
            }
            let rest = piece.split_off(piece.len().min(buf.remaining()));
            buf.put_slice(&piece);
            if !rest.is_empty() {
                self.0.push_front(rest);
            }
            break;
        }
        Poll::Ready(Ok(()))
    }
}

/// What a reader with room for so many bytes gets.
fn read(pieces: VecDeque<Vec<u8>>, room: usize) -> Vec<u8> {
    let mut mend = Mend::new(Pieces(pieces));
    let mut context = Context::from_waker(Waker::noop());
    let (mut out, mut space) = (Vec::new(), vec![0; room]);
    loop {
        let mut buf = ReadBuf::new(&mut space);
        assert!(Pin::new(&mut mend).poll_read(&mut context, &mut buf).map(Result::unwrap).is_ready());
        if buf.filled().is_empty() {
            return out;
        }
        out.extend(buf.filled());
    }
}
