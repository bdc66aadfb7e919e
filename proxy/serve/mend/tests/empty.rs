//! An `:authority` with nothing in it, which `h2` refuses, while it does without one.

use super::server::{Ended, Outcome, serve};
use super::wire::{Block, Kind, Named, Wrap};
use super::{connection, filler, read, read_whole};

const POST: u32 = 3;
const HTTP: u32 = 6;
const EMPTY: u32 = 1;

fn outcome(blocks: &[Block]) -> Outcome {
    let bytes = connection(blocks, Wrap::default());
    let whole = read_whole(&bytes);
    assert_eq!(whole.len(), bytes.len());
    for cut in 0..bytes.len() {
        let (a, b) = bytes.split_at(cut);
        assert!(read([a, b], 4096) == whole && read([a, b], 1) == whole, "cut at {cut}");
    }
    serve(&bytes)
}

fn path(block: Block) -> Block {
    block.literal(Kind::Insert, Named::Index(4), b"/v1.PodResourcesLister/List", true)
}

#[test]
fn an_empty_entry_of_the_static_table_is_answered_after_the_other_pseudo_fields() {
    let outcome = outcome(&[Block::call().indexed(EMPTY).content_type(), Block::call().indexed(EMPTY)]);
    assert_eq!((outcome.answered(), outcome.gone), (2, None), "{outcome:?}");
    assert_eq!(outcome.authorities, [None, None]);
}

#[test]
fn an_empty_entry_before_other_pseudo_fields_is_answered() {
    let block = Block::default;
    let blocks = [
        // As nghttp2, as grpc's C core, and turned about.
        path(block().indexed(EMPTY).indexed(POST)).indexed(HTTP),
        path(block()).indexed(EMPTY).indexed(POST).indexed(HTTP).content_type(),
        path(block()).indexed(EMPTY).indexed(HTTP).indexed(POST).content_type(),
        path(block().indexed(HTTP)).indexed(EMPTY).indexed(POST),
        path(block().indexed(POST)).indexed(EMPTY).indexed(HTTP),
        path(block().indexed(EMPTY).indexed(HTTP).indexed(POST)),
        path(block().indexed(EMPTY).indexed(POST).indexed(HTTP)),
    ];
    let outcome = outcome(&blocks[..5]);
    assert_eq!((outcome.answered(), outcome.gone), (5, None), "{outcome:?}");
    // With nothing but the path to come, there is no other byte to send early.
    assert_eq!(serve(&connection(&blocks[5..], Wrap::default())).streams, [(1, Ended::Reset(1)), (3, Ended::Reset(1))]);
}

#[test]
fn an_empty_literal_is_answered_after_the_other_pseudo_fields_and_keeps_its_place_in_the_table() {
    let mut blocks = Vec::new();
    for coded in [false, true] {
        for kind in [Kind::Without, Kind::Never] {
            blocks.push(Block::call().literal(kind, Named::Index(1), b"", coded).content_type());
        }
        let marked = Block::call().literal(Kind::Insert, Named::Index(1), b"", coded);
        blocks.push(marked.literal(Kind::Insert, Named::Plain("x-mark"), b"1", false));
        // The entry by its index, as a whole, and beyond it the mark.
        blocks.push(Block::call().indexed(63).indexed(62));
        blocks.push(Block::call().literal(Kind::Insert, Named::Index(63), b"", coded).content_type());
    }
    let outcome = outcome(&blocks);
    assert_eq!((outcome.answered(), outcome.gone), (blocks.len(), None), "{outcome:?}");
}

#[test]
fn an_empty_literal_takes_no_more_of_the_table_than_the_client_thinks() {
    let (filler, filling) = filler(32 + ":authority".len());
    let blocks = [
        Block::call().literal(Kind::Insert, Named::Index(1), b"", false),
        Block::call().literal(Kind::Insert, Named::Plain(filler), filling.as_bytes(), false),
        Block::call().literal(Kind::Without, Named::Index(63), b"a", false),
    ];
    assert_eq!(serve(&connection(&blocks, Wrap::default())).answered(), blocks.len());
}

#[test]
fn an_empty_literal_with_its_name_spelled_out_is_refused_and_harms_no_other_request() {
    let blocks = [
        Block::call().literal(Kind::Insert, Named::Plain(":authority"), b"", false),
        Block::call().literal(Kind::Without, Named::Index(1), b"/run/x", true),
    ];
    assert_eq!(outcome(&blocks).streams, [(1, Ended::Reset(1)), (3, Ended::Answered)]);
}
