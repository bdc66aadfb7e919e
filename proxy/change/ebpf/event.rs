//! One event, for logs and for whoever wants to know more than that something changed.

use std::time::Duration;

use podresources_proxy_ebpf_common::{NAMES_LEAF_FIRST, Record};

pub use podresources_proxy_ebpf_common::{Kind, Role};

/// Something that a program saw. Events may be lost; the words never are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: Kind,
    /// The hierarchy's number, 0 for version 2. For a rename, the directory's [`Role`].
    pub hierarchy: i32,
    /// The cgroup's id in its hierarchy, which is its inode number; for a rename, the directory's inode number.
    pub id: u64,
    /// The cgroup's path in its hierarchy, with a slash at the beginning; for a rename, the file's new name.
    pub path: String,
    /// The new cpuset, as it was written.
    pub text: Option<String>,
    /// The process that did it; for an attach, the one that was moved.
    pub pid: u32,
    /// For [`Kind::Populated`]: whether the cgroup has processes now.
    pub populated: bool,
    /// `CLOCK_MONOTONIC` when the program ran.
    pub at: Duration,
}

// === impl Event ===

impl Event {
    /// The event in a record's bytes; `None` where they are none that we know.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let record = Record::read(bytes)?;
        let kind = Kind::of(record.kind)?;
        let path = if record.flags & NAMES_LEAF_FIRST == 0 {
            String::from_utf8_lossy(record.path()).into_owned()
        } else {
            let mut path = String::new();
            for name in record.path().split(|byte| *byte == 0).rev() {
                path.push('/');
                path.push_str(&String::from_utf8_lossy(name));
            }
            path
        };
        let text = (kind == Kind::Cpuset).then(|| String::from_utf8_lossy(record.text()).trim().to_owned());
        Some(Self {
            kind,
            hierarchy: record.hierarchy,
            id: record.id,
            path,
            text,
            pid: record.pid,
            populated: record.value != 0,
            at: Duration::from_nanos(record.ktime),
        })
    }
}

#[cfg(test)]
mod tests {
    use podresources_proxy_ebpf_common::PATH_BYTES;

    use super::*;

    /// A record's bytes, as the program would have filled them.
    fn bytes(kind: u32, flags: u32, path: &[u8], text: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; size_of::<Record>()];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &1_500_000_000u64.to_ne_bytes());
        put(16, &kind.to_ne_bytes());
        put(32, &flags.to_ne_bytes());
        put(36, &u32::try_from(path.len()).unwrap().to_ne_bytes());
        put(40, &u32::try_from(text.len()).unwrap().to_ne_bytes());
        put(48, path);
        put(48 + PATH_BYTES, text);
        bytes
    }

    #[test]
    fn a_path_is_the_same_whether_it_came_whole_or_by_names_from_below() {
        let whole = Event::read(&bytes(0, 0, b"/kubepods/pod1/c1\0", b"")).unwrap();
        let names = Event::read(&bytes(5, NAMES_LEAF_FIRST, b"c1\0pod1\0kubepods\0", b"0-3\n\0")).unwrap();
        assert_eq!(whole.path, "/kubepods/pod1/c1");
        assert_eq!(names.path, whole.path);
        assert_eq!((whole.text, names.text.as_deref()), (None, Some("0-3")));
        assert_eq!(names.at, Duration::from_millis(1500));
    }

    #[test]
    fn what_is_no_record_is_no_event() {
        assert_eq!(Event::read(&[]), None);
        assert_eq!(Event::read(&bytes(99, 0, b"", b"")), None);
    }
}
