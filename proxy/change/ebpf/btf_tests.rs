//! A small kernel's description, and what becomes of it.
#![expect(clippy::cast_possible_truncation, reason = "all of it is small")]

use proptest::prelude::*;

use super::*;

/// Writes BTF, type by type; the first is type 1.
#[derive(Default)]
struct Writer {
    types: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
}

/// A member: its name, its type, its offset in bits, with the width above it in a struct with bit fields.
type Member<'a> = (&'a str, u32, u32);

impl Writer {
    fn string(&mut self, text: &str) -> u32 {
        if self.strings.is_empty() {
            self.strings.push(0);
        }
        if text.is_empty() {
            return 0;
        }
        let at = self.strings.len() as u32;
        self.strings.extend(text.bytes().chain([0]));
        at
    }

    fn add(&mut self, name: &str, kind: u32, entries: usize, flag: bool, size: u32, more: &[u32]) -> u32 {
        let name = self.string(name);
        let info = (kind << 24) | entries as u32 | (u32::from(flag) << 31);
        self.types.extend([name, info, size].iter().chain(more).flat_map(|word| word.to_ne_bytes()));
        self.count += 1;
        self.count
    }

    fn aggregate(&mut self, kind: u32, name: &str, size: u32, bitfields: bool, members: &[Member<'_>]) -> u32 {
        let words: Vec<u32> = members.iter().flat_map(|(name, id, bits)| [self.string(name), *id, *bits]).collect();
        self.add(name, kind, members.len(), bitfields, size, &words)
    }

    fn finish(&self) -> Vec<u8> {
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        let mut bytes = Vec::new();
        bytes.extend(MAGIC.to_ne_bytes());
        bytes.extend([1, 0]);
        bytes.extend([24, 0, types, types, strings].iter().flat_map(|word: &u32| word.to_ne_bytes()));
        bytes.extend(&self.types);
        bytes.extend(&self.strings);
        bytes
    }
}

/// `struct node { int level; union { struct { u64 id; }; u64 other; }; struct node *parent; struct node *all[]; }`, a function of
/// four arguments and a tracepoint of two.
fn kernel() -> Writer {
    let mut btf = Writer::default();
    let int = btf.add("int", kind::INT, 0, false, 4, &[32]);
    let long = btf.add("unsigned long", kind::INT, 0, false, 8, &[64]);
    let u64 = btf.add("u64", kind::TYPEDEF, 0, false, long, &[]);
    let pointer = btf.add("", kind::PTR, 0, false, 9, &[]);
    let array = btf.add("", kind::ARRAY, 0, false, 0, &[pointer, int, 0]);
    let inner = btf.aggregate(kind::STRUCT, "", 8, false, &[("id", u64, 0)]);
    let union = btf.aggregate(kind::UNION, "", 8, false, &[("", inner, 0), ("other", u64, 0)]);
    let tag = btf.add("rcu", kind::TYPE_TAG, 0, false, pointer, &[]);
    let members = [("level", int, 0), ("", union, 64), ("parent", tag, 128), ("all", array, 192)];
    assert_eq!(btf.aggregate(kind::STRUCT, "node", 24, false, &members), 9);
    let prototype = btf.add("", kind::FUNC_PROTO, 4, false, long, &[0, pointer, 0, pointer, 0, long, 0, long]);
    btf.add("write", kind::FUNC, 0, false, prototype, &[]);
    let prototype = btf.add("", kind::FUNC_PROTO, 3, false, 0, &[0, pointer, 0, pointer, 0, pointer]);
    let to = btf.add("", kind::PTR, 0, false, prototype, &[]);
    btf.add("btf_trace_made", kind::TYPEDEF, 0, false, to, &[]);
    btf
}

/// Everything that is asked of it.
fn answers(bytes: &[u8]) -> Vec<Result<u32, BtfError>> {
    let btf = match Btf::parse(bytes) {
        Ok(btf) => btf,
        Err(error) => return vec![Err(error)],
    };
    let arguments = |found: Result<usize, BtfError>| found.map(|count| count as u32);
    vec![
        btf.field("node", "level", Shape::Integer(4)),
        btf.field("node", "id", Shape::Integer(8)),
        btf.field("node", "parent", Shape::PointerTo("node")),
        btf.field("node", "all", Shape::PointersTo("node")),
        arguments(btf.arguments("write")),
        arguments(btf.tracepoint_arguments("made")),
    ]
}

fn strange(btf: &Writer, name: &'static str, shape: Shape) -> String {
    match Btf::parse(&btf.finish()).unwrap().field("node", name, shape) {
        Err(BtfError::Strange { what, why }) => format!("{what}: {why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn fields_are_found_through_typedefs_tags_and_anonymous_unions() {
    assert_eq!(answers(&kernel().finish()), [Ok(0), Ok(8), Ok(16), Ok(24), Ok(4), Ok(2)]);
}

#[test]
fn a_field_of_another_shape_is_refused_by_its_name() {
    let btf = kernel();
    assert_eq!(strange(&btf, "level", Shape::Integer(8)), "node.level: it is no integer of 8 bytes");
    assert_eq!(strange(&btf, "parent", Shape::PointerTo("inode")), "node.parent: it does not point to a inode");
    assert_eq!(strange(&btf, "level", Shape::Pointer), "node.level: it is no pointer");
    assert_eq!(strange(&btf, "parent", Shape::Integers(8)), "node.parent: it is no array");
    assert_eq!(
        Btf::parse(&btf.finish()).unwrap().field("node", "missing", Shape::Pointer),
        Err(BtfError::Missing("node.missing".to_owned()))
    );
}

#[test]
fn bit_fields_odd_offsets_and_offsets_beyond_the_struct_are_refused() {
    for (flag, bits, why) in
        [(true, 4 << 24, "bit field"), (true, 3, "bit 3"), (false, 17, "bit 17"), (false, 8 * 4096, "begins at 4096")]
    {
        let mut btf = Writer::default();
        let int = btf.add("int", kind::INT, 0, false, 4, &[32]);
        btf.aggregate(kind::STRUCT, "node", 64, flag, &[("level", int, bits)]);
        let found = strange(&btf, "level", Shape::Integer(4));
        assert!(found.contains(why), "{found}");
    }
}

#[test]
fn two_structs_of_one_name_that_differ_are_refused() {
    let mut btf = kernel();
    btf.aggregate(kind::STRUCT, "node", 64, false, &[("level", 1, 32)]);
    assert_eq!(strange(&btf, "level", Shape::Integer(4)), "node.level: there are several structs of that name");
}

#[test]
fn anonymous_structs_that_hold_each_other_many_times_over_end_in_an_error() {
    let mut btf = Writer::default();
    // Eight of the next in each: all of them together are more than anybody can visit.
    for next in 2..18 {
        btf.aggregate(kind::STRUCT, if next == 2 { "node" } else { "" }, 64, false, &[("", next, 0); 8]);
    }
    btf.aggregate(kind::STRUCT, "", 64, false, &[("other", 1, 0)]);
    let bytes = btf.finish();
    let found = Btf::parse(&bytes).unwrap().field("node", "level", Shape::Integer(4));
    assert!(matches!(found, Err(BtfError::Dangling(_))), "{found:?}");
}

#[test]
fn types_in_circles_end_in_an_error() {
    let mut btf = Writer::default();
    btf.add("a", kind::TYPEDEF, 0, false, 2, &[]);
    btf.add("b", kind::TYPEDEF, 0, false, 1, &[]);
    btf.aggregate(kind::STRUCT, "node", 64, false, &[("level", 1, 0), ("", 3, 0)]);
    let bytes = btf.finish();
    let btf = Btf::parse(&bytes).unwrap();
    assert!(matches!(btf.field("node", "level", Shape::Integer(4)), Err(BtfError::Dangling(_))));
    assert!(matches!(btf.field("node", "other", Shape::Integer(4)), Err(BtfError::Dangling(_))));
}

#[test]
fn a_kind_of_type_from_the_future_is_named() {
    let mut btf = kernel();
    btf.add("new", 31, 0, false, 0, &[]);
    assert_eq!(Btf::parse(&btf.finish()).unwrap_err(), BtfError::Kind(31));
}

#[test]
fn cut_off_anywhere_it_gives_no_offset_but_the_right_ones() {
    let whole = kernel().finish();
    let right = answers(&whole);
    for length in 0..whole.len() {
        let found = answers(&whole[..length]);
        assert!(found.iter().all(Result::is_err), "at {length} of {}: {found:?}, whole: {right:?}", whole.len());
    }
}

#[test]
fn the_running_kernels_structs_are_as_the_programs_need_them() {
    let Ok(bytes) = std::fs::read("/sys/kernel/btf/vmlinux") else {
        eprintln!("not on this kernel: /sys/kernel/btf/vmlinux");
        return;
    };
    let kernel = crate::change::ebpf::kernel::Kernel::of(&Btf::parse(&bytes).unwrap());
    assert_eq!((&kernel.cgroup, &kernel.file), (&Ok(()), &Ok(())));
    assert!(kernel.rename.is_ok(), "{:?}", kernel.rename);
    assert_eq!(kernel.arguments.get("cgroup_mkdir"), Some(&Ok(2)));
    assert_eq!(kernel.arguments.get("cpuset_write_resmask"), Some(&Ok(4)));
}

proptest! {
    #[test]
    fn any_bytes_are_an_answer_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        let mut headed = kernel().finish()[..24].to_vec();
        headed.extend(&bytes);
        let _answer = answers(&bytes);
        let _answer = answers(&headed);
    }

    #[test]
    fn a_byte_changed_anywhere_is_an_answer_or_an_error(at in 0..1000usize, to in any::<u8>()) {
        let mut bytes = kernel().finish();
        let length = bytes.len();
        bytes[at % length] = to;
        let _answer = answers(&bytes);
    }
}
