//! Owners under a bound: no node owns more than a given multiple of its fair share.

use super::{Node, NodeSet, Ranker, score};
use alloc::collections::{BTreeMap, BinaryHeap};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// First choices that are found for all keys at once; few keys ask for more.
const KNOWN: usize = 4;

/// The owner of each key, as an index in `nodes`. No node owns more than `max_share` times its share by weight, rounded
/// up. Keys over the bound go to their next choice. Without nodes every owner is `None`.
///
/// Which keys must yield does not depend on any order: every key asks its choices in turn, and a full node keeps those
/// that score highest for it. That is the stable assignment of D. Gale and L. S. Shapley (1962), of which there is one
/// that is best for all keys. A `max_share` below 1, which could not hold all keys, counts as 1.
///
/// The price is movement: a change of one node changes every share, so a few keys move between nodes that both stay.
///
/// ```
/// use tryst_hrw::hash::mix;
/// use tryst_hrw::{Node, bounded_owners};
///
/// let nodes: Vec<Node> = (0..10).map(|i| Node::new(format!("node-{i}"))).collect();
/// let keys: Vec<u64> = (0..1000).map(mix).collect();
/// let owners = bounded_owners(&nodes, &keys, 1.05);
/// assert!((0..10).all(|node| owners.iter().filter(|owner| **owner == Some(node)).count() <= 105));
/// ```
///
/// A pass over the nodes for each key; a key that is turned away four times or more costs a few passes more for each time.
pub fn bounded_owners(nodes: &[Node], keys: &[u64], max_share: f64) -> Vec<Option<usize>> {
    let set = NodeSet::new(nodes);
    let mut first = vec![NodeSet::NONE; keys.len() * KNOWN];
    set.top_many(keys, KNOWN, &mut first);
    let mut ranker = Ranker::new(&set);
    // Of keys that ask for more than that: as much again each time, so that no key is ranked for every choice.
    let mut more = BTreeMap::<u32, Vec<usize>>::new();
    let mut choice = |key: u32, rank: usize| {
        if rank < KNOWN {
            return first.get(key as usize * KNOWN + rank).map(|index| *index as usize);
        }
        let choices = more.entry(key).or_default();
        if rank >= choices.len() {
            ranker.start(keys.get(key as usize).copied()?);
            *choices = core::iter::from_fn(|| ranker.next_node()).take(2 * rank).collect();
        }
        choices.get(rank).copied()
    };
    let room = room(nodes, keys.len(), max_share);
    // Of each node its keys, the one that it would rather lose on top.
    let mut held: Vec<BinaryHeap<_>> = vec![BinaryHeap::new(); nodes.len()];
    let mut asking: Vec<(u32, usize)> = (0..).take(keys.len()).map(|key| (key, 0)).collect();
    while let Some((key, rank)) = asking.pop() {
        let Some(index) = choice(key, rank) else { continue };
        let (Some(held), Some(node)) = (held.get_mut(index), nodes.get(index)) else { continue };
        let worth = keys.get(key as usize).map_or(0, |hash| score(*hash, node.seed()));
        held.push((Reverse(worth), key, rank));
        if room.get(index).is_none_or(|room| held.len() > *room)
            && let Some((_, key, rank)) = held.pop()
        {
            asking.push((key, rank + 1));
        }
    }
    let mut owners = vec![None; keys.len()];
    for (index, held) in held.into_iter().enumerate() {
        for (_, key, _) in held {
            owners.get_mut(key as usize).into_iter().for_each(|owner| *owner = Some(index));
        }
    }
    owners
}

/// Most keys of each node.
fn room(nodes: &[Node], keys: usize, max_share: f64) -> Vec<usize> {
    let total: f64 = nodes.iter().map(Node::weight).sum();
    nodes.iter().map(|node| most_keys(keys, node.weight() / total, max_share)).collect()
}

/// The greatest number of keys that a node may own: `keys · share · max_share`, rounded up. `share` is its part of the
/// total weight, between 0 and 1.
pub fn most_keys(keys: usize, share: f64, max_share: f64) -> usize {
    #[expect(clippy::cast_precision_loss, reason = "fewer keys than 2⁵³")]
    let fair = keys as f64 * share;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and saturating")]
    let most = libm::ceil(fair * max_share.max(1.0)) as usize;
    most
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mix;

    fn nodes(count: u32) -> Vec<Node> {
        (0..count).map(|i| Node::weighted(format!("n{i}"), f64::from(1 + i % 3)).unwrap()).collect()
    }

    #[test]
    fn a_wide_bound_changes_nothing_and_no_nodes_own_nothing() {
        let keys: Vec<u64> = (0..500).map(mix).collect();
        let set = NodeSet::new(&nodes(7));
        let plain: Vec<Option<usize>> = keys.iter().map(|key| set.owner(*key)).collect();
        let bounded = bounded_owners(&nodes(7), &keys, 10.0);
        assert_eq!(bounded, plain);
        assert_eq!(bounded_owners(&[], &keys, 1.0), vec![None; 500]);
    }

    /// No node is over its bound, and no key would rather be where it would be rather had.
    #[test]
    fn the_assignment_is_within_bounds_and_stable() {
        let keys: Vec<u64> = (0..3000).map(mix).collect();
        for max_share in [1.0, 1.05, 1.2] {
            let nodes = nodes(12);
            let owners = bounded_owners(&nodes, &keys, max_share);
            let room = room(&nodes, keys.len(), max_share);
            let worth = |key: usize, index: usize| score(keys[key], nodes[index].seed());
            let mut held = vec![Vec::new(); nodes.len()];
            owners.iter().enumerate().for_each(|(key, index)| held[index.unwrap()].push(key));
            assert!(held.iter().zip(&room).all(|(held, room)| held.len() <= *room));
            let set = NodeSet::new(&nodes);
            for (key, owner) in owners.iter().enumerate() {
                let mut ranking = vec![0; nodes.len()];
                set.top(keys[key], &mut ranking);
                for better in
                    ranking.iter().map(|index| *index as usize).take_while(|index| Some(*index) != *owner)
                {
                    let least = held[better].iter().map(|other| worth(*other, better)).min().unwrap();
                    assert!(held[better].len() == room[better] && least >= worth(key, better));
                }
            }
        }
    }

    #[test]
    fn the_order_of_nodes_does_not_matter() {
        let keys: Vec<u64> = (0..2000).map(mix).collect();
        let forward = nodes(9);
        let backward: Vec<Node> = forward.iter().rev().cloned().collect();
        let (a, b) = (bounded_owners(&forward, &keys, 1.02), bounded_owners(&backward, &keys, 1.02));
        assert!(a.iter().zip(&b).all(|(a, b)| forward[a.unwrap()].id() == backward[b.unwrap()].id()));
    }
}
