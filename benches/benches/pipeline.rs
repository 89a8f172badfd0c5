//! Nanoseconds a frame, by kind: from the frame to the verdict, the output written, everything in cache.

use std::hint::black_box;

use benches::packets::{KINDS, frames, pipeline};
use criterion::{Criterion, criterion_group, criterion_main};

fn process(criterion: &mut Criterion) {
    let pipeline = pipeline();
    let mut group = criterion.benchmark_group("pipeline");
    for kind in KINDS {
        let frames = frames(kind);
        let mut out = vec![0; 2_048];
        let mut at = 0;
        group.bench_function(kind, |bencher| {
            bencher.iter(|| {
                at = if at + 1 < frames.len() { at + 1 } else { 0 };
                pipeline.process(black_box(&frames[at]), black_box(&mut out))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, process);
criterion_main!(benches);
