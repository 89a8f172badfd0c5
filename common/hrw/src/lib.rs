//! Rendezvous hashing, also known as highest random weight (HRW).
//!
//! Every node gets a score for every key; the nodes in descending order of score are the key's *ranking*, and the
//! first of them is its *owner*. If a node leaves, only its keys move, each to the next node of its own ranking. If a node
//! joins, only the keys that it wins move. There is no ring, no slot table and no state. The nodes after the owner are
//! the key's second choices.
//!
//! ```
//! use tryst_hrw::Node;
//!
//! let nodes = ["a", "b", "c", "d", "e"].map(Node::new);
//! let ranking = tryst_hrw::top_k(b"user:42", &nodes, 3);
//! assert_eq!(ranking, [0, 1, 3]); // a, then b, then d
//! assert_eq!(tryst_hrw::owner(b"user:42", &nodes), Some(0));
//! ```
//!
//! # The score
//!
//! ```text
//! seed(node) = hash_bytes(id)                     once a node
//! score      = mix(hash_bytes(key) ^ seed(node))  once a key and node
//! ```
//!
//! The exclusive-or alone would not do: `a ^ x < a ^ y` depends on the highest bit in which `x` and `y` differ, so
//! whole subtrees of keys would favour one node. [`mix`] makes the scores of one key independent of each other for
//! the purposes of ranking.
//!
//! # Weights
//!
//! With `u` the score as a number in (0, 1), a node ranks by `−w / ln u`. For `u` uniform, `−ln u` is exponentially
//! distributed with rate 1, and `−ln u / w` with rate `w`: of independent exponentials the one with rate `wᵢ` is the
//! least with probability `wᵢ / Σw`. So a node owns a share of keys in exact proportion to its weight, and raising
//! one weight moves keys to that node only (R. Schindelhauer and G. Schomaker, *Weighted distributed hash tables*,
//! SPAA 2005). The share of *second* places is not in proportion to weight: a heavy node is seldom second, because it is
//! so often first.
//!
//! Within one weight the order of the raw 64-bit scores *is* the order of the weighted scores, and finer than that
//! of the 53-bit `u`. So nodes are kept in classes of equal weight, each class is ranked by raw score, and the
//! classes are merged by the weighted scores of their best: the logarithm is needed once a class, not once a node.
//!
//! # Scans
//!
//! One pass over the nodes finds the first few of a ranking. It computes a word of 32 bits for each node and keeps the
//! least words. The word is made of the upper bits of the score or, if weights differ, of `−ln u / w` in single precision.
//! Its low bits hold the node's number. The error of a word is bounded, so the scan detects the few keys for which the
//! words do not decide. More bits decide those, and the definition decides the rest.
//!
//! # Which type for what
//!
//! | to find | use | cost, `n` nodes |
//! |---|---|---|
//! | one key's owner or first few, now and then | [`owner`], [`top_k`] | lays the nodes out each time, `O(n log n)` |
//! | owners or first few of many keys | [`NodeSet::owner`], [`NodeSet::top_many`] | one vectorised pass over `n`, no allocation |
//! | a whole ranking, node by node | [`Ranker`] | `O(n)` to start, then `O(n)` a node |
//! | the first few of all keys while nodes change | [`Rankings`] | a node joins: one score a key; leaves: its keys |
//! | the keys to carry when places change | [`Placement`] | likewise; 36 octets a key |
//! | the same owners again and again | [`OwnerCache`] | a hit: one comparison |
//! | one owner among thousands, if more may move | [`Skeleton`] | `O(f log n / log f)` |
//! | owners with a bound on the share of each | [`bounded_owners`] | as the scan, and more for keys that are turned away |
//! | GLB Director's ranking of rows | [`DigestSet`] | one vectorised pass over `n` |
//!
//! All but the skeleton give the same owners. Scans are compiled for several instruction sets ([`Isa`]) and give the
//! same bits on each.
//!
//! # Contracts
//!
//! * **Same result everywhere.** Scores and rankings depend on ids, weights and keys only. The logarithm is that of the
//!   `libm` crate: software, with the same bits on every processor. Ties go to the greater id, never to the place in a list.
//! * **Same result in later versions.** The hash functions and the order are version 1 of the ranking. Test vectors of an
//!   independent implementation pin them. A release that changed a ranking would be a new major version.
//! * **Duplicate ids.** Ids should be distinct. Nodes of equal id and weight have equal scores, so one of them owns the
//!   keys of all, and which one depends on the order of the list. Nothing panics.
//! * **Indices and handles.** An index refers to the list of nodes or keys that was given. A handle names a node for as long
//!   as it stays; after it left, another node may get the handle. An unknown handle changes nothing.
//! * **Limits.** Sets hold fewer than 2³² nodes, lists fewer than 2³² keys. Sets of more than 2²⁰ nodes and weights of a
//!   ratio above 2²⁰ are ranked by the definition, which is slower and gives the same order.
//! * **Errors.** [`InvalidWeight`] is the only one: [`Node::weighted`] returns it for a weight that is not finite or not
//!   greater than 0. No other function fails or panics on its input.
//!
//! The module [`algorithm`] explains the scans and proves their error bounds.

#![deny(missing_docs)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]
#![cfg_attr(not(any(test, feature = "std")), no_std)]

extern crate alloc;

pub mod algorithm;
mod bound;
mod bounded;
mod cache;
mod cost;
mod digests;
pub mod hash;
mod placement;
mod ranker;
mod rankings;
mod scan;
mod set;
mod simd;
mod sip;
mod skeleton;
mod sort_key;

pub use bounded::{bounded_owners, most_keys};
pub use cache::OwnerCache;
pub use digests::DigestSet;
pub use placement::{Move, Placement};
pub use ranker::Ranker;
pub use rankings::{Change, Rankings};
pub use set::NodeSet;
pub use simd::Isa;
pub use skeleton::Skeleton;

use crate::hash::{hash_bytes, mix};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

/// A node that can own keys: its id, its weight, and the seed made of the id.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    id: Box<str>,
    seed: u64,
    weight: f64,
}

impl Node {
    /// A node of weight 1.
    pub fn new(id: impl Into<Box<str>>) -> Self {
        let id = id.into();
        let seed = hash_bytes(id.as_bytes());
        Self { id, seed, weight: 1.0 }
    }

    /// A node of any weight that is finite and greater than zero.
    pub fn weighted(id: impl Into<Box<str>>, weight: f64) -> Result<Self, InvalidWeight> {
        if !(weight.is_finite() && weight > 0.0) {
            return Err(InvalidWeight(weight));
        }
        Ok(Self { weight, ..Self::new(id) })
    }

    /// The stable name, the only thing about a node that is hashed.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// `hash_bytes(id)`.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// Relative share of keys.
    pub const fn weight(&self) -> f64 {
        self.weight
    }
}

/// A weight that is not a finite number greater than zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InvalidWeight(pub f64);

impl fmt::Display for InvalidWeight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a weight must be a finite number greater than 0, not {}", self.0)
    }
}

impl core::error::Error for InvalidWeight {}

/// The score of a node for a key: `key_hash` is [`hash_bytes`] of the key.
#[inline]
pub const fn score(key_hash: u64, seed: u64) -> u64 {
    mix(key_hash ^ seed)
}

/// `−weight / ln u`, where `u = ((score >> 11) + ½) / 2⁵³` lies strictly between 0 and 1.
///
/// The sum takes 54 bits where `score >> 11` has 53, and rounds to even; the highest score of all would round to
/// `u = 1`, whose logarithm is 0, and would rank last. So `u` is held below 1.
#[inline]
pub fn weighted_score(score: u64, weight: f64) -> f64 {
    -weight / libm::log(unit(score))
}

/// `u`, the score as a number in (0, 1).
#[inline]
fn unit(score: u64) -> f64 {
    const BELOW_ONE: f64 = 1.0 - f64::EPSILON / 2.0;
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit a double exactly")]
    let u = ((score >> 11) as f64 + 0.5) * (1.0 / 9_007_199_254_740_992.0);
    u.min(BELOW_ONE)
}

/// Index of the node that owns `key`; `None` if there are no nodes.
///
/// Lays out the nodes first, in `O(n log n)`. To ask for many keys, make one [`NodeSet`].
pub fn owner(key: &[u8], nodes: &[Node]) -> Option<usize> {
    top_k(key, nodes, 1).first().copied()
}

/// Indices of the first `k` nodes of the ranking of `key`, the owner first; all nodes if there are fewer than `k`.
pub fn top_k(key: &[u8], nodes: &[Node], k: usize) -> Vec<usize> {
    let set = NodeSet::new(nodes);
    let mut ranker = Ranker::new(&set);
    ranker.start(hash_bytes(key));
    core::iter::from_fn(|| ranker.next_node()).take(k).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, in the plainest words: sort by weighted score, then raw score, then id.
    fn by_sorting(key: &[u8], nodes: &[Node]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        order.sort_by(|&a, &b| {
            let of = |n: &Node| score(hash_bytes(key), n.seed());
            let (a, b) = (&nodes[a], &nodes[b]);
            let weighted = |n: &Node| weighted_score(of(n), n.weight());
            if a.weight() == b.weight() {
                (of(b), b.id()).cmp(&(of(a), a.id()))
            } else {
                weighted(b).total_cmp(&weighted(a)).then_with(|| b.id().cmp(a.id()))
            }
        });
        order
    }

    #[test]
    fn the_extremes_of_a_score_have_a_finite_weighted_score() {
        for extreme in [0, u64::MAX] {
            let weighted = weighted_score(extreme, 1.0);
            assert!(weighted.is_finite() && weighted > 0.0, "{weighted}");
        }
        assert!(weighted_score(0, 1.0) < weighted_score(u64::MAX, 1.0));
    }

    #[test]
    fn weights_that_mean_nothing_are_refused() {
        for weight in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(Node::weighted("n", weight).is_err(), "{weight}");
        }
        assert!(Node::weighted("n", f64::MIN_POSITIVE).is_ok());
    }

    #[test]
    fn no_nodes_no_owner() {
        assert_eq!(owner(b"key", &[]), None);
        assert_eq!(top_k(b"key", &[], 3), []);
        assert_eq!(top_k(b"key", &[Node::new("a")], 0), []);
    }

    proptest! {
        #[test]
        fn top_k_equals_a_full_sort(
            key: Vec<u8>,
            weights in prop::collection::vec(prop::sample::select(vec![0.5, 1.0, 2.5, 1e-9, 1e9]), 0..40),
            k in 0usize..50,
        ) {
            let node = |(i, w): (usize, &f64)| Node::weighted(format!("node-{i}"), *w).unwrap();
            let nodes: Vec<_> = weights.iter().enumerate().map(node).collect();
            let mut expected = by_sorting(&key, &nodes);
            expected.truncate(k);
            prop_assert_eq!(top_k(&key, &nodes, k), expected);
        }

        #[test]
        fn the_order_of_nodes_does_not_matter(key: Vec<u8>, shuffled in Just((0..12).collect::<Vec<_>>()).prop_shuffle()) {
            let make = |i: &usize| Node::weighted(format!("n{i}"), [1.0, 2.0, 3.0][i % 3]).unwrap();
            let plain: Vec<_> = (0..12).collect();
            let ids = |order: &[usize]| {
                let nodes: Vec<_> = order.iter().map(make).collect();
                top_k(&key, &nodes, 12).into_iter().map(|i| nodes[i].id().to_owned()).collect::<Vec<_>>()
            };
            prop_assert_eq!(ids(&plain), ids(&shuffled));
        }
    }
}
