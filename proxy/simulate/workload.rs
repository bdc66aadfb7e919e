//! Pods as they are found on real nodes: their names, containers and what they ask for. It invents requests and grants nothing.

use rand::Rng;
use rand::seq::IndexedRandom;

use super::inventory::GIB;
use super::node::NodeSpec;
use super::pod::{ContainerRequest, PodKey, PodRequest};

/// Who made a pod, which shows in its name.
#[derive(Clone, Copy)]
enum Owner {
    Deployment,
    DaemonSet,
    StatefulSet,
}

/// Namespace, name, owner, names of the containers.
type App = (&'static str, &'static str, Owner, &'static [&'static str]);

const APPS: [App; 20] = [
    ("kube-system", "kube-proxy", Owner::DaemonSet, &["kube-proxy"]),
    ("kube-system", "cilium", Owner::DaemonSet, &["cilium-agent"]),
    ("kube-system", "nvidia-device-plugin-daemonset", Owner::DaemonSet, &["nvidia-device-plugin-ctr", "config-manager"]),
    ("kube-system", "coredns", Owner::Deployment, &["coredns"]),
    ("kube-system", "metrics-server", Owner::Deployment, &["metrics-server", "metrics-server-nanny"]),
    ("monitoring", "prometheus-node-exporter", Owner::DaemonSet, &["node-exporter", "kube-rbac-proxy"]),
    ("monitoring", "dcgm-exporter", Owner::DaemonSet, &["dcgm-exporter"]),
    ("monitoring", "prometheus-kube-prometheus", Owner::StatefulSet, &["prometheus", "config-reloader", "thanos-sidecar"]),
    ("logging", "fluent-bit", Owner::DaemonSet, &["fluent-bit", "log-rotate"]),
    ("ingress-nginx", "ingress-nginx-controller", Owner::Deployment, &["controller"]),
    ("payments-production", "checkout-api", Owner::Deployment, &["checkout-api", "envoy", "vault-agent"]),
    ("payments-production", "ledger-writer", Owner::Deployment, &["ledger-writer", "envoy", "vault-agent"]),
    ("catalog-production", "search-frontend", Owner::Deployment, &["search-frontend", "envoy", "vault-agent"]),
    ("catalog-production", "image-resizer", Owner::Deployment, &["image-resizer", "envoy"]),
    ("data-platform", "kafka-broker", Owner::StatefulSet, &["kafka", "jmx-exporter", "cruise-control-metrics"]),
    ("data-platform", "chi-events-cluster", Owner::StatefulSet, &["clickhouse", "clickhouse-backup", "metrics-exporter"]),
    ("data-platform", "redis-cluster", Owner::StatefulSet, &["redis", "redis-exporter"]),
    ("ml-serving", "llm-gateway-predictor", Owner::Deployment, &["kserve-container", "queue-proxy", "model-agent"]),
    ("ml-training", "resnet-trainer-worker", Owner::StatefulSet, &["pytorch", "metrics-sidecar", "checkpoint-sync"]),
    ("telco-core", "upf-dataplane", Owner::Deployment, &["upf", "pfcp-agent", "telemetry"]),
];

/// What the API server makes random suffixes of: no vowels, nothing that looks like another.
const SUFFIX: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// How many pods of a dense node are of the guaranteed class.
const GUARANTEED: f64 = 0.8;

/// Names of pods and what they ask for.
#[derive(Clone, Debug)]
pub(super) struct Workload {
    /// Plugin devices that a pod asks for, on average.
    devices_per_pod: f64,
    /// Likewise claims.
    claims_per_pod: f64,
    /// Resources by name, each as often as there are devices of it.
    resources: Vec<&'static str>,
    pod_level: bool,
    /// The next `StatefulSet` ordinal.
    ordinal: usize,
}

// === impl Workload ===

impl Workload {
    /// Pods of which `spec.pods` together leave about two in five devices free.
    pub(super) fn new(spec: &NodeSpec, resources: Vec<&'static str>) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a mean, from counts far below 2^52")]
        let per_pod = |count: usize| 0.6 * count as f64 / spec.pods.max(1) as f64;
        Self {
            devices_per_pod: per_pod(spec.devices),
            claims_per_pod: per_pod(spec.claims),
            resources,
            pod_level: spec.pod_level,
            ordinal: 0,
        }
    }

    /// One more pod. Names may repeat; whoever admits it asks again.
    pub(super) fn next(&mut self, rng: &mut impl Rng) -> PodRequest {
        let (namespace, app, owner, names) = APPS[rng.random_range(0..APPS.len())];
        let name = match owner {
            Owner::DaemonSet => format!("{app}-{}", suffix(5, rng)),
            Owner::Deployment => format!("{app}-{}-{}", suffix(10, rng), suffix(5, rng)),
            Owner::StatefulSet => {
                self.ordinal += 1;
                format!("{app}-{}", self.ordinal - 1)
            }
        };
        let mut containers: Vec<_> = names.iter().map(|name| ContainerRequest::named(*name)).collect();
        if rng.random_bool(0.04) {
            containers.insert(0, ContainerRequest { sidecar: true, ..ContainerRequest::named("istio-proxy") });
        }
        let mut pod = PodRequest { containers, ..PodRequest::new(namespace, name) };
        if rng.random_bool(GUARANTEED) {
            self.guarantee(&mut pod, rng);
        }
        if let Some(main) = pod.containers.iter_mut().find(|container| !container.sidecar) {
            for _ in 0..around(self.devices_per_pod, rng) {
                if let Some(resource) = self.resources.choose(rng) {
                    main.devices.push(((*resource).to_owned(), 1));
                }
            }
            main.claims = around(self.claims_per_pod, rng);
        }
        pod
    }

    /// Makes it a pod of the guaranteed class: pinned memory everywhere, and whole CPUs for two out of three.
    fn guarantee(&self, pod: &mut PodRequest, rng: &mut impl Rng) {
        let cpus = if rng.random_bool(0.67) { [1, 1, 2, 4][rng.random_range(0..4)] } else { 0 };
        if self.pod_level && rng.random_bool(0.1) {
            pod.pod_cpus = cpus.max(1);
            pod.pod_memory = GIB;
            return;
        }
        for container in &mut pod.containers {
            container.memory = GIB >> rng.random_range(0..3u32);
        }
        if let Some(main) = pod.containers.iter_mut().find(|container| !container.sidecar) {
            main.cpus = cpus;
            main.hugepages = if rng.random_bool(0.4) { GIB } else { 0 };
        }
    }
}

/// A finished run of a `CronJob`.
pub(super) fn finished_job(rng: &mut impl Rng) -> PodRequest {
    let key = PodKey::new("batch", format!("nightly-backup-{}-{}", rng.random_range(29_000_000..30_000_000), suffix(5, rng)));
    PodRequest { key, containers: vec![ContainerRequest::named("backup")], pod_cpus: 0, pod_memory: 0 }
}

/// Random letters and digits, as the API server appends to names.
pub(super) fn suffix(len: usize, rng: &mut impl Rng) -> String {
    (0..len).map(|_| char::from(SUFFIX[rng.random_range(0..SUFFIX.len())])).collect()
}

/// A whole number near to `mean`, and on average just that.
fn around(mean: f64, rng: &mut impl Rng) -> usize {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small mean, never negative")]
    let whole = mean.floor() as usize;
    whole + usize::from(rng.random_bool(mean.fract()))
}
