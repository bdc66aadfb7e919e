//! What admission costs a call, and that two clients on two threads do not slow each other.

use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use podresources_proxy::admission::{Admitted, Bucket, Config, Limits, Pace, Table};
use podresources_proxy::peer::{Client, Peer, Unit};
use podresources_proxy::serve::Method;
use tokio::time::Instant;

/// One with so many tokens that none is ever missing.
fn table() -> Arc<Table> {
    let limits = Limits { rate: 1e9, burst: 1 << 30, ..Limits::default() };
    Table::new(Config { limits, ..Config::default() })
}

fn join(table: &Arc<Table>, name: &str) -> Option<Admitted> {
    let peer = Peer { client: Client::Unit(Unit::new(name)), ..Peer::of_uid(0) };
    table.join(peer, 1, Instant::now()).ok()
}

/// A reply as large as that of List on a node of 110 pods.
const REPLY: usize = 19 * 1024;

/// All that a call asks, from its headers until its reply is written: begin, token, reply handed over, end, reply written.
fn call(admitted: &Admitted, now: Instant) -> bool {
    let Ok(call) = admitted.call(Some(Method::List), now) else { return false };
    let granted = call.pay(now).is_ok() && admitted.hold(REPLY, now).is_ok();
    drop(call);
    admitted.written(REPLY);
    granted
}

/// One poll of a connection that has one call.
fn turn(admitted: &Admitted, now: Instant) -> bool {
    admitted.turn_begins();
    let granted = call(admitted, now);
    admitted.turn_ends(0, 0);
    granted
}

/// What this thread has run: other work on the machine is not in it.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// The CPU time that so many calls take on one thread, with `beside` others that do the same for clients of their own.
fn calls(rounds: u64, beside: usize) -> Duration {
    let (table, barrier) = (table(), Arc::new(Barrier::new(beside + 1)));
    let work = |name: String| {
        let (table, barrier) = (Arc::clone(&table), Arc::clone(&barrier));
        move || {
            let Some(admitted) = join(&table, &name) else { return Duration::ZERO };
            barrier.wait();
            let (now, began) = (Instant::now(), cpu_time());
            for _ in 0..rounds {
                black_box(turn(&admitted, black_box(now)));
            }
            cpu_time().saturating_sub(began)
        }
    };
    let others: Vec<_> = (0..beside).map(|at| std::thread::spawn(work(format!("other-{at}.service")))).collect();
    let mine = work("mine.service".to_owned())();
    for other in others {
        drop(other.join());
    }
    mine
}

fn admission(criterion: &mut Criterion) {
    let now = Instant::now();
    criterion.bench_function("bucket", |bencher| {
        let (bucket, pace) = (Bucket::full(), Pace::new(1e9, 1 << 30));
        let mut at = 0;
        bencher.iter(|| {
            at += 10;
            bucket.take(1, pace, black_box(at))
        });
    });
    let table = table();
    if let Some(admitted) = join(&table, "bench.service") {
        criterion.bench_function("admission", |bencher| bencher.iter(|| turn(&admitted, black_box(now))));
        criterion.bench_function("admission, each change told at once", |bencher| bencher.iter(|| call(&admitted, black_box(now))));
    }
    criterion.bench_function("one client on one thread", |bencher| bencher.iter_custom(|rounds| calls(rounds, 0)));
    criterion.bench_function("two clients on two threads", |bencher| bencher.iter_custom(|rounds| calls(rounds, 1)));
}

criterion_group!(benches, admission);
criterion_main!(benches);
