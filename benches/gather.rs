//! CPU time of the writing thread per reply, with hyper's writes (one per 16 KiB DATA frame, one for the trailers) as they come and
//! gathered, and gathered with the reply known as an answer, so that it is not copied. The reader is a thread of its own.

use std::io::{IoSlice, Read as _};
use std::time::Duration;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use podresources_proxy::serve::gather::{gather, offer};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;

const FRAME: usize = 16 * 1024;
const HEAD: [u8; 9] = [0; 9];
const TRAILERS: [u8; 24] = [0; 24];

/// About 110, 500 and 5,000 pods.
const REPLIES: [usize; 3] = [22 * 1024, 100 * 1024, 1024 * 1024];

/// How a reply goes out.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    AsItComes,
    Gathered,
    Offered,
}

async fn write_reply(io: &mut (impl AsyncWrite + Unpin), reply: &[u8]) {
    for frame in reply.chunks(FRAME) {
        let count = io.write_vectored(&[IoSlice::new(&HEAD), IoSlice::new(frame)]).await.unwrap_or_default();
        if let Some(sent) = count.checked_sub(HEAD.len()) {
            drop(io.write_all(&frame[sent..]).await);
        }
    }
    drop(io.write_all(&TRAILERS).await);
    drop(io.flush().await);
}

/// What the kernel has counted for this thread.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|field| field.parse().ok()).unwrap_or_default())
}

fn measure(reply: &Bytes, replies: u64, way: Way) -> Duration {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return Duration::ZERO };
    let Ok((client, server)) = std::os::unix::net::UnixStream::pair() else { return Duration::ZERO };
    let reader = std::thread::spawn(move || {
        let mut client = client;
        let mut space = vec![0; 256 * 1024];
        while let Ok(1..) = client.read(&mut space) {}
    });
    let start = cpu_time();
    runtime.block_on(async {
        drop(server.set_nonblocking(true));
        let Ok(mut server) = UnixStream::from_std(server) else { return };
        if way == Way::AsItComes {
            for _ in 0..replies {
                write_reply(&mut server, reply).await;
                tokio::task::yield_now().await;
            }
        } else {
            gather(server, |mut io| async move {
                for _ in 0..replies {
                    if way == Way::Offered {
                        offer(reply);
                    }
                    write_reply(&mut io, reply).await;
                    tokio::task::yield_now().await;
                }
            })
            .await;
        }
    });
    let spent = cpu_time().saturating_sub(start);
    drop(reader.join());
    spent
}

fn writes(c: &mut Criterion) {
    let mut group = c.benchmark_group("reply");
    group.measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500));
    for len in REPLIES {
        let reply = Bytes::from(vec![7; len]);
        for (name, way) in [("as hyper writes", Way::AsItComes), ("gathered", Way::Gathered), ("offered", Way::Offered)] {
            group.bench_with_input(BenchmarkId::new(name, len), &reply, |b, reply| {
                b.iter_custom(|replies| measure(reply, replies, way));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, writes);
criterion_main!(benches);
