//! As multus lives it: in the middle of a pod's start, when its network is made, it asks which devices the pod was given.
//!
//! `CNI_PODS=100` for the long form, `CHANGE_SOURCES=…` to see what less than all sources would miss; figures are printed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::cluster::{Cluster, Wanted};
use crate::node::wait;
use crate::proxy::Proxy;

const PODS: usize = 5;
/// What the DRA driver takes for a claim, at most.
const PREPARE: &str = "2s";

/// One of five pods has the name of the one before, and one a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Round {
    Plain,
    Reused,
    Claim,
}

/// What was said at a pod's CNI ADD, by the clients' own output.
struct Said {
    multus: Value,
    get: Value,
}

/// What a pod holds.
#[derive(Debug, Default, PartialEq, Eq)]
struct Held {
    cpus: BTreeSet<u64>,
    /// Devices by resource, and by claim, as multus has them.
    devices: BTreeMap<String, BTreeSet<String>>,
}

// === impl Round ===

impl Round {
    const fn of(number: usize) -> Self {
        match number % 5 {
            3 => Self::Reused,
            4 => Self::Claim,
            _ => Self::Plain,
        }
    }

    /// A pod that has the name of another asks for something else, so that an answer about the other is told apart.
    const fn wanted(self) -> Wanted {
        match self {
            Self::Plain => Wanted { devices: 1, claim: false },
            Self::Reused => Wanted { devices: 2, claim: false },
            Self::Claim => Wanted { devices: 1, claim: true },
        }
    }
}

// === impl Said ===

impl Said {
    fn read(folder: &Path) -> Self {
        let read = |name: &str| {
            let text = fs::read_to_string(folder.join(name)).unwrap();
            serde_json::from_str(&text).unwrap_or(Value::String(text))
        };
        Self { multus: read("multus"), get: read("get") }
    }

    /// What is wrong with it, if anything.
    fn misses(&self, held: &Held) -> Option<String> {
        let reply = self.multus["reply"].as_str().unwrap_or_default();
        let multus: BTreeMap<String, BTreeSet<String>> = serde_json::from_str(reply).unwrap_or_default();
        let get = Held::read(&self.get);
        (multus != held.devices || get != *held).then(|| format!("multus: {}; Get: {}; held: {held:?}", self.multus, self.get))
    }
}

// === impl Held ===

impl Held {
    /// From the JSON of a Get.
    fn read(get: &Value) -> Self {
        let mut held = Self::default();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        for container in list(&get["podResources"]["containers"]) {
            held.cpus.extend(list(&container["cpuIds"]).iter().filter_map(Value::as_u64));
            for device in list(&container["devices"]) {
                let ids = list(&device["deviceIds"]);
                let resource = device["resourceName"].as_str().unwrap().to_owned();
                held.devices.entry(resource).or_default().extend(ids.iter().map(|id| id.as_str().unwrap().to_owned()));
            }
            for claim in list(&container["dynamicResources"]) {
                let resources = list(&claim["claimResources"]);
                let names = resources.iter().flat_map(|resource| list(&resource["cdiDevices"]));
                // `vendor.com/class=device`; multus has what is behind the sign.
                let ids = names.map(|cdi| cdi["name"].as_str().unwrap().rsplit_once('=').unwrap().1.to_owned());
                held.devices.entry(claim["claimName"].as_str().unwrap().to_owned()).or_default().extend(ids);
            }
        }
        held
    }

    fn assert_is(&self, wanted: Wanted) {
        let by_plugin = self.devices.get("example.com/resource").map_or(0, BTreeSet::len);
        let claims = self.devices.len() - usize::from(by_plugin > 0);
        let said = (self.cpus.len(), by_plugin, claims);
        assert_eq!(said, (1, wanted.devices, usize::from(wanted.claim)), "the kubelet itself: {self:?}");
    }
}

/// Has the node's CNI plugin call multus's own client and a Get through us, both at once, for each pod; the first word on a pod counts.
fn hook(cluster: &Cluster, proxy: &Proxy) -> PathBuf {
    let clients = PathBuf::from(std::env::var_os("CLIENTS_BIN").expect("CLIENTS_BIN names the folder with the real clients"));
    let said = cluster.node.scratch("said");
    let script = format!(
        "#!/bin/sh
said={said}/$2
[ ! -e $said ] || exit 0
mkdir $said.new
{get} get --socket {socket} -o json $1 $2 > $said.new/get 2>&1 &
{multus} {socket} $1 $2 > $said.new/multus 2>&1
wait
mv $said.new $said
",
        said = said.display(),
        get = env!("CARGO_BIN_EXE_podresources-proxy"),
        multus = clients.join("multus-4.2.2").display(),
        socket = proxy.socket().display(),
    );
    let hook = cluster.node.folder().join("cni-add");
    fs::write(&hook, script).unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    said
}

/// What the kubelet itself says of a pod.
fn held(cluster: &Cluster, name: &str) -> Held {
    let mut get = Command::new(env!("CARGO_BIN_EXE_podresources-proxy"));
    let output = get.args(["get", "-o", "json", "--socket"]).arg(cluster.node.socket()).args(["default", name]).output().unwrap();
    Held::read(&serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("the kubelet on {name}: {error}: {output:?}")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real kubelet and real clients: `cargo xtask test --only kubelet`"]
async fn at_each_cni_add_multus_finds_the_pods_devices_and_get_its_cpus_at_first_try() {
    let count = std::env::var("CNI_PODS").map_or(PODS, |count| count.parse().expect("CNI_PODS is a number"));
    let sources = std::env::var("CHANGE_SOURCES").ok();
    let cluster = Cluster::start(PREPARE).await;
    let flags: Vec<&str> = sources.iter().flat_map(|sources| ["--change-sources", sources]).collect();
    let proxy = Proxy::start(&cluster.node, &flags).await;
    let said = hook(&cluster, &proxy);

    let mut seen: BTreeMap<Round, usize> = BTreeMap::new();
    let mut missed = Vec::new();
    let mut name = String::new();
    for number in 0..count {
        let round = Round::of(number);
        // A node of two CPUs has one to give.
        if number > 0 {
            cluster.remove_pod(&name).await;
        }
        if round == Round::Reused {
            fs::remove_dir_all(said.join(&name)).unwrap();
        } else {
            name = format!("pod-{number}");
        }
        cluster.add_pod(&name, round.wanted()).await;
        let told = said.join(&name);
        let what = format!("the CNI ADD of {name} ({round:?})");
        let hooked = wait(&what, || told.exists().then_some(()));
        tokio::select! {
            () = hooked => {}
            status = refused(&cluster, &name) => panic!("{name} ({round:?}): {status}"),
        }
        let held = held(&cluster, &name);
        held.assert_is(round.wanted());
        *seen.entry(round).or_default() += 1;
        missed.extend(Said::read(&told).misses(&held).map(|miss| format!("{name} ({round:?}): {miss}")));
    }
    println!("{} of {count} pods were right at their CNI ADD ({seen:?}); sources: {sources:?}", count - missed.len());
    drop(proxy);
    assert!(missed.is_empty(), "{missed:#?}");
}

/// Resolves when the kubelet has rejected the pod, with why.
async fn refused(cluster: &Cluster, name: &str) -> Value {
    loop {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let status = cluster.pod_status(name).await;
        if status["phase"] == "Failed" {
            return status;
        }
    }
}
