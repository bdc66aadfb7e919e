//! What it costs to know of changes from programs in the kernel: a request's look at the epoch, and the programs' own time per event.

#![expect(clippy::expect_used, reason = "a bench that cannot go on has failed")]

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use podresources_proxy::change::ebpf::{Ebpf, KernelFiles};
use podresources_proxy::change::{Epoch, Layout, Source as _, State, Watched};

/// Counts the programs' time while it is "1"; costs each run some 20 ns itself.
const STATISTICS: &str = "/proc/sys/kernel/bpf_stats_enabled";
const EVENTS: u64 = 10_000;

fn attached() -> Option<Ebpf> {
    let root_dir = PathBuf::from("/var/lib/kubelet");
    let kubelet = Layout { socket: root_dir.join("pod-resources/kubelet.sock"), root_dir };
    let ebpf = Ebpf::attach(Watched { cgroup_root: "/sys/fs/cgroup".into(), kubelet }, &KernelFiles::default());
    let works = ebpf.parts().iter().any(|part| part.name == "tp_btf/cgroup_mkdir" && part.state == State::Attached);
    if !works {
        println!("not run: no program may be attached here: {ebpf:?}");
    }
    works.then_some(ebpf)
}

fn look(criterion: &mut Criterion) {
    let own = Epoch::new(Vec::new());
    criterion.bench_function("epoch: our own word", |bench| bench.iter(|| black_box(&own).now()));
    let Some(ebpf) = attached() else { return };
    let epoch = Arc::new(Epoch::new(Vec::new()));
    ebpf.begin(&epoch);
    criterion.bench_function("epoch: our own word and the programs'", |bench| bench.iter(|| black_box(&epoch).now()));
}

/// Not a benchmark of criterion's: the kernel itself counts.
fn events(_: &mut Criterion) {
    let Some(ebpf) = attached() else { return };
    let before = fs::read_to_string(STATISTICS).unwrap_or_default();
    if fs::write(STATISTICS, "1").is_err() {
        println!("not run: {STATISTICS} cannot be written; run it as root");
        return;
    }
    let mount = Path::new("/sys/fs/cgroup");
    let top = if mount.join("cgroup.controllers").exists() { mount.to_owned() } else { mount.join("cpuset") };
    let ours = top.join(format!("podresources-proxy-bench-{}", std::process::id()));
    let epoch = Arc::new(Epoch::new(Vec::new()));
    for (what, folder) in [("in kubepods", "kubepods"), ("elsewhere", "other")] {
        let parent = ours.join(folder);
        fs::create_dir_all(&parent).expect("a cgroup can be made");
        ebpf.mend(&epoch);
        let parts = ["tp_btf/cgroup_mkdir", "tp_btf/cgroup_rmdir", "tp_btf/cgroup_release"];
        let counts = || parts.map(|part| ebpf.cost(part).unwrap_or_default());
        let begun = counts();
        for _ in 0..EVENTS {
            fs::create_dir(parent.join("pod")).expect("a cgroup can be made");
            fs::remove_dir(parent.join("pod")).expect("it can be removed");
            ebpf.woken(&epoch);
        }
        for ((part, before), after) in parts.iter().zip(begun).zip(counts()) {
            let (runs, time) = (after.0 - before.0, after.1 - before.1);
            println!("{part} {what}: {} ns each, {runs} runs", time / runs.max(1));
        }
        fs::remove_dir(&parent).expect("it can be removed");
    }
    let _ours_alone = fs::remove_dir(&ours);
    let _as_it_was = fs::write(STATISTICS, before.trim());
}

criterion_group!(benches, look, events);
criterion_main!(benches);
