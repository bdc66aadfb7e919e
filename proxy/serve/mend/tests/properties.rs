//! What holds for every input.

use http::uri::Authority;
use proptest::prelude::*;

use super::wire::{Block, Kind, Named, PREFACE, Wrap, frame, huffman, request};
use super::{connection, read, read_whole, serve};
use crate::serve::mend::authority;
use crate::serve::mend::huffman::Bits;

/// `bytes` cut into pieces of the given lengths, over and over.
fn pieces<'a>(mut bytes: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let mut out = Vec::new();
    for length in lengths.iter().cycle() {
        if bytes.is_empty() {
            break;
        }
        let (piece, rest) = bytes.split_at((*length).min(bytes.len()));
        out.push(piece);
        bytes = rest;
    }
    out
}

/// Bytes that look like header blocks, more or less.
fn scraps() -> impl Strategy<Value = Vec<u8>> {
    let scrap = prop_oneof![
        3 => Just(vec![0x83, 0x86]),
        3 => Just(b"\x44\x02/x".to_vec()),
        3 => (any::<[u8; 2]>()).prop_map(|[kind, len]| vec![[0x41, 0x01, 0x11, 0x7e][usize::from(kind % 4)], len % 0x10]),
        3 => Just(b"\x40\x0a:authority".to_vec()),
        3 => "[/%:?|@\\[\\] a-z]{1,12}".prop_map(|text| [vec![0x41], {
            let coded = huffman(text.as_bytes());
            [vec![0x80 + u8::try_from(coded.len()).unwrap()], coded].concat()
        }].concat()),
        1 => Just(vec![0x81]),
        1 => Just(vec![0xbe]),
        1 => Just(vec![0x3f, 0xe1, 0x1f]),
        2 => prop::collection::vec(any::<u8>(), 0..8),
    ];
    prop::collection::vec(scrap, 0..8).prop_map(|scraps| scraps.concat())
}

fn frames() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![4 => Just(1), 2 => Just(9), 1 => any::<u8>()];
    let frame = (kind, any::<u8>(), scraps()).prop_map(|(kind, flags, payload)| frame(kind, flags & 0x2d, 1, &payload));
    prop::collection::vec(frame, 0..6).prop_map(|frames| [PREFACE, &frames.concat()].concat())
}

fn anything() -> impl Strategy<Value = Vec<u8>> {
    let noise = prop::collection::vec(any::<u8>(), 0..200);
    prop_oneof![
        3 => frames(),
        1 => noise.clone(),
        1 => noise.prop_map(|noise| [PREFACE, &noise].concat()),
        1 => (frames(), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut bytes, at, byte)| {
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes
        }),
    ]
}

/// An entry of the table that the test keeps, as a client would.
type Field = (String, usize);

/// A client that inserts fields, and names `:authority` by whatever index it has come to by then.
#[derive(Clone, Debug)]
enum Move {
    Insert { name: String, value: String, coded: bool },
    Authority { value: String, coded: bool, insert: bool },
    Resize(u32),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let value = prop_oneof![4 => "[ -~]{0,40}", 1 => "[a-z/%]{500,1500}"];
    let step = prop_oneof![
        6 => ("x-[a-z]{1,30}", value, any::<bool>()).prop_map(|(name, value, coded)| Move::Insert { name, value, coded }),
        3 => ("[a-z/%.]{1,30}", any::<bool>(), any::<bool>())
            .prop_map(|(value, coded, insert)| Move::Authority { value, coded, insert }),
        1 => prop_oneof![Just(0), Just(4096), 0..4096u32].prop_map(Move::Resize),
    ];
    prop::collection::vec(step, 1..40)
}

/// A client's dynamic table.
struct Client {
    entries: Vec<Field>,
    max: usize,
}

impl Client {
    fn insert(&mut self, name: &str, value: &str) {
        self.entries.insert(0, (name.to_owned(), name.len() + value.len() + 32));
        self.evict();
    }

    fn evict(&mut self) {
        while self.entries.iter().map(|entry| entry.1).sum::<usize>() > self.max {
            self.entries.pop();
        }
    }

    fn index_of_authority(&self) -> u32 {
        // The oldest, so that evictions matter.
        let at = self.entries.iter().rposition(|entry| entry.0 == ":authority");
        at.map_or(1, |at| 62 + u32::try_from(at).unwrap())
    }

    fn requests(moves: &[Move]) -> Vec<Block> {
        let mut client = Self { entries: Vec::new(), max: 4096 };
        let mut blocks = Vec::new();
        for step in moves {
            blocks.push(match step {
                Move::Insert { name, value, coded } => {
                    let block = Block::call().literal(Kind::Insert, Named::Plain(name), value.trim().as_bytes(), *coded);
                    client.insert(name, value.trim());
                    block
                }
                Move::Authority { value, coded, insert } => {
                    let kind = if *insert { Kind::Insert } else { Kind::Without };
                    let block = Block::call().literal(kind, Named::Index(client.index_of_authority()), value.as_bytes(), *coded);
                    if *insert {
                        client.insert(":authority", value);
                    }
                    block
                }
                Move::Resize(max) => {
                    client.max = *max as usize;
                    client.evict();
                    Block([Block::default().resize(*max).0, Block::call().0].concat())
                }
            });
        }
        blocks
    }
}

proptest! {
    #[test]
    fn no_input_panics_or_changes_its_length_and_cuts_change_nothing(
        bytes in anything(), lengths in prop::collection::vec(1usize..20, 1..5), room in 1usize..30,
    ) {
        let whole = read_whole(&bytes);
        prop_assert_eq!(whole.len(), bytes.len());
        prop_assert!(read(pieces(&bytes, &lengths), room) == whole);
    }

    #[test]
    fn in_plain_text_every_authority_becomes_acceptable_and_a_valid_one_stays(
        value in prop_oneof![prop::collection::vec(any::<u8>(), 1..30), "[a-z0-9:/%@.\\[\\]]{1,12}".prop_map(String::into_bytes)],
    ) {
        let mut mended = value.clone();
        authority::Authority::default().mend_plain(&mut mended, true);
        prop_assert!(Authority::try_from(&mended[..]).is_ok(), "{}", String::from_utf8_lossy(&mended));
        // To `http` a bracket may open anywhere; to RFC 3986 it begins the host or is none.
        if Authority::try_from(&value[..]).is_ok() && !value.contains(&b'@') && !value.iter().skip(1).any(|char| *char == b'[') {
            prop_assert_eq!(mended, value);
        }
    }

    #[test]
    fn in_huffman_code_every_authority_of_a_path_or_target_becomes_acceptable_and_a_valid_one_stays(
        value in prop_oneof!["[a-zA-Z0-9:/%@.?|\" ~_+-]{1,30}", "\\[[0-9a-f:]{0,9}\\](:[0-9]{0,5})?", "[a-z:.]{1,9}"],
    ) {
        let coded = huffman(value.as_bytes());
        let mut mended = coded.clone();
        let mut rule = authority::Authority::default();
        let count = rule.mend_huffman(&mut Bits::default(), &mut mended, 0, coded.len()).unwrap();
        prop_assert_eq!(count as usize, value.len());
        let mut text = Vec::new();
        let mut bits = Bits::default();
        for byte in &mended {
            bits.take(*byte, |char, _| text.push(char)).unwrap();
        }
        prop_assert!(Authority::try_from(&text[..]).is_ok(), "{}", String::from_utf8_lossy(&text));
        if Authority::try_from(value.as_bytes()).is_ok() && !value.contains('@') {
            prop_assert_eq!(mended, coded);
        }
    }

    #[test]
    fn huffman_code_is_read_as_it_was_written(text in prop::collection::vec(any::<u8>(), 0..60)) {
        let mut read = Vec::new();
        let mut bits = Bits::default();
        for byte in huffman(&text) {
            bits.take(byte, |char, _| read.push(char)).unwrap();
        }
        let (code, len) = bits.begun();
        prop_assert!(len < 8 && code == (1 << len) - 1);
        prop_assert_eq!(read, text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_authority_named_by_a_dynamic_index_is_mended_through_evictions_and_resizes(moves in moves()) {
        let blocks = Client::requests(&moves);
        let outcome = serve(&connection(&blocks, Wrap::default()));
        prop_assert_eq!((outcome.answered(), outcome.gone), (blocks.len(), None), "{:?}", outcome);
    }

    #[test]
    fn fields_of_other_names_are_never_changed(
        fields in prop::collection::vec(("[a-z-]{1,20}", "[ -~]{0,40}", any::<[bool; 3]>()), 0..20), padding in any::<Option<u8>>(),
    ) {
        let mut bytes = PREFACE.to_vec();
        for stream in 0..2 {
            let mut block = Block::call().literal(Kind::Insert, Named::Index(1), b"localhost", true);
            for (name, value, [insert, named, coded]) in &fields {
                let kind = if *insert { Kind::Insert } else { Kind::Never };
                block = block.literal(kind, if *named { Named::Huffman(name) } else { Named::Plain(name) }, value.as_bytes(), *coded);
            }
            bytes.extend(request(1 + 2 * stream, &block, Wrap { padding, ..Wrap::default() }));
        }
        prop_assert_eq!(read_whole(&bytes), bytes);
    }
}
