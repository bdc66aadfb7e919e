//! CPU numbers as the kernel writes lists of them: `2-5,8` (cpuset(7), "List format").

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// More than any kernel can have (`CONFIG_NR_CPUS`).
const CPU_MAX: i64 = 1 << 16;

/// A set of CPU, or NUMA node, numbers.
pub(super) type Cpus = BTreeSet<i64>;

/// `2-5,8`; nothing for an empty set.
pub(super) fn format_list(cpus: &Cpus) -> String {
    let mut ranges: Vec<(i64, i64)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(cpu) => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let range = |(first, last): &(i64, i64)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}

/// The set that a list names; `None` where it is no list.
pub(super) fn parse_list(list: &str) -> Option<Cpus> {
    let mut cpus = Cpus::new();
    for part in list.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (i64, i64) = (first.parse().ok()?, last.parse().ok()?);
        if first < 0 || last < first || last >= CPU_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// NUMA node by CPU.
pub(super) type NodesOfCpus = BTreeMap<i64, i64>;

/// NUMA node by CPU, as sysfs (`/sys`) tells it; empty where the kernel shows no nodes.
pub(super) fn nodes_of_cpus(sysfs: &Path) -> NodesOfCpus {
    let node_of = |entry: std::fs::DirEntry| {
        let node: i64 = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
        let cpus = parse_list(&std::fs::read_to_string(entry.path().join("cpulist")).ok()?)?;
        Some((node, cpus))
    };
    let Ok(entries) = std::fs::read_dir(sysfs.join("devices/system/node")) else { return NodesOfCpus::new() };
    let nodes = entries.filter_map(|entry| node_of(entry.ok()?));
    nodes.flat_map(|(node, cpus)| cpus.into_iter().map(move |cpu| (cpu, node))).collect()
}

/// The same map where it can be that of the node which a reply tells of: it knows all of the reply's CPUs and NUMA nodes. Else an empty
/// one: the reply is not about this machine, and nobody knows.
pub(super) fn fitting<'a>(
    map: &NodesOfCpus,
    mut cpus: impl Iterator<Item = &'a i64>,
    nodes: impl Iterator<Item = &'a i64>,
) -> NodesOfCpus {
    let known: Cpus = map.values().copied().collect();
    let fits = cpus.all(|cpu| map.contains_key(cpu)) && nodes.into_iter().all(|node| known.contains(node));
    if fits { map.clone() } else { NodesOfCpus::new() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn neighbours_become_ranges() {
        assert_eq!(format_list(&Cpus::from([8, 2, 3, 4, 5])), "2-5,8");
        assert_eq!(format_list(&Cpus::from([0, 1])), "0-1");
        assert_eq!(format_list(&Cpus::from([i64::MIN, i64::MAX])), format!("{},{}", i64::MIN, i64::MAX));
        assert_eq!(format_list(&Cpus::new()), "");
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["a", "3-1", "1-", "-1", "1--2", "0-99999999999"] {
            assert_eq!(parse_list(text), None, "{text}");
        }
        assert_eq!(parse_list("\n"), Some(Cpus::new()));
    }

    #[test]
    fn sysfs_says_which_node_a_cpu_is_on() {
        let dir = tempfile::tempdir().unwrap();
        for (node, list) in [("node0", "0-1\n"), ("node1", "2\n"), ("has_cpu", "")] {
            let node = dir.path().join("devices/system/node").join(node);
            std::fs::create_dir_all(&node).unwrap();
            std::fs::write(node.join("cpulist"), list).unwrap();
        }
        assert_eq!(nodes_of_cpus(dir.path()), BTreeMap::from([(0, 0), (1, 0), (2, 1)]));
        assert_eq!(nodes_of_cpus(&dir.path().join("absent")), BTreeMap::new());
    }

    #[test]
    fn a_map_that_lacks_a_cpu_or_a_node_of_the_reply_is_another_machines() {
        let map = BTreeMap::from([(0, 0), (1, 0), (2, 1)]);
        assert_eq!(fitting(&map, [0, 2].iter(), [1].iter()), map);
        assert_eq!(fitting(&map, [0, 3].iter(), [1].iter()), BTreeMap::new());
        assert_eq!(fitting(&map, [0, 2].iter(), [2].iter()), BTreeMap::new());
    }

    proptest! {
        #[test]
        fn a_list_that_was_written_reads_back_the_same(cpus in proptest::collection::btree_set(0..CPU_MAX, 0..200)) {
            prop_assert_eq!(parse_list(&format_list(&cpus)), Some(cpus));
        }
    }
}
