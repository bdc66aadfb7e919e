//! fanotify's events with file handles (`FAN_REPORT_DFID_NAME`), as bytes: `fanotify(7)`, `struct fanotify_event_metadata` and
//! `struct fanotify_event_info_fid`.

/// Which cgroup in which hierarchy: the file system's id, and the kernfs node's, which is the cgroup's id and its directory's inode.
pub(super) type Key = (u64, u64);

/// `FAN_REPORT_DFID_NAME`'s record: the directory's handle and the entry's name.
const INFO_DFID_NAME: u8 = 2;
/// `FILEID_KERNFS`: the handle is the node's id.
const HANDLE_KERNFS: i32 = 0xfe;
/// The length of `struct fanotify_event_metadata`.
const METADATA: usize = 24;

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event<'a> {
    /// `FAN_…`
    pub(super) mask: u64,
    /// The directory in which it happened, where it was told.
    pub(super) dir: Option<Key>,
    /// The entry's name; empty where it was not told.
    pub(super) name: &'a [u8],
}

/// The events in what was read. Stops at what it cannot make out.
pub(super) fn events(mut bytes: &[u8]) -> impl Iterator<Item = Event<'_>> {
    std::iter::from_fn(move || {
        let length = number(bytes, 0, u32::from_ne_bytes)? as usize;
        let infos = usize::from(number(bytes, 6, u16::from_ne_bytes)?);
        let mask = number(bytes, 8, u64::from_ne_bytes)?;
        let event = bytes.get(..length).filter(|_| length >= METADATA)?;
        bytes = bytes.get(length..)?;
        let (dir, name) = event.get(infos..).and_then(directory).map_or((None, &[][..]), |(dir, name)| (Some(dir), name));
        Some(Event { mask, dir, name })
    })
}

/// The first record that names a directory's entry.
fn directory(mut records: &[u8]) -> Option<(Key, &[u8])> {
    loop {
        let kind = *records.first()?;
        let length = usize::from(number(records, 2, u16::from_ne_bytes)?);
        let record = records.get(..length).filter(|_| length >= 4)?;
        if kind == INFO_DFID_NAME {
            return entry(record);
        }
        records = records.get(length..)?;
    }
}

/// Header (4 bytes), file system id (8), handle's length and type (4 each), handle, name with its zero.
fn entry(record: &[u8]) -> Option<(Key, &[u8])> {
    let (low, high) = (number(record, 4, u32::from_ne_bytes)?, number(record, 8, u32::from_ne_bytes)?);
    let fsid = u64::from(low) | u64::from(high) << 32;
    let length = number(record, 12, u32::from_ne_bytes)? as usize;
    let kind = number(record, 16, i32::from_ne_bytes)?;
    if kind != HANDLE_KERNFS || length < size_of::<u64>() {
        return None;
    }
    let id = number(record, 20, u64::from_ne_bytes)?;
    let name = record.get(20 + length..)?;
    Some(((fsid, id), name.split(|byte| *byte == 0).next().unwrap_or_default()))
}

fn number<const N: usize, T>(bytes: &[u8], at: usize, read: fn([u8; N]) -> T) -> Option<T> {
    bytes.get(at..at + N)?.try_into().ok().map(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a kernel 6.18 gave for a write to `cpuset.cpus`, with the file's own handle behind (`FAN_REPORT_TARGET_FID`), after a
    /// directory had been made.
    fn recorded() -> Vec<u8> {
        let mut bytes = Vec::new();
        let metadata = |length: u32, mask: u64| {
            let mut bytes = length.to_ne_bytes().to_vec();
            bytes.extend([3, 0]);
            bytes.extend(24_u16.to_ne_bytes());
            bytes.extend(mask.to_ne_bytes());
            bytes.extend((-1_i32).to_ne_bytes());
            bytes.extend(20542_i32.to_ne_bytes());
            bytes
        };
        let info = |kind: u8, id: u64, name: &[u8]| {
            let mut bytes = vec![kind, 0];
            bytes.extend(u16::try_from(28 + name.len()).unwrap().to_ne_bytes());
            bytes.extend(0xabb7_0b66_e006_2bcd_u64.to_ne_bytes());
            bytes.extend(8_u32.to_ne_bytes());
            bytes.extend(0xfe_i32.to_ne_bytes());
            bytes.extend(id.to_ne_bytes());
            bytes.extend(name);
            bytes
        };
        bytes.extend(metadata(56, 0x4000_0100));
        bytes.extend(info(2, 0x696a, b"b\0\0\0"));
        bytes.extend(metadata(92, 2));
        bytes.extend(info(2, 0x696a, b"cpuset.cpus\0"));
        bytes.extend(info(1, 0x696f, b""));
        bytes
    }

    const DIR: Key = (0xabb7_0b66_e006_2bcd, 0x696a);

    #[test]
    fn events_name_the_directory_and_the_entry() {
        let bytes = recorded();
        let read: Vec<Event<'_>> = events(&bytes).collect();
        assert_eq!(
            read,
            [Event { mask: 0x4000_0100, dir: Some(DIR), name: b"b" }, Event { mask: 2, dir: Some(DIR), name: b"cpuset.cpus" }]
        );
    }

    #[test]
    fn whatever_is_cut_off_or_garbled_is_read_without_a_panic() {
        let bytes = recorded();
        for length in 0..bytes.len() {
            assert!(events(&bytes[..length]).count() <= 1, "{length}");
        }
        for at in 0..bytes.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut garbled = bytes.clone();
                garbled[at] = byte;
                assert!(events(&garbled).count() <= 4, "{at}");
            }
        }
    }
}
