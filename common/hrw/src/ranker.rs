//! Rankings of many keys over one set of nodes.

use super::set::{Class, NodeSet};
use super::{simd, weighted_score};
use alloc::vec;
use alloc::vec::Vec;

/// Ranks one key after another, node by node, without allocating.
///
/// ```
/// use tryst_hrw::{Node, NodeSet, Ranker};
/// use tryst_hrw::hash::hash_bytes;
///
/// let set = NodeSet::new(&["a", "b", "c"].map(Node::new));
/// let mut ranker = Ranker::new(&set);
/// ranker.start(hash_bytes(b"k2"));
/// assert_eq!(ranker.next_node(), Some(1));
/// assert_eq!(ranker.next_node(), Some(0));
/// ```
///
/// Starting costs one score a node; each node asked for costs one pass over the scores of its class.
#[derive(Clone, Debug)]
pub struct Ranker<'set> {
    set: &'set NodeSet,
    scores: Vec<u64>,
    heads: Vec<Option<Head>>,
}

/// The best node of a class that was not given out yet.
#[derive(Clone, Copy, Debug)]
struct Head {
    slot: usize,
    score: u64,
    weighted: f64,
    id_rank: usize,
}

impl Head {
    /// Does it come before `other`, which is of another class?
    fn beats(&self, other: &Self) -> bool {
        (self.weighted, self.id_rank) > (other.weighted, other.id_rank)
    }
}

impl<'set> Ranker<'set> {
    /// A ranker over `set`; [`Ranker::start`] it with a key.
    pub fn new(set: &'set NodeSet) -> Self {
        Self { set, scores: vec![0; set.len()], heads: vec![None; set.classes.len()] }
    }

    /// Begins the ranking of the key whose [`hash_bytes`](crate::hash::hash_bytes) is `key_hash`.
    pub fn start(&mut self, key_hash: u64) {
        simd::scores(self.set.isa, self.set.nodes.seeds(), key_hash, &mut self.scores);
        self.find_heads();
    }

    /// Begins a ranking by other scores: `score_of` is given a node's position.
    pub fn start_with(&mut self, score_of: impl Fn(usize) -> u64) {
        for (cell, slot) in self.scores.iter_mut().zip(&self.set.slots) {
            *cell = score_of(slot.node);
        }
        self.find_heads();
    }

    /// The next node of the ranking; none after the last.
    pub fn next_node(&mut self) -> Option<usize> {
        let (class, head) = self.best_head()?;
        let next = self.set.classes.get(class).and_then(|class| self.head(class, Some(head)));
        if let Some(cell) = self.heads.get_mut(class) {
            *cell = next;
        }
        self.set.slots.get(head.slot).map(|slot| slot.node)
    }

    fn best_head(&self) -> Option<(usize, Head)> {
        let heads = self.heads.iter().enumerate().filter_map(|(class, head)| Some((class, (*head)?)));
        heads.reduce(|best, next| if next.1.beats(&best.1) { next } else { best })
    }

    fn find_heads(&mut self) {
        for index in 0..self.set.classes.len() {
            let head = self.set.classes.get(index).and_then(|class| self.head(class, None));
            if let Some(cell) = self.heads.get_mut(index) {
                *cell = head;
            }
        }
    }

    /// The best node of a class, or the best of those that come after `last`.
    fn head(&self, class: &Class, last: Option<Head>) -> Option<Head> {
        let scores = self.scores.get(class.slots.clone())?;
        let mut best: Option<(usize, u64)> = None;
        for (slot, &score) in (class.slots.start..).zip(scores) {
            let eligible =
                last.is_none_or(|last| score < last.score || (score == last.score && slot > last.slot));
            if eligible && best.is_none_or(|(_, highest)| score > highest) {
                best = Some((slot, score));
            }
        }
        let (slot, score) = best?;
        let id_rank = self.set.slots.get(slot)?.id_rank;
        let only_class = self.set.classes.len() == 1;
        let weighted = if only_class { 0.0 } else { weighted_score(score, class.weight) };
        Some(Head { slot, score, weighted, id_rank })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Node, score};
    use super::*;

    /// Scores of four bits: most are tied, and every tie must go to the greater id.
    #[test]
    fn ties_go_to_the_greater_id_wherever_it_stands() {
        let ids = ["m", "c", "z", "a", "q", "b"];
        for shift in 0..ids.len() {
            let order: Vec<_> = (0..ids.len()).map(|i| ids[(i + shift) % ids.len()]).collect();
            let nodes: Vec<_> = order.iter().map(|id| Node::new(*id)).collect();
            let set = NodeSet::new(&nodes);
            let mut ranker = Ranker::new(&set);
            for key in 0..64u64 {
                let coarse = |node: usize| (score(key, nodes[node].seed()) >> 60) & 3;
                ranker.start_with(coarse);
                let ranked: Vec<_> = core::iter::from_fn(|| ranker.next_node()).collect();
                let mut expected: Vec<_> = (0..ids.len()).collect();
                expected.sort_by(|&a, &b| (coarse(b), order[b]).cmp(&(coarse(a), order[a])));
                assert_eq!(ranked, expected);
            }
        }
    }

    #[test]
    fn equal_weighted_scores_of_two_classes_go_to_the_greater_id() {
        // The same score twice, and weights that differ by less than the rounding of the quotient.
        let a = Node::weighted("a", 1.0).unwrap();
        let b = Node::weighted("b", 1.0 - f64::EPSILON / 2.0).unwrap();
        let tied = (0..10_000u64)
            .map(|i| i << 50)
            .find(|&s| weighted_score(s, a.weight()) == weighted_score(s, b.weight()));
        let score = tied.expect("two neighbouring weights meet somewhere");
        for nodes in [[a.clone(), b.clone()], [b, a]] {
            let set = NodeSet::new(&nodes);
            let mut ranker = Ranker::new(&set);
            ranker.start_with(|_| score);
            assert_eq!(ranker.next_node().map(|index| nodes[index].id()), Some("b"));
        }
    }
}
