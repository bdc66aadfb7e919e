//! A node of directories and files: cgroups as v2 shows them, bundles and logs as the runtimes and the kubelet write them.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use super::super::{CpuSet, Known, Pods, Tree};
use crate::kubepods::Names;

pub(super) struct Fake(TempDir);

/// How a runtime and its cgroup driver name things.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// containerd, systemd driver.
    Systemd,
    /// containerd, cgroupfs driver.
    Cgroupfs,
    /// CRI-O, systemd driver.
    Crio,
}

/// A pod to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct PodAt<'a> {
    pub(super) shape: Shape,
    pub(super) root: &'a str,
    /// `""`, `burstable` or `besteffort`.
    pub(super) class: &'a str,
    pub(super) name: &'a str,
    pub(super) number: u64,
}

// === impl Fake ===

impl Fake {
    /// A node with one kubepods root that has the CPUs 0-7 on the memory nodes 0 and 1.
    pub(super) fn new(root: &str) -> Self {
        let fake = Self(tempfile::tempdir().unwrap());
        fake.write("cgroup/cgroup.controllers", "cpuset cpu memory\n");
        for dir in ["bundles", "logs"] {
            fs::create_dir_all(fake.path(dir)).unwrap();
        }
        fake.cgroup(root, "0-7", "0-1");
        fake
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(super) fn cgroup(&self, cgroup: &str, cpus: &str, mems: &str) {
        self.write(&format!("cgroup/{cgroup}/cpuset.cpus.effective"), format!("{cpus}\n"));
        self.write(&format!("cgroup/{cgroup}/cpuset.mems.effective"), format!("{mems}\n"));
        self.write(&format!("cgroup/{cgroup}/cgroup.events"), "populated 1\nfrozen 0\n");
    }

    pub(super) fn remove(&self, cgroup: &str) {
        fs::remove_dir_all(self.path("cgroup").join(cgroup)).unwrap();
    }

    /// A pod's cgroup and log directory; its path.
    pub(super) fn pod(&self, at: PodAt<'_>) -> String {
        let cgroup = at.cgroup();
        self.cgroup(&cgroup, "0-7", "0-1");
        fs::create_dir_all(self.path("logs").join(format!("ns_{}_{}", at.name, at.uid()))).unwrap();
        cgroup
    }

    /// A container's cgroup and bundle; its path. Its weight is that of `weight` CPUs.
    pub(super) fn container(&self, at: PodAt<'_>, name: &str, number: u64, cpus: &str, weight: u64) -> String {
        let (cgroup, id) = at.child(number);
        self.cgroup(&cgroup, cpus, "0-1");
        let weight = 1 + (weight * 1024 - 2) * 9999 / 262_142;
        self.write(&format!("cgroup/{cgroup}/cpu.weight"), format!("{weight}\n"));
        self.write(&format!("cgroup/{cgroup}/cpu.max"), "max 100000\n");
        self.bundle(at, &id, "container", name);
        cgroup
    }

    pub(super) fn sandbox(&self, at: PodAt<'_>, number: u64) -> String {
        let (cgroup, id) = at.child(number);
        self.cgroup(&cgroup, "0-7", "0-1");
        self.bundle(at, &id, "sandbox", "");
        cgroup
    }

    fn bundle(&self, at: PodAt<'_>, id: &str, kind: &str, name: &str) {
        let (path, annotations) = match at.shape {
            Shape::Systemd | Shape::Cgroupfs => (
                format!("bundles/{id}/config.json"),
                format!(
                    r#""io.kubernetes.cri.container-type":"{kind}","io.kubernetes.cri.container-name":"{}","io.kubernetes.cri.sandbox-name":"{}",
                    "io.kubernetes.cri.sandbox-namespace":"ns","io.kubernetes.cri.sandbox-uid":"{}""#,
                    if name.is_empty() { "none" } else { name },
                    at.name,
                    at.uid()
                ),
            ),
            Shape::Crio => (
                format!("bundles/{id}/userdata/config.json"),
                format!(
                    r#""io.kubernetes.cri-o.ContainerType":"{kind}","io.kubernetes.cri-o.KubeName":"{}","io.kubernetes.cri-o.Namespace":"ns",
                    "io.kubernetes.cri-o.Labels":"{{\"io.kubernetes.container.name\":\"{}\",\"io.kubernetes.pod.uid\":\"{}\"}}""#,
                    at.name,
                    if name.is_empty() { "POD" } else { name },
                    at.uid()
                ),
            ),
        };
        self.write(&path, format!(r#"{{"ociVersion":"1.2.0","annotations":{{{annotations}}}}}"#));
    }

    pub(super) fn tree(&self) -> Tree {
        Tree::new(self.path("cgroup"), Names::new(vec![self.path("bundles")], self.path("logs")))
    }

    /// A tree with everything read.
    pub(super) fn scanned(&self) -> Pods {
        let mut tree = self.tree();
        tree.rescan(&known());
        tree.view()
    }
}

/// CPU 0 is reserved.
pub(super) fn known() -> Known {
    Known { always_shared: CpuSet::parse("0").ok(), page_sizes: vec![2048] }
}

/// What is said of each listed container: `ns/pod/container: CPUs`, `-` where it has none alone; a pod's own CPUs likewise.
pub(super) fn told(pods: &Pods) -> Vec<String> {
    let mut told = Vec::new();
    for (name, pod) in pods.listed() {
        if let Some(cpus) = &pod.cpus {
            told.push(format!("{name}: {cpus}"));
        }
        for container in &pod.containers {
            let cpus = container.exclusive().map_or_else(|| "-".to_owned(), ToString::to_string);
            told.extend(container.name.as_ref().map(|container| format!("{name}/{container}: {cpus}")));
        }
        if pod.containers.is_empty() {
            told.push(name.to_string());
        }
    }
    told
}

// === impl PodAt ===

impl PodAt<'_> {
    pub(super) fn uid(&self) -> String {
        format!("01234567-89ab-cdef-0123-{:012x}", self.number)
    }

    pub(super) fn cgroup(&self) -> String {
        let Self { root, class, .. } = self;
        match self.shape {
            Shape::Cgroupfs if class.is_empty() => format!("{root}/pod{}", self.uid()),
            Shape::Cgroupfs => format!("{root}/{class}/pod{}", self.uid()),
            Shape::Systemd | Shape::Crio => {
                let base = root.rsplit('/').next().unwrap().trim_end_matches(".slice");
                let uid = self.uid().replace('-', "_");
                if class.is_empty() {
                    format!("{root}/{base}-pod{uid}.slice")
                } else {
                    format!("{root}/{base}-{class}.slice/{base}-{class}-pod{uid}.slice")
                }
            }
        }
    }

    /// The cgroup and id of a container or sandbox of this pod.
    pub(super) fn child(&self, number: u64) -> (String, String) {
        let id = format!("{:032x}{number:032x}", self.number);
        let name = match self.shape {
            Shape::Cgroupfs => id.clone(),
            Shape::Systemd => format!("cri-containerd-{id}.scope"),
            Shape::Crio => format!("crio-{id}.scope"),
        };
        (format!("{}/{name}", self.cgroup()), id)
    }
}
