//! Look-up of one key's owner, by this library and by the crates that people would pick instead, on the same keys and
//! nodes; and whole rows by each instruction set of the machine.

use benches::peers::PEERS;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use tryst_hrw::hash::mix;
use tryst_hrw::{DigestSet, Isa, Node, NodeSet};

fn look_up(c: &mut Criterion) {
    for count in [10u32, 100, 1_000, 10_000] {
        let mut group = c.benchmark_group(format!("owner among {count}"));
        let nodes: Vec<u32> = (0..count).collect();
        for (name, build) in PEERS {
            let Some(mut peer) = build(&nodes) else { continue };
            let mut key = 0;
            group.bench_function(name, |bencher| {
                bencher.iter(|| {
                    // 4,096 keys over and over: the cache is measured at its hits.
                    key = (key + 1) & 0xfff;
                    black_box(peer.owner(black_box(key)))
                });
            });
        }
    }
}

/// One element is one row: its first two backends.
fn rows(c: &mut Criterion) {
    const ROWS: u64 = 1_024;
    let keys: Vec<u64> = (0..ROWS).map(mix).collect();
    let mut first = vec![0; keys.len() * 2];
    for (ranking, weight) in [("unweighted", 0.0), ("every weight different", 0.01)] {
        let mut group = c.benchmark_group(format!("first two, {ranking}"));
        group.throughput(Throughput::Elements(ROWS));
        for count in [10, 100, 256, 1_000] {
            let node = |i: u32| Node::weighted(format!("n{i}"), 1.0 + weight * f64::from(i)).ok();
            let nodes: Vec<Node> = (0..count).filter_map(node).collect();
            for isa in Isa::available() {
                let set = NodeSet::new(&nodes).with_isa(isa);
                group.bench_function(BenchmarkId::new(isa.name(), count), |bencher| {
                    bencher.iter(|| set.top_many(black_box(&keys), 2, &mut first));
                });
            }
        }
    }
    let mut group = c.benchmark_group("first two, glb");
    group.throughput(Throughput::Elements(ROWS));
    for count in [10u32, 100, 256] {
        let addresses: Vec<_> = (0..count).map(|i| (0x0a00_0001 + i).to_be_bytes().into()).collect();
        for isa in Isa::available() {
            let set = DigestSet::new([7; 16], &addresses).with_isa(isa);
            group.bench_function(BenchmarkId::new(isa.name(), count), |bencher| {
                bencher.iter(|| set.top_many(black_box(0), 2, &mut first));
            });
        }
    }
}

criterion_group!(benches, look_up, rows);
criterion_main!(benches);
