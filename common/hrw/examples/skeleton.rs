//! When a tree of small rankings pays: many nodes, one owner a key, and more moved keys are acceptable.
//!
//! `cargo run --release --example skeleton`

use std::hint::black_box;
use std::time::Instant;
use tryst_hrw::hash::mix;
use tryst_hrw::{Node, NodeSet, Skeleton};

const KEYS: u64 = 20_000;

fn nanoseconds(owner: impl Fn(u64) -> usize) -> f64 {
    let start = Instant::now();
    for key in 0..KEYS {
        black_box(owner(mix(key)));
    }
    start.elapsed().as_secs_f64() * 1e9 / KEYS as f64
}

fn main() {
    println!("nodes   scan, ns   tree, ns   keys moved / keys that had to");
    for count in [30, 300, 3_000] {
        let nodes: Vec<Node> = (0..count).map(|index| Node::new(format!("node-{index}"))).collect();
        let set = NodeSet::new(&nodes);
        let mut tree = Skeleton::new(nodes, 16);
        let scan = nanoseconds(|key| set.owner(key).unwrap_or(0));
        let walk = nanoseconds(|key| tree.owner(key).unwrap_or(0));
        let before: Vec<Option<usize>> = (0..KEYS).map(|key| tree.owner(mix(key))).collect();
        let leaves = count / 2;
        tree.remove(leaves);
        let had_to = before.iter().filter(|owner| **owner == Some(leaves)).count();
        let moved = (0..KEYS).zip(&before).filter(|(key, owner)| tree.owner(mix(*key)) != **owner).count();
        println!("{count:>5} {scan:>10.0} {walk:>10.0}   {moved} / {had_to}");
    }
    println!(
        "The scan moves only the keys that had to. Use the tree if the time counts more than the moves."
    );
}
