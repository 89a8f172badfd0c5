//! Which data must move when the places change.

use super::{Node, Rankings};
use alloc::vec;
use alloc::vec::Vec;

/// Keys with their owners, and the exact moves that each change of the nodes asks for.
///
/// With each key stands the cost of its winner, so a node that joins costs one hash a key, whatever the number of nodes;
/// one that leaves costs a look-up for each key that it held, and for no other.
///
/// ```
/// use tryst_hrw::hash::hash_bytes;
/// use tryst_hrw::{Node, Placement};
///
/// let keys: Vec<u64> = (0..1000u32).map(|key| hash_bytes(&key.to_le_bytes())).collect();
/// let mut placement = Placement::new(keys, ["a", "b", "c"].map(Node::new).to_vec());
/// let moves = placement.insert(Node::new("d"));
/// assert!(moves.iter().all(|key| key.to == Some(3)));
/// assert_eq!(placement.remove(3).len(), moves.len());
/// ```
///
/// Memory: 36 octets a key.
#[derive(Clone, Debug)]
pub struct Placement {
    rankings: Rankings,
    owners: Vec<Option<usize>>,
}

/// A key that must be carried from one node to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Position in the list of keys.
    pub key: usize,
    /// Handle of the node that held it; none if there was none.
    pub from: Option<usize>,
    /// Handle of the node that owns it now; none if none is left.
    pub to: Option<usize>,
}

impl Placement {
    /// Places `keys`, given as [`hash_bytes`](crate::hash::hash_bytes) of each. Handles are positions in `nodes`.
    pub fn new(keys: Vec<u64>, nodes: Vec<Node>) -> Self {
        let count = keys.len();
        let mut placement = Self { rankings: Rankings::new(keys, 1, nodes), owners: vec![None; count] };
        placement.moves((0..).take(count));
        placement
    }

    /// Handle of the node that owns a key.
    pub fn owner(&self, key: usize) -> Option<usize> {
        self.owners.get(key).copied().flatten()
    }

    /// Adds a node, and gives the keys that it wins.
    pub fn insert(&mut self, node: Node) -> Vec<Move> {
        let change = self.rankings.insert(node);
        self.moves(change.keys)
    }

    /// Takes a node away, and gives the keys that it held.
    pub fn remove(&mut self, handle: usize) -> Vec<Move> {
        // No node has a handle that does not fit.
        let Ok(handle) = u32::try_from(handle) else { return Vec::new() };
        let change = self.rankings.remove(handle);
        self.moves(change.keys)
    }

    /// Puts another node, or the same with another weight, into a place.
    pub fn replace(&mut self, handle: usize, node: Node) -> Vec<Move> {
        let Ok(handle) = u32::try_from(handle) else { return Vec::new() };
        let change = self.rankings.replace(handle, node);
        self.moves(change.keys)
    }

    fn moves(&mut self, keys: impl IntoIterator<Item = u32>) -> Vec<Move> {
        let Self { rankings, owners } = self;
        let changed = keys.into_iter().filter_map(|key| {
            let index = key as usize;
            let owner = owners.get_mut(index)?;
            let to = rankings.first(key).first().map(|handle| *handle as usize);
            let from = core::mem::replace(owner, to);
            (from != to).then_some(Move { key: index, from, to })
        });
        changed.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::NodeSet;
    use super::*;
    use crate::hash::mix;

    fn node(i: u32) -> Node {
        Node::weighted(format!("node-{i}"), 1.0 + f64::from(i % 3)).unwrap()
    }

    #[test]
    fn moves_are_those_between_two_full_placements() {
        let keys: Vec<u64> = (0..5000).map(mix).collect();
        let mut nodes: Vec<Node> = (0..20).map(node).collect();
        let owners = |nodes: &[Node]| {
            let set = NodeSet::new(nodes);
            keys.iter().map(|key| set.owner(*key)).collect::<Vec<_>>()
        };
        let mut placement = Placement::new(keys.clone(), nodes.clone());
        let before = owners(&nodes);
        let moves = placement.insert(node(20));
        nodes.push(node(20));
        let after = owners(&nodes);
        let expected: Vec<Move> = (0..)
            .zip(before.iter().zip(&after))
            .filter(|(_, (from, to))| from != to)
            .map(|(key, (from, to))| Move { key, from: *from, to: *to })
            .collect();
        assert_eq!(moves, expected);
        let back: Vec<Move> =
            expected.iter().map(|one| Move { key: one.key, from: one.to, to: one.from }).collect();
        assert_eq!(placement.remove(20), back);
        assert_eq!(placement.remove(20), []);
    }

    #[test]
    fn the_last_node_takes_everything_with_it() {
        let mut placement = Placement::new(vec![1, 2, 3], vec![Node::new("only")]);
        let moves = placement.remove(0);
        assert!(moves.len() == 3 && moves.iter().all(|one| one.to.is_none()));
        assert_eq!(placement.owner(0), None);
        assert_eq!(placement.insert(Node::new("next")).len(), 3);
    }
}
