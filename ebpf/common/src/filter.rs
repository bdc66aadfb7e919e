//! Which events count. Written by the proxy through a mapping, read by the programs while they run.

/// How many kubepods roots are told apart. With more, every cgroup of the hierarchies counts.
pub const ROOTS: usize = 16;
/// How many of the kubelet's directories are watched for renames.
pub const DIRECTORIES: usize = 8;
/// The longest path prefix, in words of eight bytes.
pub const PREFIX_WORDS: usize = 16;
/// In [`Filter::hierarchies`]: no hierarchy.
pub const NO_HIERARCHY: i32 = -1;

/// What a directory of the kubelet holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Role {
    /// The state files: what List shows.
    State = 0,
    /// The device plugins' sockets and the checkpoint: what is allocatable, too.
    Plugins = 1,
    /// The podresources socket.
    Socket = 2,
}

/// A kubepods root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Root {
    /// The cgroup's id in its hierarchy, which is its inode number.
    pub id: u64,
    /// The hierarchy's number, 0 for version 2.
    pub hierarchy: i32,
    /// How many cgroups are above it.
    pub level: u32,
}

/// The same root for kernels without BTF, where only the path is known: the path and a slash, compared word by word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Prefix {
    /// The bytes, as words of the machine.
    pub words: [u64; PREFIX_WORDS],
    /// Which bits of them count.
    pub masks: [u64; PREFIX_WORDS],
}

/// A directory of the kubelet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Directory {
    /// The inode's number.
    pub inode: u64,
    /// The device, as the kernel has it: major number << 20 | minor number.
    pub device: u32,
    /// A [`Role`].
    pub role: u32,
}

/// What counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Filter {
    /// The value of [`crate::words::LATE`] that was read before the roots were looked for.
    pub late_seen: u64,
    /// The hierarchies that count at all: version 2's and the cpuset controller's.
    pub hierarchies: [i32; 2],
    /// Not 0: every cgroup of these hierarchies counts.
    pub everything: u32,
    /// How many of `roots` and `prefixes` are there.
    pub roots_len: u32,
    /// How many of `directories` are there.
    pub directories_len: u32,
    /// Zero.
    pub reserved: u32,
    /// The kubepods roots.
    pub roots: [Root; ROOTS],
    /// The same, by path.
    pub prefixes: [Prefix; ROOTS],
    /// The kubelet's directories.
    pub directories: [Directory; DIRECTORIES],
}

/// Two filters, so that one can be written while the programs read the other.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Filters {
    /// Which of the two counts; only its lowest bit is looked at.
    pub active: u64,
    /// The two.
    pub banks: [Filter; 2],
}

const _: () = assert!(size_of::<Root>() == 16 && size_of::<Prefix>() == 256 && size_of::<Directory>() == 16);
const _: () = assert!(size_of::<Filter>() == 32 + ROOTS * (16 + 256) + DIRECTORIES * 16);
const _: () = assert!(size_of::<Filters>() == 8 + 2 * size_of::<Filter>());

// === impl Prefix ===

impl Prefix {
    /// Matches nothing that a path can be: its first byte would be NUL.
    pub const NONE: Self = Self { words: [0; PREFIX_WORDS], masks: [u64::MAX; PREFIX_WORDS] };

    /// The prefix for a root of this path, without a slash at its end. `None` where it is too long.
    #[must_use]
    pub fn of(path: &[u8]) -> Option<Self> {
        let mut bytes = [0u8; PREFIX_WORDS * 8];
        let mut mask = [0u8; PREFIX_WORDS * 8];
        bytes.get_mut(..path.len())?.copy_from_slice(path);
        *bytes.get_mut(path.len())? = b'/';
        mask.get_mut(..=path.len())?.fill(0xff);
        let mut prefix = Self { words: [0; PREFIX_WORDS], masks: [0; PREFIX_WORDS] };
        for (index, (bytes, mask)) in bytes.chunks_exact(8).zip(mask.chunks_exact(8)).enumerate() {
            prefix.words[index] = word(bytes);
            prefix.masks[index] = word(mask);
        }
        Some(prefix)
    }
}

fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(bytes);
    u64::from_ne_bytes(word)
}

// === impl Filter ===

impl Filter {
    /// Lets nothing through.
    pub const NOTHING: Self = Self {
        late_seen: 0,
        hierarchies: [NO_HIERARCHY; 2],
        everything: 0,
        roots_len: 0,
        directories_len: 0,
        reserved: 0,
        roots: [Root { id: 0, hierarchy: 0, level: 0 }; ROOTS],
        prefixes: [Prefix::NONE; ROOTS],
        directories: [Directory { inode: 0, device: 0, role: 0 }; DIRECTORIES],
    };

    /// The filter as the words that a mapping takes, one after the other.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        // SAFETY: the type is a whole number of aligned words of plain integers, without padding.
        unsafe { core::slice::from_raw_parts(core::ptr::from_ref(self).cast(), size_of::<Self>() / 8) }
    }
}

// === impl Filters ===

impl Filters {
    /// Index of [`Filters::active`] among the words of the mapping.
    pub const ACTIVE: usize = 0;

    /// Index of a bank's first word.
    #[must_use]
    pub const fn bank(bank: usize) -> usize {
        1 + bank * (size_of::<Filter>() / 8)
    }
}

const _: () = assert!(core::mem::offset_of!(Filters, banks) == 8 * Filters::bank(0) && size_of::<Filter>().is_multiple_of(8));

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(prefix: &Prefix, path: &str) -> bool {
        let mut bytes = [0u8; PREFIX_WORDS * 8];
        bytes[..path.len()].copy_from_slice(path.as_bytes());
        bytes[path.len()] = b'/';
        bytes.chunks_exact(8).enumerate().all(|(i, chunk)| (word(chunk) ^ prefix.words[i]) & prefix.masks[i] == 0)
    }

    #[test]
    fn a_prefix_matches_the_root_and_what_is_below_it_and_no_neighbour() {
        let prefix = Prefix::of(b"/kubelet.slice/kubelet-kubepods.slice").unwrap();
        assert!(matches(&prefix, "/kubelet.slice/kubelet-kubepods.slice"));
        assert!(matches(&prefix, "/kubelet.slice/kubelet-kubepods.slice/a/b"));
        assert!(!matches(&prefix, "/kubelet.slice/kubelet-kubepods.slice2"));
        assert!(!matches(&prefix, "/kubelet.slice"));
        assert!(!matches(&prefix, "/"));
        assert!(!matches(&Prefix::NONE, "/"));
    }

    #[test]
    fn a_filter_is_the_same_as_words() {
        let mut filter = Filter::NOTHING;
        filter.late_seen = 3;
        filter.hierarchies = [0, 4];
        filter.directories[DIRECTORIES - 1] = Directory { inode: 9, device: 8, role: 2 };
        let words = filter.words();
        assert_eq!(words[0], 3);
        assert_eq!(words[1].to_ne_bytes(), {
            let mut b = [0; 8];
            b[4] = 4;
            b
        });
        assert_eq!(words[words.len() - 2], 9);
        assert_eq!(words.len() * 8, size_of::<Filter>());
    }

    #[test]
    fn a_path_too_long_for_a_prefix_is_none() {
        assert!(Prefix::of(&[b'a'; PREFIX_WORDS * 8 - 1]).is_some());
        assert!(Prefix::of(&[b'a'; PREFIX_WORDS * 8]).is_none());
    }
}
