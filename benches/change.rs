//! What a request pays to know whether its answer is fresh: the epoch by words alone, with queues to be asked, and what an event of
//! another cgroup costs whoever reads it.
#![expect(clippy::unwrap_used, reason = "a bench without its means may as well stop")]

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use podresources_proxy::change::{Epoch, Layout, Sources, Watched, Words};
use podresources_proxy::config::ChangeSource;

fn words(c: &mut Criterion) {
    let mut group = c.benchmark_group("epoch");
    let epoch = Epoch::new(Vec::new());
    group.bench_function("own word", |b| b.iter(|| black_box(epoch.now())));
    let page = rustix::fs::memfd_create("words", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&page, rustix::param::page_size() as u64).unwrap();
    epoch.add_words(Words::map(&page).unwrap()).unwrap();
    group.bench_function("own word and a mapped one", |b| b.iter(|| black_box(epoch.now())));
    for chosen in [&[ChangeSource::KubeletDirs, ChangeSource::Kubepods][..], &[ChangeSource::Fanotify], &ChangeSource::ALL] {
        let names: Vec<&str> = chosen.iter().map(|source| source.name()).collect();
        let (_sources, epoch) = sources(chosen);
        group.bench_function(names.join("+"), |b| b.iter(|| black_box(epoch.now())));
    }
    group.finish();
}

/// A cgroup beside kubepods made and removed: four events for a mark, none for inotify; what it takes without any is told first.
fn foreign(c: &mut Criterion) {
    let Some(dir) = ["/sys/fs/cgroup/cpuset", "/sys/fs/cgroup"]
        .into_iter()
        .map(|mount| Path::new(mount).join(format!("podresources-proxy-bench-{}", std::process::id())))
        .find(|dir| std::fs::create_dir(dir).is_ok())
    else {
        eprintln!("passed over: cgroups cannot be made here");
        return;
    };
    let child = dir.join("child");
    let churn = || {
        std::fs::create_dir(&child).unwrap();
        std::fs::remove_dir(&child).unwrap();
    };
    let mut group = c.benchmark_group("another cgroup made and removed");
    group.bench_function("nobody watches", |b| b.iter(churn));
    let (_sources, epoch) = sources(&[ChangeSource::Fanotify]);
    group.bench_function("marked, and read", |b| {
        b.iter(|| {
            churn();
            black_box(epoch.now())
        });
    });
    group.finish();
    std::fs::remove_dir(dir).unwrap();
}

/// What the watching thread does every 5 s, on a node of 110 pods with three containers each.
fn mend(c: &mut Criterion) {
    let Some(top) = ["/sys/fs/cgroup/cpuset", "/sys/fs/cgroup"]
        .into_iter()
        .map(|mount| Path::new(mount).join(format!("podresources-proxy-bench-pods-{}", std::process::id())))
        .find(|dir| std::fs::create_dir(dir).is_ok())
    else {
        eprintln!("passed over: cgroups cannot be made here");
        return;
    };
    let kubepods = top.join("kubepods");
    let pods = || (0..110).map(|pod| kubepods.join(format!("pod01234567-89ab-cdef-0123-{pod:012}")));
    std::fs::create_dir(&kubepods).unwrap();
    for pod in pods() {
        std::fs::create_dir(&pod).unwrap();
        (0..4).for_each(|container| std::fs::create_dir(pod.join(container.to_string())).unwrap());
    }
    let mount = std::env::temp_dir().join(format!("podresources-proxy-bench-{}", std::process::id()));
    std::fs::create_dir(&mount).unwrap();
    std::os::unix::fs::symlink(&top, mount.join("cpuset")).unwrap();
    let mut group = c.benchmark_group("mending 110 pods");
    for chosen in [ChangeSource::Kubepods, ChangeSource::Fanotify] {
        let (sources, epoch) = sources_of(&[chosen], &mount);
        group.bench_function(chosen.name(), |b| b.iter(|| sources.mend(&epoch)));
    }
    group.finish();
    std::fs::remove_dir_all(&mount).unwrap();
    for pod in pods() {
        (0..4).for_each(|container| std::fs::remove_dir(pod.join(container.to_string())).unwrap());
        std::fs::remove_dir(&pod).unwrap();
    }
    std::fs::remove_dir(kubepods).unwrap();
    std::fs::remove_dir(top).unwrap();
}

fn sources(chosen: &[ChangeSource]) -> (Sources, Arc<Epoch>) {
    sources_of(chosen, Path::new("/sys/fs/cgroup"))
}

fn sources_of(chosen: &[ChangeSource], cgroup_root: &Path) -> (Sources, Arc<Epoch>) {
    let root_dir = std::env::temp_dir();
    let kubelet = Layout { socket: root_dir.join("kubelet.sock"), root_dir };
    let sources = Sources::open(chosen, &Watched { kubelet, cgroup_root: cgroup_root.to_owned() });
    let epoch = sources.epoch();
    sources.mend(&epoch);
    (sources, epoch)
}

criterion_group!(benches, words, foreign, mend);
criterion_main!(benches);
