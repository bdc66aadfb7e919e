//! Frames that are no calls: each costs its sender nothing, and must cost us little.

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::{Attack, LIST, WIDE, drained, greeted, pour, pour_same, read_to_the_end};
use crate::abuser::done;
use crate::frames::{DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, frame, head};

const PRIORITY: u8 = 2;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
/// Frames that are written together.
const BATCH: usize = 256;

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        Attack::new("pings", 4, |path| same(path, &frame(PING, 0, 0, &[0; 8]))),
        Attack::new("pings-unread", 4, |path| {
            pour_same(&mut greeted(path, WIDE)?, BATCH as u64, &frame(PING, 0, 0, &[0; 8]).repeat(BATCH))
        }),
        Attack::new("settings", 4, |path| same(path, &frame(SETTINGS, 0, 0, &[]))),
        Attack::new("priorities", 4, |path| same(path, &frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 0]))),
        Attack::new("unknown-frames", 4, |path| same(path, &frame(0xfe, 0, 0, &[0; 8]))),
        Attack::new("empty-data", 4, |path| after(path, &head(1, LIST, "localhost"), &frame(DATA, 0, 1, &[]))),
        Attack::new("empty-continuations", 4, |path| after(path, &unended_head(), &frame(CONTINUATION, 0, 1, &[]))),
        Attack::new("endless-headers", 4, |path| after(path, &unended_head(), &frame(CONTINUATION, 0, 1, &long_header()))),
        Attack::new("hpack-bomb", 4, hpack_bomb),
        Attack::new("garbage", 4, |path| garbage(path, &[])),
        Attack::new("garbage-after-preface", 4, |path| garbage(path, PREFACE)),
    ]
}

fn same(path: &Path, frame: &[u8]) -> io::Result<()> {
    pour_same(&mut drained(path)?, BATCH as u64, &frame.repeat(BATCH))
}

fn after(path: &Path, first: &[u8], frame: &[u8]) -> io::Result<()> {
    let mut socket = drained(path)?;
    socket.write_all(first)?;
    // The connection may be ended before a whole batch is written.
    done(1);
    pour_same(&mut socket, BATCH as u64, &frame.repeat(BATCH))
}

/// CVE-2024-27316: headers that never say `END_HEADERS`.
fn unended_head() -> Vec<u8> {
    let mut head = head(1, LIST, "localhost");
    head[4] = 0;
    head
}

/// A literal field, not indexed, of 4 KiB.
fn long_header() -> Vec<u8> {
    let value = vec![b'x'; 4_000];
    let mut field = vec![0, 1, b'x', 0x7f];
    // 4,000 - 127 with 7 bits a byte (RFC 7541, 5.1).
    field.extend([0xa1, 0x1e]);
    field.extend(value);
    field
}

/// One large entry in the table, then thousands of one-byte references to it, in each of many calls.
fn hpack_bomb(path: &Path) -> io::Result<()> {
    let mut socket = drained(path)?;
    // A literal with incremental indexing (RFC 7541, 6.2.1), 3,900 bytes long.
    let entry = [&[0x40, 1, b'x', 0x7f, 0xbd, 0x1d][..], &[b'x'; 3_900]].concat();
    // The newest entry of the dynamic table.
    let references = vec![0x80 | 0x3e; 12 * 1024];
    let mut streams = super::streams();
    let mut first = Some(entry);
    pour(&mut socket, 1, || {
        let stream = streams.next().unwrap_or(1);
        let mut block = head(stream, LIST, "localhost").split_off(9);
        block.extend(first.take().unwrap_or_else(|| references.clone()));
        frame(HEADERS, END_HEADERS | END_STREAM, stream, &block)
    })
}

fn garbage(path: &Path, first: &[u8]) -> io::Result<()> {
    let mut socket = UnixStream::connect(path)?;
    let noise: Vec<u8> = std::iter::repeat_with(rand::random::<u8>).take(16 * 1024).collect();
    let sent = socket.write_all(first).and_then(|()| socket.write_all(&noise));
    done(1);
    sent?;
    socket.shutdown(std::net::Shutdown::Write)?;
    read_to_the_end(&mut socket)
}
