//! What the mend layer costs: a connection's first request, the requests after it, and everything else.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use podresources_proxy::serve::mend::Frames;

/// grpc-go 1.79 with a path as its target: preface, SETTINGS, HEADERS, DATA, and a GOAWAY at the end.
const FIRST: &[u8] = include_bytes!("../tests/cases/clients/7.bin");

/// grpc's C core, nothing Huffman-coded.
const FIRST_PLAIN: &[u8] = include_bytes!("../tests/cases/clients/10.bin");

/// The next request on the first connection: everything by index save a new `grpc-timeout`, and the empty message.
const NEXT: &[u8] =
    b"\0\0\x0f\x01\x04\0\0\0\x03\x83\x86\xc3\xc2\xc1\xc0\xbf\x7e\x86\x7d\xf7\xdd\x78\x41\xb7\0\0\x05\0\x01\0\0\0\x03\0\0\0\0\0";

fn mend(c: &mut Criterion) {
    let mut group = c.benchmark_group("mend");
    for (name, first) in [("first request, grpc-go", FIRST), ("first request, grpcio", FIRST_PLAIN)] {
        group.bench_function(name, |b| {
            b.iter_batched_ref(
                || (Frames::default(), first.to_vec()),
                |(frames, bytes)| frames.mend(black_box(bytes), 0),
                BatchSize::SmallInput,
            );
        });
    }
    let mut frames = Frames::default();
    frames.mend(&mut FIRST.to_vec(), 0);
    let mut bytes = NEXT.to_vec();
    frames.mend(&mut bytes, 0);
    // It has not given up: this is still mended.
    let mut path = *b"\0\0\x03\x01\x04\0\0\0\x05\x11\x01/";
    frames.mend(&mut path, 0);
    assert_eq!(path.last(), Some(&b'-'));
    group.bench_function("next request", |b| b.iter(|| frames.mend(black_box(&mut bytes), 0)));

    let mut frames = Frames::default();
    frames.mend(&mut FIRST.to_vec(), 0);
    let mut data = [&[0, 0x40, 0, 0, 0, 0, 0, 0, 3][..], &[0; 0x4000]].concat();
    group.throughput(Throughput::Bytes(data.len() as u64));
    group.bench_function("a DATA frame of 16 KiB", |b| b.iter(|| frames.mend(black_box(&mut data), 0)));
    group.finish();
}

criterion_group!(benches, mend);
criterion_main!(benches);
