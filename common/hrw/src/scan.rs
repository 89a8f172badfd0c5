//! The first few of a ranking, without the ranking.

use super::bound::{self, Finalist};
use super::cost::Costs;
use super::set::{NodeSet, Scan, Slot, slot};
use super::simd::{self, LANES};
use super::{Ranker, score};

/// Most contenders that are kept while a key is decided alone.
const CONTENDERS: usize = 16;

impl NodeSet {
    /// Fills the cells beyond the last node. Callers need not look for it: `top` and `top_many` return how many cells
    /// hold an index.
    #[doc(hidden)]
    pub const NONE: u32 = u32::MAX;

    /// The position of the node that owns the key; none if there are no nodes.
    ///
    /// One vectorised pass over the nodes, no allocation.
    pub fn owner(&self, key_hash: u64) -> Option<usize> {
        let mut owner = [Self::NONE];
        self.top(key_hash, &mut owner);
        let [owner] = owner;
        (owner != Self::NONE).then_some(owner as usize)
    }

    /// Writes the indices of the first nodes of the ranking into `first`, and returns how many these are: the length of
    /// `first`, or the number of nodes if that is less. The cells after them hold no index.
    ///
    /// One vectorised pass over the nodes for up to eight; more are ranked by a [`Ranker`], which allocates.
    pub fn top(&self, key_hash: u64, first: &mut [u32]) -> usize {
        match first.len() {
            0 => {}
            1 => self.top_of_one::<2>(key_hash, first),
            2 => self.top_of_one::<3>(key_hash, first),
            3 | 4 => self.top_of_one::<5>(key_hash, first),
            5..=8 => self.top_of_one::<9>(key_hash, first),
            _ => self.rank(key_hash, first),
        }
        first.len().min(self.len())
    }

    /// The first `k` nodes of many keys. `first` holds `k` cells for each key, in the order of the keys; of each `k` cells
    /// as many as the result says hold indices. If `first` is shorter, the last key that has cells may have
    /// fewer than `k`, and the keys after it have none. Cells without a key keep their content. Indices have 32 bits here, because whole tables of them are kept.
    ///
    /// Keys stand side by side in the vectors, so nothing is reduced across lanes: the fastest way to whole tables.
    /// Threads may share the set and split the keys.
    ///
    /// ```
    /// use tryst_hrw::hash::hash_bytes;
    /// use tryst_hrw::{Node, NodeSet};
    ///
    /// let set = NodeSet::new(&["a", "b", "c"].map(Node::new));
    /// let keys = [b"k1", b"k2"].map(|key| hash_bytes(key));
    /// let mut first = [0; 4];
    /// set.top_many(&keys, 2, &mut first);
    /// assert_eq!(first[2..], [1, 0]); // b owns k2, and a is next
    /// ```
    pub fn top_many(&self, key_hashes: &[u64], k: usize, first: &mut [u32]) -> usize {
        let chunks = key_hashes.chunks(LANES).zip(first.chunks_mut((LANES * k).max(1)));
        for (keys, first) in chunks {
            match k {
                0 => {}
                1 => self.top_of_lanes::<2>(keys, k, first),
                2 => self.top_of_lanes::<3>(keys, k, first),
                3 | 4 => self.top_of_lanes::<5>(keys, k, first),
                5..=8 => self.top_of_lanes::<9>(keys, k, first),
                _ => keys.iter().zip(first.chunks_mut(k)).for_each(|(key, first)| self.rank(*key, first)),
            }
        }
        k.min(self.len())
    }

    fn top_of_lanes<const K: usize>(&self, keys: &[u64], k: usize, first: &mut [u32]) {
        let mut lanes = [0; LANES];
        lanes.iter_mut().zip(keys).for_each(|(lane, key)| *lane = *key);
        let firsts = keys.iter().zip(first.chunks_mut(k));
        match &self.scan {
            Scan::Tops { mask } => {
                let least = simd::keys_by_top::<K>(self.isa, &self.nodes, *mask, &lanes);
                for ((key, first), lane) in firsts.zip(0..) {
                    self.by_tops(*key, at_lane(&least, lane), *mask, first);
                }
            }
            Scan::Scores { mask } => {
                let least = simd::keys_by_score::<K>(self.isa, &self.nodes, u64::from(*mask), &lanes);
                for ((key, first), lane) in firsts.zip(0..) {
                    self.by_scores(*key, at_lane(&least, lane), *mask, first);
                }
            }
            Scan::Costs(costs) => {
                // No node comes after the last.
                let k = k.min(self.len() - 1);
                let (least, apart) = simd::keys_by_cost::<K>(self.isa, costs, &self.nodes, &lanes, k);
                for (((key, first), apart), lane) in firsts.zip(apart).zip(0..) {
                    self.by_costs(*key, at_lane(&least, lane), apart, costs, first);
                }
            }
            Scan::Full => firsts.for_each(|(key, first)| self.rank(*key, first)),
        }
    }

    fn top_of_one<const K: usize>(&self, key: u64, first: &mut [u32]) {
        match &self.scan {
            Scan::Tops { mask } => {
                self.by_tops(key, simd::nodes_by_top::<K>(self.isa, &self.nodes, *mask, key), *mask, first);
            }
            Scan::Scores { mask } => self.top_by_scores::<K>(key, *mask, first),
            Scan::Costs(costs) => {
                let packed = simd::nodes_by_cost::<K>(self.isa, costs, &self.nodes, key);
                let apart = self.are_apart(&packed, first.len(), |this, next| costs.are_apart(this, next));
                self.by_costs(key, packed, apart, costs, first);
            }
            Scan::Full => self.rank(key, first),
        }
    }

    #[inline]
    fn by_tops<const K: usize>(&self, key: u64, packed: [u32; K], mask: u32, first: &mut [u32]) {
        if self.are_apart(&packed, first.len(), |this, next| (this ^ next) & !mask != 0) {
            self.write(packed.map(|packed| slot(packed, mask)), first);
        } else {
            self.top_by_scores::<K>(key, mask, first);
        }
    }

    /// By all bits of scores, but for as many as slots take.
    fn top_by_scores<const K: usize>(&self, key: u64, mask: u32, first: &mut [u32]) {
        let packed = simd::nodes_by_score::<K>(self.isa, &self.nodes, u64::from(mask), key);
        self.by_scores(key, packed, mask, first);
    }

    #[inline]
    fn by_scores<const K: usize>(&self, key: u64, packed: [u64; K], mask: u32, first: &mut [u32]) {
        if self.are_apart(&packed, first.len(), |this, next| (this ^ next) & !u64::from(mask) != 0) {
            #[expect(clippy::cast_possible_truncation, reason = "the slot is in the lower bits")]
            self.write(packed.map(|packed| slot(packed as u32, mask)), first);
        } else {
            self.rank(key, first);
        }
    }

    #[inline]
    fn by_costs<const K: usize>(
        &self,
        key: u64,
        packed: [u32; K],
        apart: bool,
        costs: &Costs,
        first: &mut [u32],
    ) {
        if apart {
            self.write(packed.map(|packed| slot(packed, costs.mask)), first);
        } else {
            self.by_contenders(key, &packed, costs, first);
        }
    }

    /// Is each of the first `k` of the least packed told apart from the next, of which there is one more?
    #[inline(always)]
    fn are_apart<W: Copy, const K: usize>(
        &self,
        packed: &[W; K],
        k: usize,
        are_apart: impl Fn(W, W) -> bool,
    ) -> bool {
        let known = packed.get(..self.len().min(K)).unwrap_or(packed);
        known.iter().zip(known.iter().skip(1)).take(k).all(|(this, next)| are_apart(*this, *next))
    }

    /// By bounds or logarithms of all that may cost as little as the last of those asked for.
    #[cold]
    fn by_contenders(&self, key: u64, packed: &[u32], costs: &Costs, first: &mut [u32]) {
        if first.len() > self.len() {
            return self.rank(key, first);
        }
        let most = packed.iter().take(first.len()).map(|packed| costs.most(*packed)).fold(0.0, f32::max);
        let mut slots = [0; CONTENDERS];
        let count = simd::slots_within(self.isa, costs, &self.nodes, key, most, &mut slots);
        let mut contenders = [Finalist::default(); CONTENDERS];
        let Some(contenders) = contenders.get_mut(..count) else { return self.rank(key, first) };
        contenders.iter_mut().zip(slots).for_each(|(cell, slot)| *cell = self.finalist(key, slot as usize));
        if bound::decide(contenders, first.len(), |slot| self.weight(slot)) {
            self.write(contenders.iter().map(|contender| contender.slot), first);
        } else {
            self.rank(key, first);
        }
    }

    fn finalist(&self, key: u64, slot: usize) -> Finalist {
        Finalist::new(slot, score(key, self.nodes.seed(slot)), self.weight(slot))
    }

    fn weight(&self, slot: usize) -> f64 {
        self.slots.get(slot).map_or(1.0, |slot| slot.weight)
    }

    /// Fills `first` from the slots of the first nodes, of which there are at least as many as nodes.
    #[inline]
    fn write(&self, slots: impl IntoIterator<Item = usize>, first: &mut [u32]) {
        let mut nodes = slots.into_iter().take(self.len());
        for cell in first {
            let slot = nodes.next().and_then(|slot| self.slots.get(slot));
            *cell = slot.map_or(Self::NONE, Slot::position);
        }
    }

    /// The definition, for what the shorter ways leave open.
    #[cold]
    fn rank(&self, key: u64, first: &mut [u32]) {
        let mut ranker = Ranker::new(self);
        ranker.start(key);
        for cell in first {
            *cell = ranker.next_node().and_then(|index| u32::try_from(index).ok()).unwrap_or(Self::NONE);
        }
    }
}

#[inline]
fn at_lane<W: Copy + Default, const K: usize>(lanes: &[[W; LANES]; K], lane: usize) -> [W; K] {
    lanes.each_ref().map(|lanes| lanes.get(lane).copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::{Isa, Node};
    use super::*;
    use crate::hash::{hash_bytes, mix, unmix};
    use proptest::prelude::*;

    /// The seed that gives a node this score for the key.
    fn seed_for(key: u64, score: u64) -> u64 {
        unmix(score) ^ key
    }

    fn by_ranker(set: &NodeSet, key: u64, k: usize) -> Vec<u32> {
        let mut first = vec![0; k];
        set.rank(key, &mut first);
        first
    }

    /// Every way to the first `k` on every instruction set of this machine gives what the definition gives.
    fn assert_all_ways_agree(nodes: &[Node], keys: &[u64]) {
        let set = NodeSet::new(nodes);
        for k in 0..11 {
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

    /// A slice that ends within a key's cells, and one that goes beyond the last key.
    #[test]
    fn short_and_long_slices_are_filled_as_far_as_keys_and_cells_go() {
        let (set, keys) = (NodeSet::new(&nodes(&[1.0, 2.0, 3.0, 4.0])), keys(40));
        let mut whole = vec![0; 120];
        assert_eq!(set.top_many(&keys, 3, &mut whole), 3);
        for length in [0, 1, 2, 97, 119, 123] {
            let mut cells = vec![77; length];
            set.top_many(&keys, 3, &mut cells);
            let filled = length.min(120);
            assert_eq!(cells[..filled], whole[..filled], "{length} cells");
            assert!(cells[filled..].iter().all(|cell| *cell == 77), "{length} cells");
        }
        assert_eq!(set.top_many(&keys, 0, &mut []), 0);
        assert_eq!((set.top(keys[0], &mut [0; 9]), set.top_many(&keys, 9, &mut [0; 360])), (4, 4));
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
    fn many_nodes() {
        for n in [255, 256, 300, Scan::MAX_NARROW, Scan::MAX_NARROW + 1] {
            assert_all_ways_agree(&nodes(&vec![2.0; n]), &keys(40));
            let distinct: Vec<f64> = (1..).map(f64::from).take(n).collect();
            assert_all_ways_agree(&nodes(&distinct), &keys(40));
        }
    }

    #[test]
    fn weights_near_and_far() {
        let sample = |weights: &[f64]| assert_all_ways_agree(&nodes(weights), &keys(100));
        sample(&[1.0, 1.0 + f64::EPSILON, 1.0 - f64::EPSILON, 1.0, 2.0, 2.0 + 4.0 * f64::EPSILON]);
        sample(&[1e-9, 1.0, 1e9, 1e9, 1e-9, 1.0, 1.0, 1.0, 1.0]);
        sample(&[f64::MIN_POSITIVE, 1.0, f64::MAX, 1.0, f64::MIN_POSITIVE / 4.0]);
        // The weighted scores of the first overflow, and those of the second are a few units of the least double.
        sample(&[1e308, 5e307, 2e307, 1e307]);
        sample(&[1e-323, 2e-323, 5e-323, 1e-322]);
        for far in [1e3, 1e6, 1_048_576.0, 1_048_577.0, 1e12] {
            for n in [9, 100] {
                let mut weights = vec![1.0; n];
                weights[n / 2] = far;
                sample(&weights);
                weights.fill(far);
                weights[n / 2] = 1.0;
                sample(&weights);
            }
        }
        let primes: Vec<f64> = (2..300u32).filter(|n| (2..*n).all(|d| n % d != 0)).map(f64::from).collect();
        sample(&primes);
    }

    /// Scores that agree in all bits, in all but the lowest, and at both ends of the range.
    #[test]
    fn scores_too_close_to_pack() {
        let key = 0x0123_4567_89ab_cdef;
        for centre in [0, 1, 1 << 40, u64::MAX >> 1, u64::MAX - 4] {
            for weights in [[1.0; 9], [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 1.5, 1.5, 1.5]] {
                // The last two differ in what 64 bits hold beside a slot, and in what 32 do.
                for spread in [0u64, 1, 2, 1 << 24, 1 << 40] {
                    let mut close = nodes(&weights);
                    for (step, node) in (0u64..).zip(&mut close) {
                        node.seed = seed_for(key, centre.saturating_add(step * 5 % 3 * spread));
                        assert!(score(key, node.seed).abs_diff(centre) <= 4 * spread.max(1));
                    }
                    assert_all_ways_agree(&close, &[key, !key]);
                    assert_all_ways_agree(&among_many(close, key), &[key, !key]);
                }
            }
        }
    }

    /// The same nodes and forty that lose, which are all but as heavy as the heaviest, so that they are scanned as many are.
    fn among_many(mut close: Vec<Node>, key: u64) -> Vec<Node> {
        let heaviest = close.iter().map(Node::weight).fold(0.0, f64::max);
        for i in 0..40 {
            let mut loser = Node::weighted(format!("loser-{i}"), heaviest * 0.9).unwrap();
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

    /// Two nodes whose costs differ by one part in 2ⁿ, in either direction, among few and among many.
    #[test]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 < u < 1")]
    fn costs_that_differ_by_little() {
        let key = 12_345;
        let score_of = |u: f64| (u * 18_446_744_073_709_551_616.0) as u64;
        for (weight, u) in
            [0.999_999, 0.99, 0.9, 0.75, 0.5, 0.1, 1e-3].into_iter().flat_map(|u| [(3.0, u), (0.7, u)])
        {
            for part in 8..40 {
                for ratio in [1.0 + 2f64.powi(-part), 1.0 - 2f64.powi(-part)] {
                    let mut close = nodes(&[1.0, weight]);
                    close[0].seed = seed_for(key, score_of(u));
                    close[1].seed = seed_for(key, score_of((u.ln() * weight * ratio).exp()));
                    assert_all_ways_agree(&close, &[key]);
                    assert_all_ways_agree(&among_many(close, key), &[key]);
                }
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
