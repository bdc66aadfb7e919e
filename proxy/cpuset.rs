//! Sets of CPUs or of memory nodes, as the kernel lists them: `0-3,8`. Pure.

use std::fmt;

/// No kernel that Linux can be built as has more CPUs or memory nodes (`NR_CPUS` is 8192 at most).
pub const MOST: u32 = 8192;

const WORD: u32 = u64::BITS;

/// A set of small numbers.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct CpuSet {
    /// Bit by bit; the last word is never zero, so that equal sets are equal.
    words: Vec<u64>,
}

/// Why a text is no set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// Something other than numbers, commas and ranges.
    #[error("{0:?} is not a list of numbers such as 0-3,8")]
    NotAList(String),
    /// A range that ends before it begins.
    #[error("the range {0:?} ends before it begins")]
    Backwards(String),
    /// A number that no kernel has.
    #[error("{0} is out of range; no kernel has more than {MOST}")]
    OutOfRange(String),
}

// === impl CpuSet ===

impl CpuSet {
    /// Nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { words: Vec::new() }
    }

    /// Reads a list in the kernel's format (`Documentation/admin-guide/cgroup-v2.rst`); white space alone is the empty set.
    pub fn parse(text: &str) -> Result<Self, ListError> {
        let mut set = Self::new();
        let text = text.trim();
        if text.is_empty() {
            return Ok(set);
        }
        for part in text.split(',') {
            let part = part.trim();
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first, part)?, number(last, part)?);
            if last < first {
                return Err(ListError::Backwards(excerpt(part)));
            }
            set.add_range(first, last);
        }
        Ok(set)
    }

    fn add_range(&mut self, first: u32, last: u32) {
        let words = (last / WORD) as usize + 1;
        if self.words.len() < words {
            self.words.resize(words, 0);
        }
        for number in first..=last {
            self.words[(number / WORD) as usize] |= 1 << (number % WORD);
        }
    }

    /// Adds a number below [`MOST`]; a larger one is no CPU and is not added.
    pub fn insert(&mut self, number: u32) {
        if number < MOST {
            self.add_range(number, number);
        }
    }

    /// Whether it is in the set.
    #[must_use]
    pub fn contains(&self, number: u32) -> bool {
        self.words.get((number / WORD) as usize).is_some_and(|word| word & (1 << (number % WORD)) != 0)
    }

    /// How many numbers are in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// All of its numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.words.iter().zip(0_u32..).flat_map(|(&word, at)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                rest &= rest - 1;
                Some(at * WORD + bit)
            })
        })
    }

    /// Whether all of it is in `other`.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.words.iter().zip(other.words.iter().chain(std::iter::repeat(&0))).all(|(own, other)| own & !other == 0)
    }

    /// Whether all of it is in `other`, and `other` has more.
    #[must_use]
    pub fn is_proper_subset(&self, other: &Self) -> bool {
        self.is_subset(other) && self != other
    }

    /// Whether they have nothing in common.
    #[must_use]
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).all(|(own, other)| own & other == 0)
    }

    /// Adds all of `other`.
    pub fn union_with(&mut self, other: &Self) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (own, other) in self.words.iter_mut().zip(&other.words) {
            *own |= other;
        }
    }

    /// Adds all of it to `once`, and to `twice` what was there already.
    pub fn count_in(&self, once: &mut Self, twice: &mut Self) {
        if once.words.len() < self.words.len() {
            once.words.resize(self.words.len(), 0);
        }
        for (at, (own, once)) in self.words.iter().zip(&mut once.words).enumerate() {
            let again = *once & own;
            if again != 0 {
                if twice.words.len() <= at {
                    twice.words.resize(at + 1, 0);
                }
                twice.words[at] |= again;
            }
            *once |= own;
        }
    }

    /// What is in this set and not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let others = other.words.iter().chain(std::iter::repeat(&0));
        let mut words: Vec<u64> = self.words.iter().zip(others).map(|(own, other)| own & !other).collect();
        while words.last() == Some(&0) {
            words.pop();
        }
        Self { words }
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        let mut set = Self::new();
        numbers.into_iter().for_each(|number| set.insert(number));
        set
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut numbers = self.iter().peekable();
        let mut first = true;
        while let Some(start) = numbers.next() {
            let mut end = start;
            while let Some(next) = numbers.next_if_eq(&(end + 1)) {
                end = next;
            }
            let comma = if std::mem::take(&mut first) { "" } else { "," };
            if start == end { write!(f, "{comma}{start}")? } else { write!(f, "{comma}{start}-{end}")? }
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

fn number(text: &str, part: &str) -> Result<u32, ListError> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ListError::NotAList(excerpt(part)));
    }
    text.parse().ok().filter(|number| *number < MOST).ok_or_else(|| ListError::OutOfRange(excerpt(text)))
}

/// Enough of a text to know it by.
fn excerpt(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(text: &str) -> CpuSet {
        CpuSet::parse(text).unwrap()
    }

    #[test]
    fn the_kernels_lists_are_read_and_written_alike() {
        for text in ["", "0", "0-3", "0-3,8", "1,3,5", "63-64,127,8191"] {
            assert_eq!(set(&format!("{text}\n")).to_string(), text);
        }
        assert_eq!(set("3,1-2,2").to_string(), "1-3");
    }

    #[test]
    fn what_is_no_list_is_refused_with_the_part_that_is_wrong() {
        assert_eq!(CpuSet::parse("0,x"), Err(ListError::NotAList("x".into())));
        assert_eq!(CpuSet::parse("0,"), Err(ListError::NotAList(String::new())));
        assert_eq!(CpuSet::parse("-1"), Err(ListError::NotAList("-1".into())));
        assert_eq!(CpuSet::parse("0-3:1/2"), Err(ListError::NotAList("0-3:1/2".into())));
        assert_eq!(CpuSet::parse("3-1"), Err(ListError::Backwards("3-1".into())));
        assert_eq!(CpuSet::parse("0-8192"), Err(ListError::OutOfRange("8192".into())));
        assert_eq!(CpuSet::parse("99999999999999999999"), Err(ListError::OutOfRange("99999999999999999999".into())));
    }

    #[test]
    fn a_set_that_ends_in_a_shorter_word_is_equal_to_the_same_set() {
        assert_eq!(set("1,100").difference(&set("100")), set("1"));
        assert!(set("1").is_proper_subset(&set("1,100")));
        assert!(!set("1,100").is_subset(&set("1")));
        assert!(set("1").is_disjoint(&set("100")));
    }

    proptest! {
        #[test]
        fn sets_behave_as_sets(a in proptest::collection::btree_set(0..200_u32, 0..40), b in proptest::collection::btree_set(0..200_u32, 0..40)) {
            let (x, y): (CpuSet, CpuSet) = (a.iter().copied().collect(), b.iter().copied().collect());
            prop_assert_eq!(CpuSet::parse(&x.to_string()).unwrap(), x.clone());
            prop_assert_eq!(x.len(), a.len());
            prop_assert_eq!(x.is_empty(), a.is_empty());
            prop_assert!(x.iter().eq(a.iter().copied()));
            prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
            prop_assert_eq!(x.is_disjoint(&y), a.is_disjoint(&b));
            prop_assert_eq!(x.difference(&y), a.difference(&b).copied().collect());
            let (mut once, mut twice) = (CpuSet::new(), CpuSet::new());
            x.count_in(&mut once, &mut twice);
            y.count_in(&mut once, &mut twice);
            prop_assert_eq!(twice, a.intersection(&b).copied().collect());
            let mut both = x;
            both.union_with(&y);
            prop_assert_eq!(&once, &both);
            prop_assert_eq!(both, a.union(&b).copied().collect());
        }
    }
}
