//! Table files: build, encode, decode, and the look-up of a row.

use common::flow::FlowKey;
use common::table::ForwardingTable;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::fmt::Write as _;
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::path::Path;
use tablegen::config::Config;
use tablegen::generate::{History, generate};

fn config(backends: u32) -> Config {
    let mut text = "version: 1\ntables:\n  - name: web\n    seed: 000102030405060708090a0b0c0d0e0f\n    \
                    hash_key: f0e0d0c0b0a090807060504030201000\n    binds:\n      \
                    - { address: 203.0.113.10, protocol: tcp, port: 443 }\n    backends:\n"
        .to_owned();
    for number in 0..backends {
        let address = Ipv4Addr::from_bits(0x0a00_0001 + number);
        writeln!(text, "      - {{ id: web-{number}, address: {address} }}").expect("writing to memory");
    }
    Config::parse(&text, Path::new("bench.yaml")).expect("a right configuration")
}

fn built(config: &Config) -> ForwardingTable {
    generate(&config.tables, History::None).expect("a right table").table
}

fn build(c: &mut Criterion) {
    let mut group = c.benchmark_group("build 65536 rows");
    group.sample_size(20);
    for threads in [1, 2] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        for backends in [10, 100, 256, 1_000] {
            let config = config(backends);
            group.throughput(Throughput::Elements(u64::from(backends) * 65_536));
            group.bench_function(BenchmarkId::new(format!("{threads} threads"), backends), |b| {
                b.iter(|| pool.install(|| built(black_box(&config))));
            });
        }
    }
    group.finish();
}

fn file(c: &mut Criterion) {
    let table = built(&config(256));
    let octets = table.encode();
    let mut group = c.benchmark_group("file of 256 backends");
    group.throughput(Throughput::Bytes(octets.len() as u64));
    group.bench_function("encode", |b| b.iter(|| black_box(&table).encode()));
    group.bench_function("decode", |b| b.iter(|| ForwardingTable::decode(black_box(&octets))));
    group.finish();
}

fn lookup(c: &mut Criterion) {
    let table = built(&config(256));
    let table = &table.tables()[0];
    let mut client = 0u32;
    c.bench_function("flow to hop list", |b| {
        b.iter(|| {
            client = client.wrapping_add(0x9e37_79b9);
            let flow = FlowKey {
                src_addr: Ipv4Addr::from_bits(client).into(),
                dst_addr: Ipv4Addr::new(203, 0, 113, 10).into(),
                ports: Some((51_234, 443)),
            };
            table.hops.get(table.row(black_box(&flow), table.hash_fields)).first().copied()
        });
    });
}

criterion_group!(benches, build, file, lookup);
criterion_main!(benches);
