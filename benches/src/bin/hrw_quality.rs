//! How evenly and how independently ranks fall: χ² of owners, of seconds and of ordered pairs, for ids that are
//! awkward to hash; shares by weight; ties; independence of tables.
//!
//! `cargo run --release -p benches --bin hrw_quality`. A fair hash gives z near N(0, 1); with 500 figures some beyond
//! 3 are expected. The exit code is 1 if any is beyond 6.

use benches::usage::no_arguments;
use std::process::ExitCode;
use tryst_hrw::hash::{Prefix, mix};
use tryst_hrw::{Isa, Node, NodeSet};

const ROWS: u32 = 1 << 16;
const SEEDS: u64 = 20;

/// A kind of ids, and how its members are made.
struct Kind(&'static str, fn(u32) -> String);

/// Ids that differ in few bits, in the last octets, or in one nibble.
const IDS: [Kind; 5] = [
    Kind("sequential", |i| format!("{i}")),
    Kind("web-N", |i| format!("web-{i}")),
    Kind("a /24", |i| format!("10.0.{}.{}", i >> 8, i & 255)),
    Kind("UUIDs", |i| {
        let (a, b) = (mix(u64::from(i) + 1), mix(u64::from(i) + 1_000_003));
        format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            a >> 32,
            a >> 16 & 0xffff,
            a & 0xffff,
            b >> 48,
            b & 0xffff_ffff_ffff
        )
    }),
    Kind("IPv6, a nibble", |i| format!("2001:db8:0:0:{i:x}::1")),
];

fn main() -> ExitCode {
    no_arguments(
        "hrw_quality",
        "Test how evenly and independently ranks fall; exit code 1 if a |z| exceeds 6",
    );
    println!("instructions: {}; {ROWS} rows, {SEEDS} seeds a line", Isa::detect().name());
    let worst = [even(), weights(), monotone(), tables()].into_iter().fold(0.0, f64::max);
    println!("\nworst |z|: {worst:.2}");
    ExitCode::from(u8::from(worst > 6.0))
}

fn keys(seed: u64) -> Vec<u64> {
    let octets = [mix(seed + 1).to_le_bytes(), mix(seed + 77).to_le_bytes()].concat();
    let prefix = Prefix::new(&octets);
    (0..ROWS).map(|row| prefix.hash(&row.to_le_bytes())).collect()
}

fn top_two(set: &NodeSet, seed: u64) -> Vec<u32> {
    let keys = keys(seed);
    let mut first = vec![NodeSet::NONE; keys.len() * 2];
    set.top_many(&keys, 2, &mut first);
    first
}

/// χ² of counts against their expectations as a number of standard deviations from its mean.
fn z(counts: impl Iterator<Item = (u32, f64)>) -> f64 {
    let (mut chi2, mut cells) = (0.0, 0.0);
    for (count, expected) in counts {
        chi2 += (f64::from(count) - expected).powi(2) / expected;
        cells += 1.0;
    }
    let freedom = f64::max(cells - 1.0, 1.0);
    // Wilson and Hilferty: the cube root of χ² is nearly normal.
    let width = 2.0 / (9.0 * freedom);
    ((chi2 / freedom).cbrt() - (1.0 - width)) / width.sqrt()
}

#[derive(Default)]
struct Spread {
    sum: f64,
    worst: f64,
    count: f64,
}

impl Spread {
    fn add(&mut self, z: f64) {
        self.sum += z;
        self.count += 1.0;
        if z.abs() > self.worst.abs() {
            self.worst = z;
        }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:6.2} {:6.2}", self.sum / self.count, self.worst)
    }
}

fn even() -> f64 {
    println!("\nχ² as z: mean and worst of {SEEDS} seeds     owners         seconds        ordered pairs");
    let mut worst = 0.0f64;
    for Kind(kind, id) in IDS {
        for count in [2u32, 3, 10, 100, 256] {
            let nodes: Vec<Node> = (0..count).map(|i| Node::new(id(i))).collect();
            let set = NodeSet::new(&nodes);
            let mut spreads = [Spread::default(), Spread::default(), Spread::default()];
            for seed in 0..SEEDS {
                for (spread, z) in spreads.iter_mut().zip(evenness(&top_two(&set, seed), count)) {
                    spread.add(z);
                }
            }
            let [owners, seconds, pairs] = &spreads;
            println!("{kind:>16}, {count:3} nodes           {owners}  {seconds}  {pairs}");
            worst = spreads.iter().fold(worst, |worst, spread| worst.max(spread.worst.abs()));
        }
    }
    worst
}

fn evenness(first: &[u32], count: u32) -> [f64; 3] {
    let n = count as usize;
    let (mut owners, mut seconds, mut pairs) = (vec![0u32; n], vec![0u32; n], vec![0u32; n * n]);
    for pair in first.chunks_exact(2) {
        owners[pair[0] as usize] += 1;
        seconds[pair[1] as usize] += 1;
        pairs[pair[0] as usize * n + pair[1] as usize] += 1;
    }
    let (rows, nodes) = (f64::from(ROWS), f64::from(count));
    let even = |counts: &[u32]| z(counts.iter().map(|count| (*count, rows / nodes)));
    let different = pairs.iter().enumerate().filter(|(at, _)| at / n != at % n);
    let pairs = z(different.map(|(_, count)| (*count, rows / (nodes * (nodes - 1.0)))));
    [even(&owners), even(&seconds), pairs]
}

/// Shares in proportion to weight, as z of χ² over 20 seeds together.
fn weights() -> f64 {
    println!("\nshares by weight, χ² as z: mean and worst of {SEEDS} seeds; lightest node: rows against ±4σ");
    let primes: Vec<f64> = (2..230u32).filter(|n| (2..*n).all(|d| n % d != 0)).map(f64::from).collect();
    let mixed = |light: usize, heavy: f64| [vec![1.0; light], vec![heavy; 3]].concat();
    let cases = [("1:10", mixed(7, 10.0)), ("1:1000", mixed(3, 1000.0)), ("primes", primes)];
    let mut worst = 0.0f64;
    for (name, weights) in cases {
        let node = |(i, weight): (usize, &f64)| Node::weighted(format!("w{i}"), *weight).ok();
        let nodes: Vec<Node> = weights.iter().enumerate().filter_map(node).collect();
        let set = NodeSet::new(&nodes);
        let total: f64 = weights.iter().sum();
        let (mut spread, mut lightest) = (Spread::default(), 0u32);
        for seed in 0..SEEDS {
            let mut owners = vec![0u32; weights.len()];
            top_two(&set, seed).chunks_exact(2).for_each(|pair| owners[pair[0] as usize] += 1);
            lightest += owners[0];
            let expected = weights.iter().map(|weight| f64::from(ROWS) * weight / total);
            spread.add(z(owners.iter().copied().zip(expected)));
        }
        let share = weights[0] / total;
        let rows = f64::from(ROWS) * SEEDS as f64;
        let (fair, sigma) = (rows * share, (rows * share * (1.0 - share)).sqrt());
        let off = (f64::from(lightest) - fair) / sigma;
        println!("{name:>16}: {spread}   lightest {lightest} rows, fair {fair:.0}, off by {off:.2}σ");
        worst = worst.max(spread.worst.abs()).max(off.abs());
    }
    worst
}

/// Raising one weight never takes a row from that node, and moves rows to it only.
fn monotone() -> f64 {
    let weights = [0.5, 1.0, 1.5, 2.0, 7.0, 100.0];
    let owners = |weight: f64| {
        let node = |i: u32| Node::weighted(format!("m{i}"), if i == 4 { weight } else { 1.0 }).ok();
        let nodes: Vec<Node> = (0..10).filter_map(node).collect();
        top_two(&NodeSet::new(&nodes), 5).chunks_exact(2).map(|pair| pair[0]).collect::<Vec<u32>>()
    };
    let steps: Vec<Vec<u32>> = weights.into_iter().map(owners).collect();
    let strays =
        steps.windows(2).flat_map(|pair| pair[0].iter().zip(&pair[1])).filter(|(a, b)| a != b && **b != 4);
    let strays = strays.count();
    println!("\nraising one weight from 0.5 to 100 in steps: {strays} rows moved anywhere else");
    if strays == 0 { 0.0 } else { f64::INFINITY }
}

/// Two tables with other seeds agree on the owner of a row as often as chance has it.
fn tables() -> f64 {
    println!("\nindependence of tables of other seeds: rows of equal owner, as z");
    let mut worst = 0.0f64;
    for count in [3u32, 10, 100] {
        let nodes: Vec<Node> = (0..count).map(|i| Node::new(format!("web-{i}"))).collect();
        let set = NodeSet::new(&nodes);
        let all: Vec<Vec<u32>> = (0..SEEDS).map(|seed| top_two(&set, seed)).collect();
        let mut spread = Spread::default();
        for pair in all.windows(2) {
            let same =
                pair[0].chunks_exact(2).zip(pair[1].chunks_exact(2)).filter(|(a, b)| a[0] == b[0]).count();
            let (rows, p) = (f64::from(ROWS), 1.0 / f64::from(count));
            spread.add((same as f64 - rows * p) / (rows * p * (1.0 - p)).sqrt());
        }
        println!("{count:>12} nodes: {spread}");
        worst = worst.max(spread.worst.abs());
    }
    worst
}
