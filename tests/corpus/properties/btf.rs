//! The kernel's types: any bytes are read, in little time, and what is wrong with them is told.

use podresources_proxy::fuzzing::kernel_types;

use super::source::Source;

pub(crate) fn check(input: &[u8]) {
    let mut source = Source(input);
    let bytes = if source.below(3) == 0 { source.0.to_vec() } else { written(&mut source) };
    let said = kernel_types(&bytes);
    assert!(!said.is_empty());
}

/// The names that the programs look for, and one that they do not.
const NAMES: [&str; 24] = [
    "",
    "cgroup",
    "kn",
    "level",
    "root",
    "cgroup_root",
    "hierarchy_id",
    "kernfs_node",
    "id",
    "name",
    "task_struct",
    "pid",
    "ancestors",
    "ancestor_ids",
    "kernfs_open_file",
    "__parent",
    "parent",
    "priv",
    "dentry",
    "vfs_rename",
    "renamedata",
    "btf_trace_cgroup_mkdir",
    "old_dentry",
    "other",
];

/// Types whose lengths are right.
fn written(source: &mut Source<'_>) -> Vec<u8> {
    let mut strings = Vec::new();
    let places = NAMES.map(|name| {
        let place = u32::try_from(strings.len()).unwrap();
        strings.extend(name.bytes().chain([0]));
        place
    });
    let mut types = Vec::new();
    while !source.is_empty() {
        let (kind, entries) = (source.byte(), source.below(8));
        let mut word = |wide: bool| match source.byte() {
            255 if wide => u32::MAX,
            byte => u32::from(byte),
        };
        let name = places[word(false) as usize % NAMES.len()];
        let info = u32::from(kind & 0x1f) << 24 | u32::from(entries) | u32::from(kind & 0x80) << 24;
        let mut words = vec![name, info, word(true)];
        match kind & 0x1f {
            4 | 5 | 15 | 19 => {
                for _ in 0..entries {
                    let name = places[word(false) as usize % NAMES.len()];
                    words.extend([name, word(true), word(true).wrapping_mul(8)]);
                }
            }
            6 | 13 => words.extend((0..2 * entries).map(|_| word(true))),
            3 => words.extend([word(true), word(true), word(true)]),
            1 | 14 | 17 => words.push(word(true)),
            _ => {}
        }
        types.extend(words.into_iter().flat_map(u32::to_ne_bytes));
    }
    let (of_types, of_strings) = (u32::try_from(types.len()).unwrap(), u32::try_from(strings.len()).unwrap());
    let mut bytes = 0xeb9f_u16.to_ne_bytes().to_vec();
    bytes.extend([1, 0]);
    bytes.extend([24, 0, of_types, of_types, of_strings].into_iter().flat_map(u32::to_ne_bytes));
    bytes.extend(types);
    bytes.extend(strings);
    bytes
}
