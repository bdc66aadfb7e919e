//! What a snapshot costs: building one from a reply, looking a pod up, merging after a restart.
//! Promise: a List of 500 pods is built in at most 150 µs, one of 5,000 in at most 1.6 ms.
#![expect(clippy::expect_used, reason = "a bench that cannot build its input has nothing to measure")]

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use podresources_proxy::proto::v1;
use podresources_proxy::snapshot::{Allocatable, PodList, merge};
use prost::Message as _;

const SIZES: [usize; 3] = [110, 500, 5_000];

/// A reply like a dense node's, some 160 bytes a pod: each has a device, every fourth two, every eighth exclusive CPUs, every second a sidecar.
fn reply(pods: usize) -> Vec<u8> {
    let numa = |node| Some(v1::TopologyInfo { nodes: vec![v1::NumaNode { id: node }] });
    let pod = |index: usize| {
        let number = i64::try_from(index).unwrap_or_default();
        let device = |name: &str| v1::ContainerDevices {
            resource_name: name.into(),
            device_ids: vec![format!("0000:{:02x}:{:02x}.{}", index >> 8 & 255, index & 255, index & 7)],
            topology: numa(number & 1),
        };
        let mut main = v1::ContainerResources { name: "main".into(), ..Default::default() };
        main.devices = vec![device("vendor.example.com/sriov-net")];
        if index.is_multiple_of(4) {
            main.devices.push(device("vendor.example.com/gpu"));
        }
        if index.is_multiple_of(8) {
            main.cpu_ids = (4 * number..4 * number + 4).collect();
            main.memory = vec![v1::ContainerMemory { memory_type: "memory".into(), size: 4 << 30, topology: numa(0) }];
        }
        let mut containers = vec![main];
        if index.is_multiple_of(2) {
            containers.push(v1::ContainerResources { name: "istio-proxy".into(), ..Default::default() });
        }
        v1::PodResources {
            name: format!("some-workload-with-a-longer-name-7d9f6c5b8-{index:05x}"),
            namespace: format!("team-namespace-{}", index % 20),
            containers,
            ..Default::default()
        }
    };
    v1::ListPodResourcesResponse { pod_resources: (0..pods).map(pod).collect() }.encode_to_vec()
}

fn build(c: &mut Criterion) {
    let mut group = c.benchmark_group("build");
    for pods in SIZES {
        let message = reply(pods);
        group.throughput(Throughput::Bytes(message.len() as u64));
        group.bench_with_input(BenchmarkId::from_parameter(pods), &message, |b, message| {
            b.iter(|| PodList::build(black_box(message)));
        });
    }
}

fn build_allocatable(c: &mut Criterion) {
    let device = |index: usize| v1::ContainerDevices {
        resource_name: "vendor.example.com/sriov-net".into(),
        device_ids: vec![format!("0000:{:02x}:{:02x}.0", index >> 8, index & 255)],
        topology: Some(v1::TopologyInfo { nodes: vec![v1::NumaNode { id: 0 }] }),
    };
    let reply = v1::AllocatableResourcesResponse {
        devices: (0..512).map(device).collect(),
        cpu_ids: (0..256).collect(),
        memory: Vec::new(),
    };
    let message = reply.encode_to_vec();
    c.bench_function("build/allocatable, 512 devices", |b| b.iter(|| Allocatable::build(black_box(&message))));
}

fn look_up(c: &mut Criterion) {
    let mut group = c.benchmark_group("get");
    for pods in SIZES {
        let list = PodList::build(&reply(pods)).expect("a valid reply");
        let name = format!("some-workload-with-a-longer-name-7d9f6c5b8-{:05x}", pods / 2);
        let namespace = format!("team-namespace-{}", pods / 2 % 20);
        group.bench_with_input(BenchmarkId::new("known", pods), &list, |b, list| {
            b.iter(|| list.get(black_box(&namespace), black_box(&name)));
        });
        group.bench_with_input(BenchmarkId::new("unknown", pods), &list, |b, list| {
            b.iter(|| list.get(black_box("default"), black_box(&name)));
        });
    }
}

/// Half of the pods are back, and all others still run.
fn merge_after_restart(c: &mut Criterion) {
    let mut group = c.benchmark_group("merge");
    for pods in SIZES {
        let old = PodList::build(&reply(pods)).expect("a valid reply");
        let half = reply(pods / 2);
        group.bench_with_input(BenchmarkId::new("half lost", pods), &old, |b, old| {
            let new = || PodList::build(&half).expect("a valid reply");
            b.iter_batched(new, |new| merge(old, new, |_| true), BatchSize::LargeInput);
        });
        let whole = reply(pods);
        group.bench_with_input(BenchmarkId::new("nothing lost", pods), &old, |b, old| {
            let new = || PodList::build(&whole).expect("a valid reply");
            b.iter_batched(new, |new| merge(old, new, |_| true), BatchSize::LargeInput);
        });
    }
}

criterion_group!(benches, build, build_allocatable, look_up, merge_after_restart);
criterion_main!(benches);
