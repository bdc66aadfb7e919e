//! `check` beside a real kubelet: drift planted by hand is found and named, and nothing else is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::host::{BUNDLES, flags};
use crate::node::{Node, wait};
use crate::proxy::{PROGRAM, Proxy};

/// The program inside the node's mounts.
fn program(node: &Node, words: &[&str]) -> (Option<i32>, Value) {
    let mut command = Command::new("nsenter");
    command.args(["--mount", "--target", &node.inside_pid(), PROGRAM]).args(words);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let json = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code(), json)
}

/// `check` of what this socket says: the exit code and what was found, as `kind of`.
fn check(node: &Node, socket: &Path, more: &[&str]) -> (Option<i32>, Vec<String>) {
    let (cgroups, logs, config) = (node.cgroup_root(), node.pod_logs(), node.kubelet_config());
    let mut words = vec!["check", "-o", "json", "--bundle-dirs", BUNDLES, "--socket", socket.to_str().unwrap()];
    words.extend(["--cgroup-root", cgroups.to_str().unwrap(), "--pod-logs-dir", logs.to_str().unwrap()]);
    words.extend(["--kubelet-config", config.to_str().unwrap()]);
    words.extend(more);
    let (code, report) = program(node, &words);
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    let found = report["drift"].as_array().unwrap().iter().map(|finding| {
        let pod = format!("{}/{}", text(finding, "pod"), text(finding, "container"));
        format!("{} {}", text(finding, "kind"), if pod == "/" { text(finding, "cgroup") } else { pod })
    });
    (code, found.collect())
}

/// Where the node's cpusets are.
fn cpusets(node: &Node) -> PathBuf {
    let root = node.cgroup_root();
    let v1 = root.join("cpuset");
    if v1.is_dir() { v1 } else { root }
}

/// All cgroups below one.
fn below(cgroup: &Path) -> Vec<PathBuf> {
    let children = fs::read_dir(cgroup).unwrap().flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
    children.flat_map(|child| std::iter::once(child.clone()).chain(below(&child)).collect::<Vec<_>>()).collect()
}

/// The containers' cgroups whose cpuset is this one.
fn with_cpus(node: &Node, cpus: &str) -> Vec<PathBuf> {
    let has = |cgroup: &PathBuf| fs::read_to_string(cgroup.join("cpuset.cpus")).is_ok_and(|found| found.trim() == cpus);
    let is_container = |cgroup: &PathBuf| cgroup.file_name().is_some_and(|name| name.len() == 64);
    below(&cpusets(node).join("kubepods")).into_iter().filter(|cgroup| is_container(cgroup) && has(cgroup)).collect()
}

/// Waits until the kubelet has written each container's cpuset. It does so once after a container's start, at its next reconcile
/// (every 10 s), whatever stands there, and then no more while what it wants is the same (`reconcileState` in its
/// `cm/cpumanager/cpu_manager.go`): a drift planted before that would be put right by it.
async fn kubelet_has_written_all(node: &Node) {
    let containers = [("0", "0-1"), ("1", "0-1")].map(|(right, wrong)| (with_cpus(node, right), right, wrong));
    for (cgroups, _, wrong) in &containers {
        for cgroup in cgroups {
            fs::write(cgroup.join("cpuset.cpus"), wrong).unwrap();
        }
    }
    let end = Instant::now() + Duration::from_secs(15);
    let is = |cgroup: &PathBuf, cpus: &str| fs::read_to_string(cgroup.join("cpuset.cpus")).unwrap().trim() == cpus;
    while Instant::now() < end && !containers.iter().all(|(cgroups, right, _)| cgroups.iter().all(|cgroup| is(cgroup, right))) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // Where it had done so before, nobody else does.
    for (cgroups, right, _) in &containers {
        for cgroup in cgroups {
            fs::write(cgroup.join("cpuset.cpus"), right).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real kubelet: `cargo xtask test --only kubelet`"]
async fn each_drift_planted_by_hand_is_found_and_named_and_nothing_else_is() {
    let node = Node::start();
    let flags = flags(&node, "kubelet");
    let proxy = Proxy::start_inside(&node, &flags.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let (kubelet, ours) = (node.socket(), proxy.socket());
    // With the full patience: the kubelet may still have the first containers' cpusets to correct.
    assert_eq!(check(&node, &kubelet, &[]), (Some(0), Vec::new()), "a node left alone");
    kubelet_has_written_all(&node).await;

    let quick = ["--confirm", "2s"];
    let findings = |node: &Node| {
        let socket = node.scratch("admin").join("admin.sock");
        let (_, status) = program(node, &["status", "-o", "json", "--admin-socket", socket.to_str().unwrap()]);
        let found = status["drift"]["findings"].as_array().unwrap_or_else(|| panic!("{status}"));
        found.iter().map(|finding| finding.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    wait("the running proxy has nothing to name", || findings(&node).is_empty().then_some(())).await;

    // The exclusive pod has CPU 1: its sandbox has what it was started in.
    let exclusive = with_cpus(&node, "1");
    assert_eq!(exclusive.len(), 1, "{exclusive:?}");
    fs::write(exclusive[0].join("cpuset.cpus"), "0").unwrap();
    let named = "cpus_not_in_cpuset exclusive-node1/main".to_owned();
    assert_eq!(check(&node, &kubelet, &quick), (Some(1), vec![named.clone()]), "a cpuset written over");
    assert_eq!(check(&node, &ours, &quick), (Some(1), vec![named]), "the same by way of the proxy");
    let told = wait("the running proxy names it", || Some(findings(&node)).filter(|found| !found.is_empty())).await;
    assert!(told.len() == 1 && told[0].starts_with("cpus_not_in_cpuset: "), "{told:?}");
    fs::write(exclusive[0].join("cpuset.cpus"), "1").unwrap();
    assert_eq!(check(&node, &kubelet, &quick), (Some(0), Vec::new()), "put right");
    wait("the running proxy says that it is over", || findings(&node).is_empty().then_some(())).await;

    let shared = with_cpus(&node, "0");
    let shared = shared.iter().find(|cgroup| cgroup.components().any(|part| part.as_os_str() == "burstable")).unwrap();
    fs::write(shared.join("cpuset.cpus"), "0-1").unwrap();
    let (code, found) = check(&node, &kubelet, &quick);
    assert!(code == Some(1) && found.len() == 1 && found[0].starts_with("exclusive_overlap shared-node1/"), "{found:?}");
    fs::write(shared.join("cpuset.cpus"), "0").unwrap();

    let left_over = exclusive[0].with_file_name("f".repeat(64));
    fs::create_dir(&left_over).unwrap();
    let (code, found) = check(&node, &kubelet, &quick);
    fs::remove_dir(&left_over).unwrap();
    assert!(code == Some(1) && found.len() == 1 && found[0].starts_with("cgroup_without_pod kubepods/"), "{found:?}");
    assert_eq!(check(&node, &kubelet, &quick), (Some(0), Vec::new()), "all is put right");
    println!("kubelet {} | 3 drifts, each named alone, by check and in the running proxy", Node::version());
}
