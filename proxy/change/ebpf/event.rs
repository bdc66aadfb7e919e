//! One event, for logs and for whoever wants to know more than that something changed.

use std::time::Duration;

use podresources_proxy_ebpf_common::{NAMES_LEAF_FIRST, PATH_BYTES, Record};

use crate::source::host::{Change, ChangeKind};

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

/// Names in a path that is put together from them are cut off there.
const LONGEST_NAME: usize = 126;

/// What an event says of the cgroups below kubepods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Says {
    /// Nothing.
    Nothing,
    /// One has changed.
    Changed(Change),
    /// One has changed, and it cannot be told which.
    Unplaced,
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

impl Event {
    /// What it says of the cgroups below kubepods.
    pub(super) fn says(&self) -> Says {
        let kind = match self.kind {
            Kind::Mkdir => ChangeKind::Made,
            Kind::Rmdir | Kind::Release => ChangeKind::Removed,
            Kind::Cpuset => ChangeKind::Written,
            Kind::Rename | Kind::Attach | Kind::Populated => return Says::Nothing,
        };
        // Long paths and names are cut off, and a path that is put together may lack its upper names.
        let whole = self.path.len() < PATH_BYTES - 1 && self.path.split('/').all(|name| name.len() < LONGEST_NAME);
        if whole && self.path.contains("kubepods") {
            Says::Changed(Change { cgroup: self.path.trim_matches('/').to_owned(), kind })
        } else {
            Says::Unplaced
        }
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
    fn what_an_event_says_of_kubepods_is_a_change_only_where_its_place_is_whole() {
        let says = |kind: Kind, flags, path: &str| Event::read(&bytes(kind as u32, flags, path.as_bytes(), b"")).unwrap().says();
        let change = |cgroup: &str, kind| Says::Changed(Change { cgroup: cgroup.to_owned(), kind });
        assert_eq!(says(Kind::Mkdir, 0, "/kubepods/pod1\0"), change("kubepods/pod1", ChangeKind::Made));
        assert_eq!(says(Kind::Cpuset, NAMES_LEAF_FIRST, "c1\0kubepods\0"), change("kubepods/c1", ChangeKind::Written));
        assert_eq!(says(Kind::Cpuset, NAMES_LEAF_FIRST, "c1\0pod1\0"), Says::Unplaced, "the upper names are missing");
        assert_eq!(says(Kind::Cpuset, NAMES_LEAF_FIRST, &format!("{}\0kubepods\0", "c".repeat(127))), Says::Unplaced);
        assert_eq!(says(Kind::Rmdir, 0, &format!("/kubepods/{}", "a/".repeat(187))), Says::Unplaced);
        assert_eq!(says(Kind::Rename, 0, "kubepods\0"), Says::Nothing);
    }

    #[test]
    fn what_is_no_record_is_no_event() {
        assert_eq!(Event::read(&[]), None);
        assert_eq!(Event::read(&bytes(99, 0, b"", b"")), None);
    }
}
