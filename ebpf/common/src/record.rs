//! One event, as it travels through the ring buffer. Detail only: a record lost costs no freshness.

/// The longest path in a record, with its NUL. Longer ones are cut off.
pub const PATH_BYTES: usize = 384;
/// The longest text in a record (a mask, a partition's type), with its NUL.
pub const TEXT_BYTES: usize = 128;

/// [`Record::flags`]: the path is the names from the cgroup upwards, each ended by NUL, instead of a path from the root.
pub const NAMES_LEAF_FIRST: u32 = 1;

/// What happened. The numbers are the programs' and the proxy's alone: both are built together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// A cgroup was made.
    Mkdir = 0,
    /// A cgroup was removed.
    Rmdir = 1,
    /// The last reference to a removed cgroup is gone.
    Release = 2,
    /// A task was moved into a cgroup. Chatter: counts as no change.
    Attach = 3,
    /// A cgroup got its first process, or lost its last. Chatter: counts as no change.
    Populated = 4,
    /// A `cpuset.*` file was written, with something else than was there last.
    Cpuset = 5,
    /// A file was renamed into one of the kubelet's directories.
    Rename = 6,
}

/// An event.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Record {
    /// Nanoseconds of `CLOCK_MONOTONIC` when the program ran.
    pub ktime: u64,
    /// The cgroup's id in its hierarchy, which is its inode number; for a rename, the directory's inode number.
    pub id: u64,
    /// A [`Kind`].
    pub kind: u32,
    /// The hierarchy's number, 0 for version 2; for a rename, the directory's [`crate::Role`].
    pub hierarchy: i32,
    /// The process that did it; for [`Kind::Attach`], the one that was moved.
    pub pid: u32,
    /// For [`Kind::Populated`], whether the cgroup has processes now.
    pub value: u32,
    /// [`NAMES_LEAF_FIRST`] or nothing.
    pub flags: u32,
    /// Bytes of `path` that mean something, with the last NUL.
    pub path_len: u32,
    /// Bytes of `text` that mean something, with the NUL.
    pub text_len: u32,
    /// Zero.
    pub reserved: u32,
    /// Where: the cgroup's path in its hierarchy; for a rename, the new name.
    pub path: [u8; PATH_BYTES],
    /// For [`Kind::Cpuset`], what was written.
    pub text: [u8; TEXT_BYTES],
}

const _: () = assert!(size_of::<Record>() == 48 + PATH_BYTES + TEXT_BYTES && align_of::<Record>() == 8);

// === impl Record ===

impl Record {
    /// The record in these bytes, which come from the ring buffer. `None` where there are too few.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < size_of::<Self>() {
            return None;
        }
        // SAFETY: there are enough bytes, any of them are a valid record, and nothing is said about their alignment.
        Some(unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }

    /// The path's bytes, without the last NUL.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        until_nul(&self.path, self.path_len)
    }

    /// The text's bytes, without the NUL.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        until_nul(&self.text, self.text_len)
    }
}

fn until_nul(bytes: &[u8], length: u32) -> &[u8] {
    let end = (length as usize).min(bytes.len()).saturating_sub(1);
    &bytes[..end]
}

// === impl Kind ===

impl Kind {
    /// Every kind, in the order of its number.
    pub const ALL: [Self; 7] = [Self::Mkdir, Self::Rmdir, Self::Release, Self::Attach, Self::Populated, Self::Cpuset, Self::Rename];

    /// The kind of this number.
    #[must_use]
    pub const fn of(number: u32) -> Option<Self> {
        if (number as usize) < Self::ALL.len() { Some(Self::ALL[number as usize]) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_its_way_through_bytes_and_lengths_beyond_it_do_no_harm() {
        let mut bytes = [0u8; size_of::<Record>() + 1];
        bytes[1..9].copy_from_slice(&7u64.to_ne_bytes());
        bytes[9..17].copy_from_slice(&42u64.to_ne_bytes());
        bytes[17..21].copy_from_slice(&5u32.to_ne_bytes());
        bytes[37..41].copy_from_slice(&3u32.to_ne_bytes());
        bytes[41..45].copy_from_slice(&u32::MAX.to_ne_bytes());
        bytes[49..52].copy_from_slice(b"/a\0");
        let record = Record::read(&bytes[1..]).unwrap();
        assert_eq!((record.ktime, record.id, Kind::of(record.kind)), (7, 42, Some(Kind::Cpuset)));
        assert_eq!(record.path(), b"/a");
        assert_eq!(record.text().len(), TEXT_BYTES - 1);
        assert!(Record::read(&bytes[2..]).is_none());
    }

    #[test]
    fn a_kind_is_found_by_its_number_and_no_other_is() {
        for kind in Kind::ALL {
            assert_eq!(Kind::of(kind as u32), Some(kind));
        }
        assert_eq!(Kind::of(7), None);
        assert_eq!(Kind::of(u32::MAX), None);
    }
}
