//! What a request pays to know whether its answer is fresh: the epoch by words alone, with queues to be asked; the whole of what is done
//! for a request from its arrival to its answer; and what an event of another cgroup costs whoever reads it.
#![expect(clippy::unwrap_used, reason = "a bench without its means may as well stop")]

use std::future::{Future, pending};
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use podresources_proxy::answer::{Answers as _, Ask, Terms};
use podresources_proxy::change::{Epoch, Layout, Sources, Watched, Words};
use podresources_proxy::config::ChangeSource;
use podresources_proxy::kubepods::Kubepods;
use podresources_proxy::proto::v1::{ListPodResourcesResponse, PodResources};
use podresources_proxy::refresh::{Config, Handle, Refresher, channel};
use podresources_proxy::source::{Call, Failure, Reply, Upstream};
use prost::Message as _;
use tokio::time::Instant;

/// A kubelet of 110 pods.
#[derive(Clone, Debug)]
struct Still {
    list: Bytes,
}

// === impl Still ===

impl Still {
    fn new() -> Self {
        let pod = |number| PodResources { name: format!("pod-{number}"), namespace: "default".to_owned(), ..Default::default() };
        Self { list: ListPodResourcesResponse { pod_resources: (0..110).map(pod).collect() }.encode_to_vec().into() }
    }
}

impl Upstream for Still {
    async fn connect(&self) -> Result<(), Failure> {
        Ok(())
    }

    async fn call(&self, call: Call<'_>) -> Result<Reply, Failure> {
        let message = if matches!(call, Call::List) { self.list.clone() } else { Bytes::new() };
        Ok(Reply { message, connection: 1 })
    }

    fn connections(&self) -> u64 {
        1
    }

    fn drop_if_replaced(&self) -> bool {
        false
    }

    fn closed(&self) -> impl Future<Output = ()> {
        pending()
    }
}

/// What answers from a first capture.
fn captured(epoch: Arc<Epoch>) -> Handle {
    let config = Config {
        upstream_rate: 20.0,
        upstream_burst: 4,
        max_stale: Duration::from_mins(5),
        failover: false,
        restart_settle: Duration::from_secs(30),
        interval: Duration::from_hours(1),
        kubepods: Kubepods { cgroup_root: std::env::temp_dir(), pod_logs: std::env::temp_dir() },
    };
    let (handle, rest) = channel(config, epoch);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let refresher = Refresher::new(rest, Still::new());
    tokio::task::LocalSet::new().block_on(&runtime, async {
        tokio::select! {
            () = refresher.run() => {}
            () = handle.first_capture() => {}
        }
    });
    handle
}

/// From a request's arrival to the answer that goes out, with all that it says of its age: the epoch, the snapshot, the clock.
fn answer(c: &mut Criterion) {
    let mut group = c.benchmark_group("answer");
    group.bench_function("the clock alone", |b| b.iter(|| black_box(Instant::now())));
    let words = || {
        let page = rustix::fs::memfd_create("words", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&page, rustix::param::page_size() as u64).unwrap();
        let epoch = Epoch::new(Vec::new());
        epoch.add_words(Words::map(&page).unwrap()).unwrap();
        Arc::new(epoch)
    };
    let (_sources, queues) = sources(&[ChangeSource::KubeletDirs, ChangeSource::Kubepods]);
    for (name, epoch) in [("words alone", words()), ("with a queue of inotify's", queues)] {
        let handle = captured(epoch);
        let get = Ask::Get { namespace: "default".to_owned(), name: "pod-55".to_owned() };
        for (method, ask) in [("List", Ask::List), ("Get", get)] {
            let terms = Terms::default();
            // The answer is dropped, as it is when it has gone out.
            group.bench_function(format!("{method}, {name}"), |b| b.iter(|| handle.at_once(black_box(&ask), &terms).unwrap()));
        }
    }
    group.finish();
}

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

criterion_group!(benches, words, answer, foreign, mend);
criterion_main!(benches);
