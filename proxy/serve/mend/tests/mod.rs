//! `:authority` in every form and on every way into a header block, judged by a real hyper server.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, ReadBuf};

use self::server::{Ended, serve};
use self::wire::{Block, Kind, Named, PREFACE, Wrap, request};
use super::Mend;

mod empty;
mod properties;
mod replay;
mod server;
mod wire;

/// What clients send, and others like it.
const REFUSED: &[&str] = &[
    "/var/lib/kubelet/pod-resources/kubelet.sock",
    "%2Fvar%2Flib%2Fkubelet%2Fpod-resources%2Fkubelet.sock",
    "var%2Flib%2Fkubelet%2Fpod-resources%2Fkubelet.sock",
    "run%2Fpodresources.sock",
    "/run/a b.sock",
    "unix:/run/x.sock",
    "unix:///run/x.sock",
    "passthrough:///unix:///run/x.sock",
    "dns:a:80:90",
    "a?b=c|d",
    "?",
    "0???????|||||||||?",
    "a\"b",
    "x@",
    "@abstract/x",
    "[::]:50051/x",
    "a[bc",
    "]",
    "::1",
    "/",
    "%",
    ":::::",
];

const VALID: &[&str] = &["localhost", "[::]:50051", "[::1%25eth0]:80", "a:80", "A.b-c_d~e!$&'()*+,;=", "127.0.0.1:1", ":", "a:"];

/// Gives its chunks one by one, each in as many reads as it takes.
struct Chunks(VecDeque<Vec<u8>>);

impl AsyncRead for Chunks {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(mut chunk) = self.0.pop_front() {
            let rest = chunk.split_off(chunk.len().min(buf.remaining()));
            buf.put_slice(&chunk);
            if !rest.is_empty() {
                self.0.push_front(rest);
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// What a reader with buffers of `room` bytes gets, where the socket gives `chunks`.
fn read<'a>(chunks: impl IntoIterator<Item = &'a [u8]>, room: usize) -> Vec<u8> {
    let chunks = chunks.into_iter().filter(|chunk| !chunk.is_empty()).map(<[u8]>::to_vec).collect();
    let mut mend = Mend::new(Chunks(chunks));
    let mut cx = Context::from_waker(Waker::noop());
    let mut out = Vec::new();
    let mut space = vec![0; room];
    loop {
        let mut buf = ReadBuf::new(&mut space);
        assert!(Pin::new(&mut mend).poll_read(&mut cx, &mut buf).map(Result::unwrap).is_ready());
        if buf.filled().is_empty() {
            return out;
        }
        out.extend(buf.filled());
    }
}

fn read_whole(bytes: &[u8]) -> Vec<u8> {
    read([bytes], bytes.len() + 2)
}

/// The ways to name `:authority`, where the newest entry of the dynamic table has that name.
const NAMES: [Named<'static>; 4] = [Named::Index(1), Named::Plain(":authority"), Named::Huffman(":authority"), Named::Index(62)];

/// Requests that have `value` as their `:authority`, in every way a client can write it; the first puts `localhost` into the table.
fn every_way(value: &str) -> Vec<Block> {
    let mut blocks = vec![Block::call().literal(Kind::Insert, Named::Index(1), b"localhost", true).content_type()];
    for coded in [false, true] {
        for name in NAMES {
            for kind in [Kind::Without, Kind::Never, Kind::Insert] {
                blocks.push(Block::call().literal(kind, name, value.as_bytes(), coded).content_type());
            }
            // The entry that was just inserted.
            blocks.push(Block::call().indexed(62).content_type());
        }
    }
    blocks
}

fn connection(blocks: &[Block], wrap: Wrap) -> Vec<u8> {
    let streams = (1..).step_by(2);
    PREFACE.iter().copied().chain(streams.zip(blocks).flat_map(|(stream, block)| request(stream, block, wrap))).collect()
}

#[test]
fn every_authority_that_clients_send_is_answered_however_it_is_written() {
    for value in REFUSED {
        for (padding, priority) in [(None, false), (Some(0), false), (Some(7), true), (None, true)] {
            let blocks = every_way(value);
            let outcome = serve(&connection(&blocks, Wrap { padding, priority, cut: None }));
            assert_eq!((outcome.answered(), outcome.gone), (blocks.len(), None), "{value} {outcome:?}");
            assert!(
                outcome.authorities.iter().flatten().all(|seen| seen == "localhost" || seen.len() == value.len()),
                "{outcome:?}"
            );
        }
    }
}

#[test]
fn a_valid_authority_is_not_changed_by_a_byte() {
    for value in VALID {
        let bytes = connection(&every_way(value), Wrap::default());
        assert!(read_whole(&bytes) == bytes, "{value}");
        let outcome = serve(&bytes);
        assert!(outcome.authorities.iter().skip(1).flatten().all(|seen| seen == value), "{value} {outcome:?}");
    }
}

#[test]
fn without_mending_h2_refuses_what_the_tests_call_refused() {
    for value in REFUSED {
        assert!(value.parse::<http::uri::Authority>().is_err(), "{value}");
    }
    for value in VALID {
        assert!(value.parse::<http::uri::Authority>().is_ok(), "{value}");
    }
}

#[test]
fn the_outcome_does_not_depend_on_where_reads_end() {
    for value in REFUSED.iter().chain(VALID) {
        let bytes = connection(&every_way(value), Wrap { padding: Some(3), priority: true, cut: None });
        let whole = read_whole(&bytes);
        assert_eq!(whole.len(), bytes.len());
        for cut in 0..bytes.len() {
            let (a, b) = bytes.split_at(cut);
            assert!(read([a, b], bytes.len() + 2) == whole, "{value} cut at {cut}");
        }
        for room in [1, 2, 3, 7, 64] {
            assert!(read([&bytes[..]], room) == whole, "{value} read by {room}");
            assert!(read(bytes.chunks(room), 4096) == whole, "{value} in pieces of {room}");
            assert!(read(bytes.chunks(1), room) == whole, "{value} byte by byte, read by {room}");
        }
    }
}

#[test]
fn a_block_cut_anywhere_by_a_continuation_is_mended() {
    for value in REFUSED.iter().filter(|value| !value.contains(['?', '|'])) {
        for name in NAMES {
            for coded in [false, true] {
                let first = Block::call().literal(Kind::Insert, Named::Index(1), b"localhost", true);
                let block = Block::call().literal(Kind::Insert, name, value.as_bytes(), coded).content_type();
                let mut bytes = connection(&[first], Wrap::default());
                for cut in 0..=block.0.len() {
                    let stream = 3 + 2 * u32::try_from(cut).unwrap();
                    bytes.extend(request(stream, &block, Wrap { padding: Some(2), priority: true, cut: Some(cut) }));
                }
                let outcome = serve(&bytes);
                assert_eq!((outcome.answered(), outcome.gone), (block.0.len() + 2, None), "{value} {name:?} {outcome:?}");
            }
        }
    }
}

#[test]
fn a_character_stays_refused_where_a_continuation_cuts_off_the_end_of_a_code_that_differs_before_it() {
    for value in ["?", "b|"] {
        let block = Block::call().literal(Kind::Without, Named::Index(1), value.as_bytes(), true);
        let mut bytes = PREFACE.to_vec();
        for cut in 0..=block.0.len() {
            bytes.extend(request(1 + 2 * u32::try_from(cut).unwrap(), &block, Wrap { cut: Some(cut), ..Wrap::default() }));
        }
        let outcome = serve(&bytes);
        // The cut before the value's last byte.
        let refused = 1 + 2 * u32::try_from(block.0.len() - 1).unwrap();
        assert_eq!((outcome.answered(), outcome.gone), (block.0.len(), None), "{outcome:?}");
        assert!(outcome.streams.contains(&(refused, Ended::Reset(1))), "{outcome:?}");
    }
}

#[test]
fn a_bracket_that_is_never_closed_is_closed_in_plain_text_and_refused_in_huffman_code() {
    let blocks = [false, true].map(|coded| Block::call().literal(Kind::Without, Named::Index(1), b"[::1", coded));
    let outcome = serve(&connection(&blocks, Wrap::default()));
    assert_eq!(outcome.streams, [(1, Ended::Answered), (3, Ended::Reset(1))]);
}

#[test]
fn whatever_is_not_ascii_is_mended_in_plain_text() {
    let all: Vec<u8> = (0..=u8::MAX).collect();
    let blocks = [Block::call().literal(Kind::Insert, Named::Index(1), &all, false), Block::call().indexed(62)];
    let outcome = serve(&connection(&blocks, Wrap::default()));
    assert_eq!(outcome.answered(), 2, "{outcome:?}");
}

/// A field that makes the dynamic table exactly full, beside an entry of `other` bytes.
fn filler(other: usize) -> (&'static str, String) {
    let name = "x-filler";
    (name, "/".repeat(4096 - other - 32 - name.len()))
}

#[test]
fn an_entry_is_known_by_its_index_until_the_table_is_full_to_the_byte() {
    for value in ["/run/x.sock", "localhost"] {
        for coded in [false, true] {
            for name in [Named::Index(1), Named::Plain(":authority"), Named::Huffman(":authority")] {
                let (filler, filling) = filler(32 + ":authority".len() + value.len());
                let blocks = [
                    Block::call().literal(Kind::Insert, name, value.as_bytes(), coded),
                    Block::call().literal(Kind::Insert, Named::Huffman(filler), filling.as_bytes(), coded),
                    Block::call().literal(Kind::Without, Named::Index(63), b"/run/y.sock", coded),
                    Block::call().indexed(63),
                ];
                let outcome = serve(&connection(&blocks, Wrap::default()));
                assert_eq!((outcome.answered(), outcome.gone), (blocks.len(), None), "{value} {coded} {name:?} {outcome:?}");
            }
        }
    }
}

#[test]
fn trailers_and_data_between_requests_are_passed_over() {
    let path = "/run/x.sock";
    let block = Block::call().literal(Kind::Insert, Named::Index(1), path.as_bytes(), true);
    let mut head = request(1, &block, Wrap::default());
    // Not the end of the stream.
    head[4] &= !0x1;
    let mut bytes = [PREFACE, &head].concat();
    bytes.extend(wire::frame(0, 0, 1, &[0x41; 1000]));
    bytes.extend(wire::frame(6, 0, 0, b"\x41\x01/\x41\x01/xx"));
    bytes.extend(request(1, &Block::default().literal(Kind::Insert, Named::Plain("x-a"), b"/b", false), Wrap::default()));
    bytes.extend(request(3, &Block::call().indexed(63), Wrap::default()));
    let outcome = serve(&bytes);
    assert_eq!((outcome.answered(), outcome.gone), (2, None), "{outcome:?}");
    assert_eq!(outcome.authorities, vec![Some("3run3x.sock".to_owned()); 2]);
}

#[test]
fn what_is_malformed_passes_as_it_is_from_there_on() {
    let bad = Block::call().literal(Kind::Without, Named::Index(1), b"/run/x", false);
    let good = request(3, &bad, Wrap::default());
    let unpadded = wire::frame(1, 0x4 | 0x8, 1, &[200, 0x83]);
    let unfinished = wire::frame(1, 0x4, 1, &[0x41]);
    let no_entry = wire::frame(1, 0x4, 1, &[0x80 + 62]);
    let endless = wire::frame(1, 0x4, 1, &[0xff; 8]);
    let end_of_string = wire::frame(1, 0x4, 1, &[0x41, 0x84, 0xff, 0xff, 0xff, 0xff]);
    let pushed = wire::frame(5, 0x4, 1, &[0, 0, 0, 2, 0x83]);
    let stray = wire::frame(9, 0x4, 1, &[0x83]);
    let between = [wire::frame(1, 0, 1, &[0x83]), wire::frame(0, 0, 1, b"x")].concat();
    for broken in [unpadded, unfinished, no_entry, endless, end_of_string, pushed, stray, between] {
        let bytes = [PREFACE, &broken, &good].concat();
        assert_eq!(read_whole(&bytes), bytes, "{broken:x?}");
    }
    let bytes = [b"GET / HTTP/1.1\r\n\r\n", &good[..]].concat();
    assert_eq!(read_whole(&bytes), bytes);
}
