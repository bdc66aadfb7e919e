//! `check`: a kubelet's words against directories that look like cgroup v2.
//!
//! The recorded node had four CPUs, and which are online is this machine's own: so the stand-in tells this machine's as allocatable, and
//! containers in the shared pool have what is left of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use podresources_proxy::cpuset::CpuSet;
use podresources_proxy::proto::v1::ListPodResourcesResponse;
use tempfile::TempDir;

use crate::server::{Server, recorded};
use crate::{command, err, out};

const CASE: &str = "1.36.2-vm-2numa";

/// The host's side: cgroups, bundles and pod logs.
struct Host(TempDir);

// === impl Host ===

impl Host {
    /// What the recorded pods have on a node where nothing is wrong.
    fn new() -> Self {
        let host = Self::without_kubepods();
        let list: ListPodResourcesResponse = recorded("list", CASE);
        let containers = || list.pod_resources.iter().flat_map(|pod| &pod.containers);
        let claimed: CpuSet =
            containers().flat_map(|container| &container.cpu_ids).map(|&cpu| u32::try_from(cpu).unwrap()).collect();
        let shared = online().difference(&claimed).to_string();
        host.cgroup("kubepods", &online().to_string());
        for (number, pod) in list.pod_resources.iter().enumerate() {
            let uid = format!("01234567-89ab-cdef-0123-{number:012x}");
            fs::create_dir_all(host.path("logs").join(format!("{}_{}_{uid}", pod.namespace, pod.name))).unwrap();
            host.cgroup(&format!("kubepods/pod{uid}"), &online().to_string());
            for (nth, container) in pod.containers.iter().enumerate() {
                let cpus: Vec<String> = container.cpu_ids.iter().map(ToString::to_string).collect();
                let cpus = if cpus.is_empty() { shared.clone() } else { cpus.join(",") };
                let id = format!("{number:032x}{nth:032x}");
                host.cgroup(&format!("kubepods/pod{uid}/{id}"), &cpus);
                let annotations = serde_json::json!({
                    "io.kubernetes.cri.container-type": "container",
                    "io.kubernetes.cri.container-name": container.name,
                    "io.kubernetes.cri.sandbox-name": pod.name,
                    "io.kubernetes.cri.sandbox-namespace": pod.namespace,
                    "io.kubernetes.cri.sandbox-uid": uid,
                });
                let bundle = serde_json::json!({ "ociVersion": "1.2.0", "annotations": annotations });
                host.write(&format!("bundles/{id}/config.json"), &bundle.to_string());
            }
        }
        host
    }

    fn without_kubepods() -> Self {
        let host = Self(tempfile::tempdir().unwrap());
        host.write("cgroup/cgroup.controllers", "cpuset cpu memory\n");
        for dir in ["bundles", "logs"] {
            fs::create_dir(host.path(dir)).unwrap();
        }
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn cgroup(&self, cgroup: &str, cpus: &str) {
        self.write(&format!("cgroup/{cgroup}/cpuset.cpus.effective"), &format!("{cpus}\n"));
        self.write(&format!("cgroup/{cgroup}/cpuset.mems.effective"), "0\n");
        self.write(&format!("cgroup/{cgroup}/cgroup.events"), "populated 1\nfrozen 0\n");
    }

    /// The only container of the recorded pod `excl1-node1`, which is told CPU 1.
    fn write_over_the_first(&self, cpus: &str) {
        let cgroup = format!("kubepods/pod01234567-89ab-cdef-0123-{:012x}/{:064x}", 0, 0);
        assert!(self.path("cgroup").join(&cgroup).is_dir());
        self.cgroup(&cgroup, cpus);
    }

    fn check(&self, socket: &Path, more: &[&str]) -> Output {
        let mut command = command(&["check", "--confirm", "1ms", "--reserved-cpus", "0", "--kubelet-config", "/nowhere"]);
        for (flag, dir) in [("--cgroup-root", "cgroup"), ("--pod-logs-dir", "logs"), ("--bundle-dirs", "bundles")] {
            command.arg(flag).arg(self.path(dir));
        }
        command.arg("--socket").arg(socket).args(more).output().unwrap()
    }
}

fn online() -> CpuSet {
    CpuSet::parse(&fs::read_to_string("/sys/devices/system/cpu/online").unwrap()).unwrap()
}

/// A stand-in whose node has this machine's CPUs, the first reserved.
fn kubelet() -> Server {
    Server::with_cpus(CASE, online().iter().filter(|&cpu| cpu != 0).map(i64::from).collect())
}

#[test]
fn a_node_where_both_sides_agree_is_0_and_says_how_much_was_compared() {
    let (host, kubelet) = (Host::new(), kubelet());
    let output = host.check(&kubelet.socket(), &[]);
    assert_eq!((output.status.code(), err(&output, host.0.path()).as_str()), (Some(0), ""), "{output:?}");
    let list: ListPodResourcesResponse = recorded("list", CASE);
    let containers: usize = list.pod_resources.iter().map(|pod| pod.containers.len()).sum();
    assert_eq!(out(&output), format!("No drift: {} pods, {containers} containers.\n", list.pod_resources.len()));
    let json = host.check(&kubelet.socket(), &["-o", "json"]);
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((json.status.code(), &report["drift"]), (Some(0), &serde_json::json!([])));
    assert_eq!(report["compared"]["containers"], containers);
}

#[test]
fn a_cpuset_that_was_written_over_is_1_and_is_named_once() {
    let (host, kubelet) = (Host::new(), kubelet());
    host.write_over_the_first("0-1");
    let output = host.check(&kubelet.socket(), &[]);
    assert_eq!((output.status.code(), err(&output, host.0.path()).as_str()), (Some(1), ""), "{output:?}");
    let lines: Vec<&str> = out(&output).lines().collect();
    assert_eq!(lines.len(), 2, "a header and one finding: {lines:?}");
    assert_eq!(lines[1], "cpuset_rewritten  default/excl1-node1/main  told 1; its cpuset is 0-1");
    let json = host.check(&kubelet.socket(), &["-o", "json"]);
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((json.status.code(), report["drift"].as_array().unwrap().len()), (Some(1), 1), "{report}");
    let finding = &report["drift"][0];
    assert_eq!((&finding["kind"], &finding["pod"]), (&"cpuset_rewritten".into(), &"excl1-node1".into()));
    // Put right again, there is nothing left of it.
    host.write_over_the_first("1");
    assert_eq!(host.check(&kubelet.socket(), &[]).status.code(), Some(0));
}

#[test]
fn what_is_not_the_kubelets_word_of_now_is_69() {
    let host = Host::new();
    let stale = Server::stale(CASE);
    let output = host.check(&stale.socket(), &[]);
    assert_eq!((output.status.code(), out(&output)), (Some(69), ""), "{output:?}");
    let mut said = err(&output, host.0.path());
    let nobody = host.check(&host.path("absent.sock"), &[]);
    assert_eq!((nobody.status.code(), out(&nobody)), (Some(69), ""), "{nobody:?}");
    said += &err(&nobody, host.0.path());
    insta::assert_snapshot!(said, @"
    error: the kubelet cannot be reached, and what it said last cannot be compared with the host now
    error: DIR/absent.sock does not exist; is the server running, and is its directory mounted here?
    ");
}

#[test]
fn without_kubepods_it_is_1_and_says_where_it_looked() {
    let (host, kubelet) = (Host::without_kubepods(), kubelet());
    let output = host.check(&kubelet.socket(), &[]);
    assert_eq!((output.status.code(), out(&output)), (Some(1), ""), "{output:?}");
    insta::assert_snapshot!(
        err(&output, host.0.path()),
        @"error: no kubepods cgroup below DIR/cgroup: there is nothing to compare with; see --cgroup-root"
    );
}
