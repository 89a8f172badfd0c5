//! When remembered owners pay: the same keys are asked for again, among many nodes that change now and then.
//!
//! `cargo run --release --example owner_cache`

use std::hint::black_box;
use std::time::Instant;
use tryst_hrw::hash::mix;
use tryst_hrw::{Node, NodeSet, OwnerCache};

const ROUNDS: u64 = 50;

fn main() {
    println!("nodes   distinct keys   scan, ns   cache, ns");
    for count in [10, 1_000] {
        for distinct in [1_000, 1_000_000] {
            let nodes: Vec<Node> = (0..count).map(|index| Node::new(format!("node-{index}"))).collect();
            let set = NodeSet::new(&nodes);
            let mut cache = OwnerCache::new(nodes, 1 << 16);
            let keys: Vec<u64> = (0..ROUNDS * 1_000).map(|turn| mix(mix(turn) % distinct)).collect();
            let start = Instant::now();
            for key in &keys {
                black_box(set.owner(*key));
            }
            let scan = start.elapsed();
            let start = Instant::now();
            for key in &keys {
                black_box(cache.owner(*key));
            }
            let cached = start.elapsed();
            let each = |time: std::time::Duration| time.as_secs_f64() * 1e9 / keys.len() as f64;
            println!("{count:>5} {distinct:>15} {:>10.0} {:>11.0}", each(scan), each(cached));
        }
    }
    println!("Both give the same owners. With few nodes or keys that seldom come again the scan is as good.");
}
