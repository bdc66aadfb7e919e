//! What it costs to read the pods from cgroups: everything, and one change. On real cgroups, made and removed here; needs root.
#![expect(clippy::unwrap_used, reason = "a bench that cannot go on should say where")]
#![expect(dead_code, reason = "the node of cgroups has more than is measured")]

#[path = "../tests/host/cgroups.rs"]
mod cgroups;

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use podresources_proxy::source::host::{Change, ChangeKind};

use cgroups::{Node, Pod, Shape, known, missing, told};

/// Containers of a pod, beside its sandbox.
const CONTAINERS: usize = 3;

/// A node whose first pod has a CPU alone; all others share the rest.
fn node(pods: usize) -> Node {
    let node = Node::new(&format!("bench-{pods}"), Shape::Systemd);
    for number in 0..pods {
        let pod = pod(number);
        node.pod(pod);
        node.sandbox(pod);
        let containers = if number == 0 { 1 } else { CONTAINERS };
        (1..=containers).for_each(|container| node.container(pod, container, if number == 0 { "1" } else { "0" }));
    }
    node
}

fn pod(number: usize) -> Pod {
    Pod { shape: Shape::Systemd, guaranteed: number == 0, number }
}

fn host(c: &mut Criterion) {
    if missing().is_some() {
        return;
    }
    for pods in [110, 500, 2000] {
        let node = node(pods);
        let mut group = c.benchmark_group(format!("{pods} pods"));
        group.sample_size(20);
        let mut tree = node.tree();
        tree.rescan(&known());
        let found = told(&tree.view());
        assert_eq!((found.len(), found[0].as_str()), (1 + (pods - 1) * CONTAINERS, "pod-0/c1: 1"));
        group.bench_function("first scan, every bundle read", |b| {
            b.iter_batched_ref(|| node.tree(), |tree| tree.rescan(&known()), BatchSize::PerIteration);
        });
        group.bench_function("full scan", |b| b.iter(|| tree.rescan(black_box(&known()))));
        let change = Change { cgroup: pod(pods / 2).child(2), kind: ChangeKind::Written };
        group.bench_function("one change", |b| b.iter(|| assert!(tree.apply(black_box(&change), &known()))));
        let change = Change { cgroup: pod(0).child(1), kind: ChangeKind::Written };
        group.bench_function("one change of exclusive CPUs", |b| b.iter(|| assert!(tree.apply(black_box(&change), &known()))));
        group.bench_function("view", |b| b.iter(|| black_box(tree.view())));
        group.finish();
    }
}

criterion_group!(benches, host);
criterion_main!(benches);
