//! How ranks fall, where it is cheap to look: even, independent, in proportion to weight, for ids that are awkward to
//! hash. The `hrw_quality` report of the benches looks longer.

use tryst_hrw::hash::{Prefix, mix};
use tryst_hrw::{Node, NodeSet};

const ROWS: u32 = 1 << 15;

fn top_two(set: &NodeSet, seed: u64) -> Vec<[usize; 2]> {
    let prefix = Prefix::new(&[mix(seed + 1).to_le_bytes(), mix(seed + 77).to_le_bytes()].concat());
    let keys: Vec<u64> = (0..ROWS).map(|row| prefix.hash(&row.to_le_bytes())).collect();
    let mut first = vec![NodeSet::NONE; keys.len() * 2];
    set.top_many(&keys, 2, &mut first);
    first.chunks_exact(2).map(|pair| [pair[0] as usize, pair[1] as usize]).collect()
}

/// χ² of counts that should be `expected`, as standard deviations from its mean (Wilson and Hilferty).
fn z(counts: &[u32], expected: f64) -> f64 {
    let chi2: f64 = counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
    let freedom = f64::max(counts.len() as f64 - 1.0, 1.0);
    let width = 2.0 / (9.0 * freedom);
    ((chi2 / freedom).cbrt() - (1.0 - width)) / width.sqrt()
}

#[test]
fn owners_seconds_and_pairs_are_even_for_awkward_ids() {
    let kinds: [fn(u32) -> String; 4] = [
        |i| i.to_string(),
        |i| format!("10.0.0.{i}"),
        |i| format!("{:08x}-0000-4000-8000-{:012x}", mix(u64::from(i)) >> 32, mix(u64::from(i) + 9) >> 16),
        |i| format!("2001:db8::{i:x}:0:0:1"),
    ];
    for (kind, id) in kinds.into_iter().enumerate() {
        for n in [2u8, 3, 10, 16] {
            let set = NodeSet::new(&(0..u32::from(n)).map(|i| Node::new(id(i))).collect::<Vec<_>>());
            for seed in 0..3 {
                let (nodes, count) = (f64::from(n), usize::from(n));
                let (mut owners, mut seconds) = (vec![0; count], vec![0; count]);
                let mut pairs = vec![0; count * count];
                for [owner, second] in top_two(&set, seed) {
                    owners[owner] += 1;
                    seconds[second] += 1;
                    pairs[owner * count + second] += 1;
                }
                let apart: Vec<u32> = pairs
                    .iter()
                    .enumerate()
                    .filter(|(at, _)| at / count != at % count)
                    .map(|(_, c)| *c)
                    .collect();
                let rows = f64::from(ROWS);
                let figures = [
                    z(&owners, rows / nodes),
                    z(&seconds, rows / nodes),
                    z(&apart, rows / nodes / (nodes - 1.0)),
                ];
                assert!(
                    figures.iter().all(|z| z.abs() < 5.0),
                    "ids {kind}, {n} nodes, seed {seed}: {figures:?}"
                );
            }
        }
    }
}

#[test]
fn shares_follow_weights_within_four_sigma() {
    let primes = [2.0, 3.0, 5.0, 7.0, 11.0, 13.0, 17.0, 19.0, 23.0];
    for weights in [&[1.0, 10.0][..], &[1.0, 1.0, 1000.0], &primes] {
        let nodes =
            weights.iter().enumerate().map(|(i, weight)| Node::weighted(format!("w{i}"), *weight).unwrap());
        let set = NodeSet::new(&nodes.collect::<Vec<_>>());
        let mut owned = vec![0u32; weights.len()];
        let seeds = 4;
        (0..seeds).for_each(|seed| top_two(&set, seed).iter().for_each(|[owner, _]| owned[*owner] += 1));
        let rows = f64::from(ROWS) * seeds as f64;
        for (weight, owned) in weights.iter().zip(owned) {
            let share = weight / weights.iter().sum::<f64>();
            let sigma = (rows * share * (1.0 - share)).sqrt();
            assert!(
                (f64::from(owned) - rows * share).abs() <= 4.0 * sigma,
                "{weight} of {weights:?}: {owned}"
            );
        }
    }
}

#[test]
fn raising_a_weight_moves_rows_to_that_node_only() {
    let owners = |weight: f64| {
        let node = |i: u32| Node::weighted(format!("m{i}"), if i == 4 { weight } else { 1.0 }).unwrap();
        top_two(&NodeSet::new(&(0..9).map(node).collect::<Vec<_>>()), 1)
    };
    let steps: Vec<_> = [0.25, 0.5, 1.0, 1.1, 3.0, 50.0].into_iter().map(owners).collect();
    for pair in steps.windows(2) {
        for (before, after) in pair[0].iter().zip(&pair[1]) {
            assert!(before[0] == after[0] || after[0] == 4);
        }
    }
}

#[test]
fn tables_of_other_seeds_are_independent() {
    let set = NodeSet::new(&(0..10).map(|i| Node::new(format!("web-{i}"))).collect::<Vec<_>>());
    let (a, b) = (top_two(&set, 1), top_two(&set, 2));
    let same = a.iter().zip(&b).filter(|(a, b)| a[0] == b[0]).count() as f64;
    let (fair, sigma) = (f64::from(ROWS) / 10.0, (f64::from(ROWS) * 0.09).sqrt());
    assert!((same - fair).abs() < 5.0 * sigma, "{same}");
}
