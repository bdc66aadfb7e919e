//! As much of HPACK's tables (RFC 7541, section 2.3) as is needed to know which index means which name: for each entry its sizes and
//! whether it is one of the names that matter. No text is kept.

use std::collections::VecDeque;

use super::Malformed;

/// A field name, as far as it matters here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Name {
    Authority,
    Method,
    Scheme,
    Path,
    #[default]
    Other,
}

/// An entry of the static or the dynamic table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) name: Name,
    /// In bytes, decoded.
    pub(super) name_len: u16,
    /// The value has no bytes.
    pub(super) empty: bool,
    /// As RFC 7541, section 4.1, counts it.
    size: u16,
}

/// The dynamic table. At most `MAX_SIZE / OVERHEAD` entries of 8 bytes; none is held before the client inserts one.
#[derive(Debug)]
pub(super) struct Table {
    /// Newest first.
    entries: VecDeque<Entry>,
    size: u32,
    max: u32,
}

/// What `SETTINGS_HEADER_TABLE_SIZE` is unless a server says otherwise, and `hyper` does not.
const MAX_SIZE: u32 = 4096;

/// Entries that room is made for at the first: more than a gRPC client inserts with its first request.
const USUAL: usize = 16;

/// Bytes that each entry counts beside its name and value (RFC 7541, section 4.1).
const OVERHEAD: u32 = 32;

/// The static table, from index 1.
static STATIC: [Entry; NAMES.len()] = static_entries();

/// The names in the static table (RFC 7541, appendix A), from index 1.
const NAMES: [&str; 61] = [
    ":authority",
    ":method",
    ":method",
    ":path",
    ":path",
    ":scheme",
    ":scheme",
    ":status",
    ":status",
    ":status",
    ":status",
    ":status",
    ":status",
    ":status",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "accept",
    "access-control-allow-origin",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-range",
    "content-type",
    "cookie",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "link",
    "location",
    "max-forwards",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "refresh",
    "retry-after",
    "server",
    "set-cookie",
    "strict-transport-security",
    "transfer-encoding",
    "user-agent",
    "vary",
    "via",
    "www-authenticate",
];

#[expect(clippy::cast_possible_truncation, reason = "a static name has at most 27 bytes")]
const fn static_entries() -> [Entry; NAMES.len()] {
    let mut entries = [Entry { name: Name::Other, name_len: 0, empty: false, size: 0 }; NAMES.len()];
    let mut at = 0;
    while at < NAMES.len() {
        entries[at].name = Name::of(NAMES[at].as_bytes());
        entries[at].name_len = NAMES[at].len() as u16;
        at += 1;
    }
    // Which of the others have no value is of no interest.
    entries[0].empty = true;
    entries
}

// === impl Name ===

impl Name {
    /// The longest name that matters, in bytes.
    pub(super) const LONGEST: usize = ":authority".len();

    pub(super) const fn of(text: &[u8]) -> Self {
        match text {
            b":authority" => Self::Authority,
            b":method" => Self::Method,
            b":scheme" => Self::Scheme,
            b":path" => Self::Path,
            _ => Self::Other,
        }
    }
}

// === impl Table ===

impl Default for Table {
    fn default() -> Self {
        Self { entries: VecDeque::new(), size: 0, max: MAX_SIZE }
    }
}

impl Table {
    /// The entry at `index`, counted as on the wire: the static table from 1, then the dynamic one, newest first.
    pub(super) fn get(&self, index: u32) -> Result<Entry, Malformed> {
        let at = (index as usize).checked_sub(1).ok_or(Malformed)?;
        let entry = STATIC.get(at).or_else(|| self.entries.get(at - STATIC.len()));
        entry.copied().ok_or(Malformed)
    }

    /// Inserts an entry; lengths are in bytes, decoded. One that is larger than the table empties it (RFC 7541, section 4.4).
    pub(super) fn insert(&mut self, name: Name, name_len: u32, value_len: u32) {
        let size = name_len.saturating_add(value_len).saturating_add(OVERHEAD);
        self.evict(self.max.saturating_sub(size));
        if let (true, Ok(name_len), Ok(short)) = (size <= self.max, name_len.try_into(), size.try_into()) {
            if self.entries.capacity() == 0 {
                self.entries.reserve(USUAL);
            }
            self.entries.push_front(Entry { name, name_len, empty: value_len == 0, size: short });
            self.size += size;
        }
    }

    /// A dynamic table size update.
    pub(super) fn resize(&mut self, max: u32) -> Result<(), Malformed> {
        if max > MAX_SIZE {
            return Err(Malformed);
        }
        self.max = max;
        self.evict(max);
        Ok(())
    }

    fn evict(&mut self, down_to: u32) {
        while self.size > down_to
            && let Some(oldest) = self.entries.pop_back()
        {
            self.size -= u32::from(oldest.size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_leave_oldest_first_when_the_table_is_full() {
        let mut table = Table::default();
        table.insert(Name::Authority, 10, 2000);
        table.insert(Name::Other, 10, 2000);
        assert_eq!(table.get(63).unwrap().name, Name::Authority);
        table.insert(Name::Path, 5, 0);
        assert_eq!(table.get(62).unwrap().name, Name::Path);
        assert_eq!(table.get(63).unwrap().name, Name::Other);
        assert!(table.get(64).is_err());
    }

    #[test]
    fn an_entry_larger_than_the_table_empties_it() {
        let mut table = Table::default();
        table.insert(Name::Path, 5, 0);
        table.insert(Name::Other, u32::MAX, 3);
        assert!(table.get(62).is_err());
        table.insert(Name::Path, 5, 4096 - 32 - 5);
        assert!(table.get(62).is_ok());
    }

    #[test]
    fn a_smaller_table_evicts_and_a_larger_one_than_was_granted_is_malformed() {
        let mut table = Table::default();
        table.insert(Name::Other, 8, 0);
        table.insert(Name::Path, 5, 0);
        table.resize(37).unwrap();
        assert!(table.get(62).is_ok() && table.get(63).is_err());
        assert!(table.resize(4097).is_err());
    }

    #[test]
    fn the_table_never_holds_more_entries_than_its_size_allows() {
        let mut table = Table::default();
        for _ in 0..10_000 {
            table.insert(Name::Other, 0, 0);
        }
        assert_eq!(table.entries.len(), 128);
        assert!(table.get(0).is_err() && table.get(62 + 128).is_err() && table.get(u32::MAX).is_err());
    }
}
