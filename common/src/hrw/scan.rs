//! The first few of a ranking, without the ranking.

use super::bound::{self, Finalist};
use super::set::{NodeSet, Scan};
use super::simd::{self, LANES};
use super::{Ranker, score};

/// Most contenders that are kept while a key is decided alone.
const CONTENDERS: usize = 16;

impl NodeSet {
    /// Stands for "no such node" where there are fewer nodes than were asked for.
    pub const NONE: u32 = u32::MAX;

    /// The position of the node that owns the key; none if there are no nodes.
    ///
    /// One vectorised pass over the nodes, no allocation.
    pub fn owner(&self, key_hash: u64) -> Option<usize> {
        let mut owner = [Self::NONE];
        self.top(key_hash, &mut owner);
        owner.first().filter(|at| **at != Self::NONE).map(|at| *at as usize)
    }

    /// Fills `first` with the positions of the first nodes in the ranking, then with [`NodeSet::NONE`].
    ///
    /// One vectorised pass over the nodes for up to four; more are ranked by a [`Ranker`], which allocates.
    pub fn top(&self, key_hash: u64, first: &mut [u32]) {
        match first.len() {
            0 => {}
            1 => self.top_of_one::<2>(key_hash, first),
            2 if self.is_small_mix() => self.top_of_one::<4>(key_hash, first),
            2 => self.top_of_one::<3>(key_hash, first),
            3 | 4 => self.top_of_one::<5>(key_hash, first),
            _ => self.rank(key_hash, first),
        }
    }

    /// The first `k` nodes of many keys: `first` holds `k` cells a key, filled as by [`NodeSet::top`].
    ///
    /// Keys stand side by side in the vectors, so nothing is reduced across lanes: the fastest way to whole tables.
    /// Threads may share the set and split the keys.
    ///
    /// ```
    /// use common::hash::hash_bytes;
    /// use common::hrw::{Node, NodeSet};
    ///
    /// let set = NodeSet::new(&["a", "b", "c"].map(Node::new));
    /// let keys = [b"k1", b"k2"].map(|key| hash_bytes(key));
    /// let mut first = [0; 4];
    /// set.top_many(&keys, 2, &mut first);
    /// assert_eq!(first[2..], [1, 0]); // b owns k2, and a is next
    /// ```
    pub fn top_many(&self, key_hashes: &[u64], k: usize, first: &mut [u32]) {
        let chunks = key_hashes.chunks(LANES).zip(first.chunks_mut((LANES * k).max(1)));
        for (keys, first) in chunks {
            match k {
                0 => return,
                1 => self.top_of_lanes::<2>(keys, k, first),
                2 if self.is_small_mix() => self.top_of_lanes::<4>(keys, k, first),
                2 => self.top_of_lanes::<3>(keys, k, first),
                3 | 4 => self.top_of_lanes::<5>(keys, k, first),
                _ => keys.iter().zip(first.chunks_mut(k)).for_each(|(key, first)| self.rank(*key, first)),
            }
        }
    }

    fn top_of_lanes<const K: usize>(&self, keys: &[u64], k: usize, first: &mut [u32]) {
        let mut lanes = [0; LANES];
        lanes.iter_mut().zip(keys).for_each(|(lane, key)| *lane = *key);
        let firsts = keys.iter().zip(first.chunks_mut(k));
        match &self.scan {
            Scan::Scores { mask } => {
                let least: [simd::Lanes; K] = simd::keys_by_score(self.isa, &self.seeds, *mask, &lanes);
                for (lane, (key, first)) in firsts.enumerate() {
                    let packed = least.each_ref().map(|lanes| lanes.get(lane).copied().unwrap_or_default());
                    self.by_scores(*key, packed, *mask, first);
                }
            }
            Scan::Costs { mask, nodes } => {
                let least: [simd::Lanes; K] = simd::keys_by_cost(self.isa, nodes, *mask, &lanes);
                for (lane, (key, first)) in firsts.enumerate() {
                    let packed = least.each_ref().map(|lanes| lanes.get(lane).copied().unwrap_or_default());
                    self.by_costs(*key, packed, *mask, first);
                }
            }
            Scan::Bounds { mask, nodes, lightest } => {
                let least: [simd::Lanes; K] = simd::keys_by_bound(self.isa, nodes, *mask, &lanes);
                let others = (self.len() > K).then_some(*lightest);
                let settled =
                    simd::are_settled(self.isa, nodes, *mask, others, &lanes, &least, k.min(self.len()));
                for ((lane, settled), (key, first)) in settled.into_iter().enumerate().zip(firsts) {
                    let packed = least.each_ref().map(|lanes| lanes.get(lane).copied().unwrap_or_default());
                    if settled {
                        self.write(packed.iter().take(self.len()).map(|packed| slot(*packed, *mask)), first);
                    } else {
                        self.by_bounds(*key, packed, first);
                    }
                }
            }
            Scan::Full => firsts.for_each(|(key, first)| self.rank(*key, first)),
        }
    }

    fn top_of_one<const K: usize>(&self, key: u64, first: &mut [u32]) {
        match &self.scan {
            Scan::Scores { mask } => {
                let packed = simd::nodes_by_score::<K>(self.isa, &self.seeds, *mask, key);
                self.by_scores(key, packed, *mask, first);
            }
            Scan::Costs { mask, nodes } => {
                self.by_costs(key, simd::nodes_by_cost::<K>(self.isa, nodes, *mask, key), *mask, first);
            }
            Scan::Bounds { mask, nodes, .. } => {
                let packed = simd::nodes_by_bound::<K>(self.isa, nodes, *mask, key);
                self.by_bounds(key, packed, first);
            }
            Scan::Full => self.rank(key, first),
        }
    }

    /// It takes one more than are asked for to tell the first ones from all others; by bounds among nodes that are not
    /// many two more, since there the bounds are wide.
    fn is_small_mix(&self) -> bool {
        matches!(self.scan, Scan::Bounds { .. }) && self.len() <= 64
    }

    #[inline]
    fn by_scores<const K: usize>(&self, key: u64, packed: [u64; K], mask: u64, first: &mut [u32]) {
        self.by_packed(key, packed, mask, first, |this, next| (this ^ next) & !mask != 0);
    }

    #[inline]
    fn by_costs<const K: usize>(&self, key: u64, packed: [u64; K], mask: u64, first: &mut [u32]) {
        let told_apart = |this, next| f64::from_bits(this) * bound::TOLD_APART < f64::from_bits(next);
        self.by_packed(key, packed, mask, first, told_apart);
    }

    /// Fills `first` from the `K` least packed, one more than are asked for, if each is told apart from the next.
    #[inline(always)]
    fn by_packed<const K: usize>(
        &self,
        key: u64,
        packed: [u64; K],
        mask: u64,
        first: &mut [u32],
        told_apart: impl Fn(u64, u64) -> bool,
    ) {
        let known = packed.get(..self.len().min(K)).unwrap_or(&packed);
        let pairs = known.iter().zip(known.iter().skip(1));
        if pairs.take(first.len()).all(|(this, next)| told_apart(*this, *next)) {
            self.write(known.iter().map(|packed| slot(*packed, mask)), first);
        } else {
            self.rank(key, first);
        }
    }

    /// Fills `first` from the `K` nodes of least quick bound.
    #[inline]
    fn by_bounds<const K: usize>(&self, key: u64, packed: [u64; K], first: &mut [u32]) {
        let Scan::Bounds { mask, nodes, lightest } = &self.scan else { return };
        let everyone = self.len() <= K;
        let last = packed.last().copied().unwrap_or_default();
        let floor = if everyone { f64::INFINITY } else { bound::floor(last, *mask, *lightest) };
        let mut finalists = packed.map(|packed| finalist(nodes, key, slot(packed, *mask)));
        let Some(finalists) = finalists.get_mut(..K.min(self.len())) else { return };
        if bound::decide(finalists, first.len(), floor, |slot| self.weight(slot)) {
            self.write(finalists.iter().map(|finalist| finalist.slot), first);
        } else if everyone || !self.by_contenders(key, finalists, first) {
            self.rank(key, first);
        }
    }

    /// Decides among all whose quick bound is below what the last of enough finalists may cost.
    #[cold]
    fn by_contenders(&self, key: u64, finalists: &mut [Finalist], first: &mut [u32]) -> bool {
        let Scan::Bounds { nodes, lightest, .. } = &self.scan else { return false };
        finalists.sort_by(|a, b| a.most.total_cmp(&b.most));
        let Some(enough) = finalists.get(first.len() - 1).map(|last| last.most) else { return false };
        let ceiling = (enough + bound::slack(*lightest)) * (1.0 + bound::PACKING);
        let mut contenders = [Finalist::default(); CONTENDERS];
        let mut count = 0;
        for (slot, (seed, inverse)) in nodes.iter().enumerate() {
            if simd::quick_bound(key ^ seed, *inverse) > ceiling {
                continue;
            }
            let Some(cell) = contenders.get_mut(count) else { return false };
            *cell = finalist(nodes, key, slot);
            count += 1;
        }
        let Some(contenders) = contenders.get_mut(..count) else { return false };
        let decided = bound::decide(contenders, first.len(), f64::INFINITY, |slot| self.weight(slot));
        if decided {
            self.write(contenders.iter().map(|contender| contender.slot), first);
        }
        decided
    }

    fn weight(&self, slot: usize) -> f64 {
        self.slots.get(slot).map_or(1.0, |slot| slot.weight)
    }

    #[inline]
    fn write(&self, slots: impl Iterator<Item = usize>, first: &mut [u32]) {
        let mut nodes = slots.map(|slot| self.slots.get(slot).map_or(Self::NONE, |slot| slot.position()));
        first.iter_mut().for_each(|cell| *cell = nodes.next().unwrap_or(Self::NONE));
    }

    /// The definition, for what the shorter ways leave open.
    #[cold]
    fn rank(&self, key: u64, first: &mut [u32]) {
        let mut ranker = Ranker::new(self);
        ranker.start(key);
        for cell in first {
            *cell = ranker.next_node().and_then(|at| u32::try_from(at).ok()).unwrap_or(Self::NONE);
        }
    }
}

#[inline]
fn finalist(nodes: &[(u64, f64)], key: u64, slot: usize) -> Finalist {
    let (seed, inverse) = nodes.get(slot).copied().unwrap_or_default();
    Finalist::new(slot, score(key, seed), inverse)
}

#[inline]
fn slot(packed: u64, mask: u64) -> usize {
    usize::try_from(packed & mask).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::{Isa, Node};
    use super::*;
    use crate::hash::{hash_bytes, mix};
    use proptest::prelude::*;

    /// `mix` backwards: the seed that gives a node this score for the key.
    fn seed_for(key: u64, score: u64) -> u64 {
        let unshift = |z: u64, by: u32| (0..=64 / by).fold(z, |acc, _| z ^ (acc >> by));
        let z = unshift(score, 31).wrapping_mul(0x3196_42b2_d24d_8ec3);
        let z = unshift(z, 27).wrapping_mul(0x96de_1b17_3f11_9089);
        unshift(z, 30) ^ key
    }

    fn by_ranker(set: &NodeSet, key: u64, k: usize) -> Vec<u32> {
        let mut first = vec![0; k];
        set.rank(key, &mut first);
        first
    }

    /// Every way to the first `k` on every instruction set of this machine gives what the definition gives.
    fn assert_all_ways_agree(nodes: &[Node], keys: &[u64]) {
        let set = NodeSet::new(nodes);
        for k in 0..7 {
            let expected: Vec<u32> = keys.iter().flat_map(|key| by_ranker(&set, *key, k)).collect();
            for isa in Isa::available() {
                let set = set.clone().with_isa(isa);
                let mut many = vec![7; keys.len() * k];
                set.top_many(keys, k, &mut many);
                assert_eq!(many, expected, "{} many, k = {k}", isa.name());
                let one = |key: &u64| {
                    let mut first = vec![7; k];
                    set.top(*key, &mut first);
                    first
                };
                let ones: Vec<u32> = keys.iter().flat_map(one).collect();
                assert_eq!(ones, expected, "{} one, k = {k}", isa.name());
            }
        }
    }

    fn nodes(weights: &[f64]) -> Vec<Node> {
        (0..).zip(weights).map(|(i, w): (u32, _)| Node::weighted(format!("node-{i}"), *w).unwrap()).collect()
    }

    fn keys(count: u64) -> Vec<u64> {
        (0..count).map(|i| mix(i + 1)).collect()
    }

    #[test]
    fn every_length_around_the_lanes() {
        for n in (0..20).chain([31, 32, 33, 63, 64, 65, 100]) {
            assert_all_ways_agree(&nodes(&vec![1.0; n]), &keys(33));
            let distinct: Vec<f64> = (1..).map(f64::from).take(n).collect();
            assert_all_ways_agree(&nodes(&distinct), &keys(33));
        }
    }

    #[test]
    fn weights_near_and_far() {
        let sample = |weights: &[f64]| assert_all_ways_agree(&nodes(weights), &keys(100));
        sample(&[1.0, 1.0 + f64::EPSILON, 1.0 - f64::EPSILON, 1.0, 2.0, 2.0 + 4.0 * f64::EPSILON]);
        sample(&[1e-9, 1.0, 1e9, 1e9, 1e-9, 1.0, 1.0, 1.0, 1.0]);
        sample(&[f64::MIN_POSITIVE, 1.0, f64::MAX, 1.0, f64::MIN_POSITIVE / 4.0]);
        sample(&[1000.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
        let primes: Vec<f64> = (2..300u32).filter(|n| (2..*n).all(|d| n % d != 0)).map(f64::from).collect();
        sample(&primes);
    }

    /// Scores that agree in all bits, in all but the lowest, and at both ends of the range.
    #[test]
    fn scores_too_close_to_pack() {
        let key = 0x0123_4567_89ab_cdef;
        for centre in [0, 1, 1 << 40, u64::MAX >> 1, u64::MAX - 4] {
            for weights in [[1.0; 9], [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 1.5, 1.5, 1.5]] {
                for spread in [0u64, 1, 2] {
                    let mut close = nodes(&weights);
                    for (step, node) in (0u64..).zip(&mut close) {
                        node.seed = seed_for(key, centre.saturating_add(step * 5 % 3 * spread));
                        assert!(score(key, node.seed).abs_diff(centre) <= 4);
                    }
                    assert_all_ways_agree(&close, &[key, !key]);
                    assert_all_ways_agree(&among_many(close, key), &[key, !key]);
                }
            }
        }
    }

    /// The same nodes and forty that lose, so that they are scanned as many are.
    fn among_many(mut close: Vec<Node>, key: u64) -> Vec<Node> {
        for i in 0..40 {
            let mut loser = Node::weighted(format!("loser-{i}"), 0.25).unwrap();
            loser.seed = seed_for(key, 1000 + i);
            close.push(loser);
        }
        close
    }

    /// The same cost by different weights: only the exact comparison can tell.
    #[test]
    fn costs_too_close_to_bound() {
        let key = 99;
        let mut close = nodes(&[1.0, 1.0 + f64::EPSILON, 1.0 + 2.0 * f64::EPSILON, 3.0, 1.0, 0.5, 0.25]);
        for node in &mut close {
            node.seed = seed_for(key, u64::MAX - (1 << 54));
        }
        assert_all_ways_agree(&close, &[key]);
        assert_all_ways_agree(&among_many(close.clone(), key), &[key]);
        for node in &mut close {
            node.seed = seed_for(key, u64::MAX >> 3);
        }
        assert_all_ways_agree(&close, &[key]);
        assert_all_ways_agree(&among_many(close, key), &[key]);
    }

    /// Against the platform's logarithm, which is right to a unit or two in the last place.
    #[test]
    fn the_short_logarithm_is_as_near_as_it_says() {
        let ends =
            [0, 1, 2, u64::MAX, u64::MAX - (1 << 11), u64::MAX - (1 << 30), 1 << 63, (1 << 63) - (1 << 11)];
        let around_root = [-1i64, 0, 1].map(|step| 0xb504_f333_f9de_6484u64.wrapping_add_signed(step << 11));
        for score in ends.into_iter().chain(around_root).chain(keys(1_000_000)) {
            let u = super::super::unit(score);
            let (short, exact) = (bound::minus_ln(u), -u.ln());
            assert!((short / exact - 1.0).abs() < bound::PACKING / 4.0, "{score:x}: {short} {exact}");
        }
    }

    #[test]
    fn quick_bounds_are_bounds() {
        let extremes = [0, 1, u64::MAX, u64::MAX - 1, 1 << 33, !(1 << 33)];
        for score in extremes.into_iter().chain(keys(10_000)) {
            for weight in [1e-3, 1.0, 7.0, 1e9] {
                let quick = simd::quick_bound(seed_for(0, score), bound::inverse(weight));
                let cost = 1.0 / super::super::weighted_score(score, weight);
                assert!(quick * (1.0 - f64::EPSILON) <= cost + bound::slack(weight), "{score:x} {weight}");
                let (least, most) = bound::bounds(score, bound::inverse(weight));
                assert!(least <= cost && cost <= most, "{score:x} {weight} {least} {most}");
                assert!(most.is_infinite() || most - least <= cost * 0.05);
                let floor = bound::floor(quick.to_bits(), 0xf_ffff, weight);
                assert!(floor <= cost, "{score:x} {weight} {floor} {cost}");
                let worth = most.is_infinite() || floor >= cost * 0.9 - bound::slack(weight) * 2.0;
                assert!(worth, "{score:x} {weight} {floor} {cost}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_weights(
            weights in prop::collection::vec(prop_oneof![Just(1.0), Just(10.0), 0.001f64..1000.0], 0..80),
            key: Vec<u8>,
        ) {
            assert_all_ways_agree(&nodes(&weights), &[hash_bytes(&key)]);
        }
    }
}
