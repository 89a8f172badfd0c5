//! Rendezvous hashing down a tree, for sets so large that one pass over all nodes is too slow.

use super::{Node, NodeSet};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

/// A tree whose every branching is a small rendezvous: a look-up scores `fan-out × depth` nodes instead of all.
///
/// Nodes stand in slots in the order in which they came; `f` neighbouring slots make a group, `f` neighbouring groups
/// the next, and so on to the root (W. Wang and C. V. Ravishankar, *Hash-based virtual hierarchies for scalable location
/// service in mobile ad-hoc networks*, 2009). A group weighs what its nodes weigh together, so each node owns its
/// share as in a plain rendezvous.
///
/// What it costs is movement. A node that joins makes its groups heavier, so keys move into them, and not all of those
/// land on the newcomer; likewise when one leaves. Of the keys that move on one change in a tree of depth `d`, about
/// `d` times as many move as must; a plain [`NodeSet`] moves no key more than must. And owners depend on the order in
/// which nodes came, so everyone who looks up must apply the same changes in the same order.
///
/// ```
/// use tryst_hrw::hash::hash_bytes;
/// use tryst_hrw::{Node, Skeleton};
///
/// let nodes: Vec<Node> = (0..1000).map(|i| Node::new(format!("node-{i}"))).collect();
/// let mut tree = Skeleton::new(nodes, 16);
/// let owner = tree.owner(hash_bytes(b"key")).unwrap();
/// tree.remove(owner);
/// assert_ne!(tree.owner(hash_bytes(b"key")), Some(owner));
/// ```
///
/// Look-up: `O(f log n / log f)`, no allocation. Insert and remove: the groups on one path. Memory: some 150 octets a
/// node.
#[derive(Clone, Debug)]
pub struct Skeleton {
    fan_out: usize,
    slots: Vec<Option<Node>>,
    /// Groups of slots, groups of those, …; the last level is the root alone.
    levels: Vec<Vec<Group>>,
}

/// A branching: its children that hold any node.
#[derive(Clone, Debug)]
struct Group {
    set: NodeSet,
    children: Vec<u32>,
    weight: f64,
}

impl Skeleton {
    /// Builds the tree; slots are positions in `nodes`. The fan-out is held between 2 and 256; 8 to 16 are good.
    pub fn new(nodes: Vec<Node>, fan_out: usize) -> Self {
        let slots: Vec<Option<Node>> = nodes.into_iter().map(Some).collect();
        let mut tree = Self { fan_out: fan_out.clamp(2, 256), slots, levels: Vec::new() };
        tree.grow();
        for level in 0..tree.levels.len() {
            let groups =
                tree.slots.len().div_ceil(tree.fan_out.pow(u32::try_from(level + 1).unwrap_or(u32::MAX)));
            (0..groups).for_each(|group| tree.rebuild(level, group));
        }
        tree
    }

    /// The slot that owns the key; none if there are no nodes.
    pub fn owner(&self, key_hash: u64) -> Option<usize> {
        let mut index = 0;
        for level in self.levels.iter().rev() {
            let group = level.get(index)?;
            index = *group.children.get(group.set.owner(key_hash)?)? as usize;
        }
        (!self.levels.is_empty()).then_some(index)
    }

    /// The node in a slot.
    pub fn node(&self, slot: usize) -> Option<&Node> {
        self.slots.get(slot)?.as_ref()
    }

    /// Octets that look-ups read.
    pub fn octets(&self) -> usize {
        let groups = self.levels.iter().flatten();
        groups.map(|group| group.set.octets() + size_of_val(group.children.as_slice())).sum()
    }

    /// Puts a node into the first free slot, and gives it.
    pub fn insert(&mut self, node: Node) -> usize {
        let free = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if free == self.slots.len() {
            self.slots.push(None);
        }
        if let Some(slot) = self.slots.get_mut(free) {
            *slot = Some(node);
        }
        self.grow();
        self.rebuild_path(free);
        free
    }

    /// Empties a slot.
    pub fn remove(&mut self, slot: usize) -> Option<Node> {
        let node = self.slots.get_mut(slot)?.take();
        self.rebuild_path(slot);
        node
    }

    /// Adds levels until one group holds all slots. What was the root becomes the first child of the next.
    fn grow(&mut self) {
        let mut groups = self.slots.len();
        let mut level = 0;
        while groups > 1 || (level == 0 && groups == 1) {
            groups = groups.div_ceil(self.fan_out);
            match self.levels.get_mut(level) {
                Some(held) => held.resize_with(groups.max(held.len()), Group::empty),
                None => {
                    self.levels.push(vec![Group::empty(); groups]);
                    self.rebuild(level, 0);
                }
            }
            level += 1;
        }
    }

    fn rebuild_path(&mut self, slot: usize) {
        let mut group = slot;
        for level in 0..self.levels.len() {
            group /= self.fan_out;
            self.rebuild(level, group);
        }
    }

    fn rebuild(&mut self, level: usize, group: usize) {
        let children = group * self.fan_out..(group + 1) * self.fan_out;
        let child = |index: usize| match level.checked_sub(1) {
            None => self.slots.get(index)?.clone(),
            Some(below) => {
                let group = self.levels.get(below)?.get(index)?;
                Node::weighted(format!("{level}/{index}"), group.weight).ok()
            }
        };
        let present = children.filter_map(|index| Some((u32::try_from(index).ok()?, child(index)?)));
        let (children, nodes): (Vec<u32>, Vec<Node>) = present.unzip();
        let weight = nodes.iter().map(Node::weight).sum();
        let rebuilt = Group { set: NodeSet::new(&nodes), children, weight };
        if let Some(cell) = self.levels.get_mut(level).and_then(|groups| groups.get_mut(group)) {
            *cell = rebuilt;
        }
    }
}

impl Group {
    fn empty() -> Self {
        Self { set: NodeSet::new(&[]), children: Vec::new(), weight: 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mix;

    fn nodes(count: u32) -> Vec<Node> {
        (0..count).map(|i| Node::new(format!("node-{i}"))).collect()
    }

    fn owners(tree: &Skeleton, keys: u64) -> Vec<usize> {
        (0..keys).map(|key| tree.owner(mix(key)).unwrap()).collect()
    }

    #[test]
    fn an_empty_tree_owns_nothing() {
        let mut tree = Skeleton::new(Vec::new(), 8);
        assert_eq!(tree.owner(7), None);
        let slot = tree.insert(Node::new("a"));
        assert_eq!(tree.owner(7), Some(slot));
        tree.remove(slot);
        assert_eq!(tree.owner(7), None);
        assert!(tree.remove(99).is_none());
    }

    #[test]
    fn growing_one_by_one_gives_the_same_tree() {
        for fan_out in [2, 3, 8] {
            let mut grown = Skeleton::new(Vec::new(), fan_out);
            for (count, node) in (1..).zip(nodes(40)) {
                grown.insert(node);
                let built = Skeleton::new(nodes(count), fan_out);
                assert_eq!(owners(&grown, 200), owners(&built, 200), "{count} nodes, fan-out {fan_out}");
            }
        }
    }

    #[test]
    fn every_node_owns_its_share_by_weight() {
        let weights = [1.0, 2.0, 4.0];
        let node = |i: u32| Node::weighted(format!("n{i}"), weights[i as usize % 3]).unwrap();
        let tree = Skeleton::new((0..60).map(node).collect(), 8);
        let mut counts = vec![0u32; 60];
        owners(&tree, 200_000).into_iter().for_each(|slot| counts[slot] += 1);
        let total = 20.0 * 7.0;
        for (slot, count) in counts.iter().enumerate() {
            let share = weights[slot % 3] / total;
            let (fair, sigma) = (200_000.0 * share, (200_000.0 * share * (1.0 - share)).sqrt());
            assert!((f64::from(*count) - fair).abs() < 5.0 * sigma, "slot {slot}: {count}, fair {fair}");
        }
    }

    /// Keys move to the newcomer's groups and from the leaver's, at most the tree's depth times what must.
    #[test]
    fn movement_is_bounded_by_the_depth() {
        let mut tree = Skeleton::new(nodes(500), 8);
        let before = owners(&tree, 50_000);
        let slot = tree.insert(Node::new("new"));
        let after = owners(&tree, 50_000);
        let moved = before.iter().zip(&after).filter(|(a, b)| a != b).count();
        let must = after.iter().filter(|owner| **owner == slot).count();
        assert!(moved >= must && moved < must * 5, "{moved} moved, {must} must");
        tree.remove(slot);
        assert_eq!(owners(&tree, 50_000), before);
    }
}
