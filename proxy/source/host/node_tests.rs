//! Machines as sysfs shows them, from small trees.

use std::fs;

use super::*;

/// Files below a directory that ends with the test.
fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

const TWO_NODES: [(&str, &str); 11] = [
    ("devices/system/cpu/online", "0-3\n"),
    ("devices/system/cpu/isolated", "3\n"),
    ("devices/system/node/online", "0-1\n"),
    ("devices/system/node/node0/cpulist", "0-1\n"),
    ("devices/system/node/node0/meminfo", "Node 0 MemTotal:        1024 kB\nNode 0 MemFree: 3 kB\n"),
    ("devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages", "0\n"),
    ("devices/system/node/node1/cpulist", "2-4\n"),
    ("devices/system/node/node1/meminfo", "Node 1 MemTotal:     2048 kB\n"),
    ("devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages", "3\n"),
    ("devices/system/node/node1/hugepages/hugepages-1048576kB/nr_hugepages", "1\n"),
    ("devices/system/node/node1/hugepages/odd/nr_hugepages", "1\n"),
];

#[test]
fn cpus_nodes_memory_and_huge_pages_are_read() {
    let sys = tree(&TWO_NODES);
    let node = Node::read(sys.path(), Path::new("/nonexistent")).unwrap();
    assert_eq!((node.online.to_string(), node.isolated.to_string()), ("0-3".to_owned(), "3".to_owned()));
    let numa = |id, cpus, memory, hugepages| NumaNode { id, cpus: CpuSet::parse(cpus).unwrap(), memory, hugepages };
    // CPU 4 is offline: it is the node's, and cannot be had.
    assert_eq!(node.numa, [numa(0, "0-1", 1 << 20, vec![(2048, 0)]), numa(1, "2-3", 2 << 20, vec![(2048, 3), (1 << 20, 1)])]);
    assert_eq!(node.page_sizes(), [2048, 1 << 20]);
    assert_eq!(node.skipped.total(), 0);
}

#[test]
fn a_cpu_that_goes_offline_is_gone_at_the_next_look() {
    let sys = tree(&TWO_NODES);
    fs::write(sys.path().join("devices/system/cpu/online"), "0-1,3\n").unwrap();
    assert_eq!(Node::read(sys.path(), Path::new("/nonexistent")).unwrap().online.to_string(), "0-1,3");
}

#[test]
fn a_kernel_without_numa_is_one_node() {
    let sys = tree(&[("devices/system/cpu/online", "0\n"), ("kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "2\n")]);
    let proc = tree(&[("meminfo", "MemTotal:       4096 kB\n")]);
    let node = Node::read(sys.path(), proc.path()).unwrap();
    let only = NumaNode { id: 0, cpus: node.online.clone(), memory: 4 << 20, hugepages: vec![(2048, 2)] };
    assert_eq!(node.numa, [only]);
}

#[test]
fn without_sysfs_the_error_names_the_file() {
    let error = Node::read(Path::new("/nonexistent"), Path::new("/nonexistent")).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/devices/system/cpu/online"), "{error}");
}

#[test]
fn odd_files_are_counted_and_named() {
    let sys = tree(&[
        ("devices/system/cpu/online", "0-3\n"),
        ("devices/system/node/online", "0\n"),
        ("devices/system/node/node0/cpulist", "0-99999\n"),
        ("devices/system/node/node0/meminfo", "nothing\n"),
    ]);
    let node = Node::read(sys.path(), Path::new("/nonexistent")).unwrap();
    assert_eq!(node.skipped.count(Why::BadNode), 2, "{:?}", node.skipped);
    assert!(node.skipped.named().iter().any(|skip| skip.detail.contains("99999")));
}
