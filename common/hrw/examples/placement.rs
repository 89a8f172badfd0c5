//! When a placement pays: a change of the nodes must give the list of keys to carry, without a look at every key.
//!
//! `cargo run --release --example placement`

use std::time::Instant;
use tryst_hrw::hash::mix;
use tryst_hrw::{Node, NodeSet, Placement};

const KEYS: u64 = 100_000;

fn main() {
    println!("nodes   keys moved   both rankings, ms   placement, ms   (to build it, ms)");
    for count in [10, 100, 1_000] {
        let mut nodes: Vec<Node> = (0..count).map(|index| Node::new(format!("node-{index}"))).collect();
        let keys: Vec<u64> = (0..KEYS).map(mix).collect();
        let start = Instant::now();
        let mut placement = Placement::new(keys.clone(), nodes.clone());
        let built = start.elapsed();
        let start = Instant::now();
        let moves = placement.insert(Node::new("new"));
        let changed = start.elapsed();
        let start = Instant::now();
        let before = NodeSet::new(&nodes);
        nodes.push(Node::new("new"));
        let after = NodeSet::new(&nodes);
        let moved = keys.iter().filter(|key| before.owner(**key) != after.owner(**key)).count();
        let ranked = start.elapsed();
        assert_eq!(moved, moves.len(), "both ways find the same keys");
        let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
        println!("{count:>5} {moved:>12} {:>19.2} {:>15.2} {:>19.2}", ms(ranked), ms(changed), ms(built));
    }
    println!(
        "For one change of few nodes compare two rankings: a placement takes 36 octets a key and must be built."
    );
}
