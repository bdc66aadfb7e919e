//! Lists of CPUs: what is read is written so that it is read again, and says the same as a plain set.

use std::collections::BTreeSet;

use podresources_proxy::cpuset::{CpuSet, MOST};

pub(crate) fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let set = match CpuSet::parse(&text) {
        Ok(set) => set,
        Err(error) => return assert!(error.to_string().len() < 1000, "{error}"),
    };
    let numbers: Vec<u32> = set.iter().collect();
    assert!(numbers.is_sorted_by(|a, b| a < b) && numbers.last().is_none_or(|last| *last < MOST));
    assert_eq!(CpuSet::parse(&set.to_string()).as_ref(), Ok(&set), "{set}");
    assert_eq!((set.len(), set.is_empty()), (numbers.len(), numbers.is_empty()));
    let mut plain = BTreeSet::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        plain.extend(first.parse::<u32>().unwrap()..=last.parse().unwrap());
    }
    assert!(plain.iter().eq(&numbers), "{text:?} was read as {set}");
    // The halves make the whole, and have nothing in common.
    let (mut even, mut odd) = (CpuSet::new(), CpuSet::new());
    for number in &numbers {
        let half = if number % 2 == 0 { &mut even } else { &mut odd };
        half.insert(*number);
    }
    assert!(even.is_disjoint(&odd) && even.is_subset(&set) && odd.is_subset(&set));
    assert!(odd.is_empty() || even.is_proper_subset(&set));
    even.union_with(&odd);
    assert_eq!(even, set);
}
