//! This library beside the crates that people would pick instead, on the same keys and nodes: look-up, build, balance
//! and movement.
//!
//! `cargo run --release -p benches --bin peers`. Look-ups are the best of five runs over 4,096 keys; those that rank all
//! nodes anew for each key run once, over fewer. Balance and movement are left out where keys are too few to tell.

use benches::peers::PEERS;
use benches::usage::no_arguments;
use std::hint::black_box;
use std::time::Instant;
use tryst_hrw::hash::mix;

const TURNS: usize = 5;
const KEYS: u64 = 4_096;
/// Keys of balance and movement.
const SAMPLE: u64 = 1 << 17;

fn main() {
    no_arguments("peers", "Compare owner look-ups with other hashing crates: time, balance, movement");
    println!(
        "movement: keys that change owner when one of N leaves, of those the leaver's are all that must"
    );
    for count in [10u32, 100, 1_000, 10_000] {
        println!("\n{count} nodes            look-up ns   build ms   fullest/fair   moved/must");
        let nodes: Vec<u32> = (0..count).collect();
        let mut lines: Vec<(&str, f64, f64, String)> = Vec::new();
        for (name, build) in PEERS {
            let before = Instant::now();
            let Some(mut peer) = build(&nodes) else {
                println!("{name:22} -");
                continue;
            };
            let made = before.elapsed().as_secs_f64() * 1e3;
            let slow = count >= 1_000 && matches!(name, "hrw-hash" | "rendezvous_hash");
            let sample = if slow { u64::from(4_096_000 / count) } else { SAMPLE };
            let balance = quality(&nodes, name, build, &mut *peer, sample);
            let look_up = if slow { look_up(&mut *peer, 1, 256) } else { look_up(&mut *peer, TURNS, KEYS) };
            lines.push((name, look_up, made, balance));
        }
        for (name, look_up, made, balance) in lines {
            println!("{name:22} {look_up:11.1} {made:10.3}   {balance}");
        }
    }
}

fn look_up(peer: &mut dyn benches::peers::Peer, turns: usize, keys: u64) -> f64 {
    let mut best = f64::INFINITY;
    for key in 0..keys {
        black_box(peer.owner(key));
    }
    for _ in 0..turns {
        let start = Instant::now();
        for key in 0..keys {
            black_box(peer.owner(black_box(key)));
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / keys as f64);
    }
    best
}

fn quality(
    nodes: &[u32],
    name: &str,
    build: benches::peers::Build,
    peer: &mut dyn benches::peers::Peer,
    sample: u64,
) -> String {
    if sample < 4 * nodes.len() as u64 {
        return format!("{:>12} {:>12}", "-", "-");
    }
    let before: Vec<u32> = (0..sample).map(|key| peer.owner(mix(key))).collect();
    let mut owned = vec![0u32; nodes.len()];
    before.iter().for_each(|owner| owned[*owner as usize] += 1);
    let fullest = f64::from(owned.iter().copied().max().unwrap_or(0)) * nodes.len() as f64 / sample as f64;
    // The last can leave every one of them.
    let gone = if name == "jumpch" { nodes.len() - 1 } else { nodes.len() / 2 };
    let rest: Vec<u32> = nodes.iter().copied().filter(|node| *node as usize != gone).collect();
    let Some(mut after) = build(&rest) else { return format!("{fullest:12.3}   -") };
    let moved = (0..).zip(&before).filter(|(key, owner)| after.owner(mix(*key)) != **owner).count();
    format!("{fullest:12.3} {:12.2}", moved as f64 / f64::from(owned[gone].max(1)))
}
