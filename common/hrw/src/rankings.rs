//! The first few of many rankings, kept as nodes come and go.

use super::bound::{self, Finalist};
use super::simd::{self, Isa};
use super::{Node, NodeSet, score};
use alloc::vec;
use alloc::vec::Vec;

/// Fewest nodes of a ranking that stay known, unless the depth is less; a key that would know fewer is ranked again.
const LEAST_KNOWN: usize = 2;

/// The first few nodes of every key's ranking, brought up to date after each change of one node at the cost of that
/// change: what a full ranking of every key would give, without it.
///
/// A node that joins costs one score a key; its keys are those where it beats the last that is known. One that leaves
/// touches the keys that know it, and leaves them one node fewer until so few are known that the key is ranked again.
///
/// ```
/// use tryst_hrw::hash::hash_bytes;
/// use tryst_hrw::{Node, Rankings};
///
/// let keys: Vec<u64> = (0..1000u32).map(|key| hash_bytes(&key.to_le_bytes())).collect();
/// let mut rankings = Rankings::new(keys, 4, ["a", "b", "c"].map(Node::new).to_vec());
/// let won = rankings.insert(Node::new("d"));
/// assert!(won.keys.iter().all(|key| rankings.first(*key).contains(&won.node)));
/// ```
///
/// Memory: 16 octets a key, and 4 for each of `depth` nodes.
#[derive(Clone, Debug)]
pub struct Rankings {
    keys: Vec<u64>,
    depth: usize,
    /// By handle; none where a node has left.
    nodes: Vec<Option<Node>>,
    live: usize,
    /// `depth` handles a key, best first, then [`NodeSet::NONE`].
    cells: Vec<u32>,
    /// For each key a cost that is not below that of the last node known; infinite if all nodes are known.
    ceilings: Vec<f64>,
    isa: Isa,
}

/// What one change did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Handle of the node that changed.
    pub node: u32,
    /// Keys whose known nodes may now be others, or in another order; no other key's are. Ascending.
    pub keys: Vec<u32>,
}

impl Rankings {
    /// Ranks `nodes` for every key, given as [`hash_bytes`](crate::hash::hash_bytes) of it; the first `depth` stay
    /// known. Handles are positions in `nodes`.
    pub fn new(keys: Vec<u64>, depth: usize, nodes: Vec<Node>) -> Self {
        let mut cells = vec![NodeSet::NONE; keys.len() * depth.max(1)];
        NodeSet::new(&nodes).top_many(&keys, depth.max(1), &mut cells);
        Self::from_cells(keys, depth, nodes, cells)
    }

    /// The same from `cells` that hold the rankings already: `depth` positions in `nodes` a key, best first, as
    /// [`NodeSet::top_many`] fills them. Several threads may share that work.
    pub fn from_cells(keys: Vec<u64>, depth: usize, nodes: Vec<Node>, mut cells: Vec<u32>) -> Self {
        let depth = depth.max(1);
        cells.resize(keys.len() * depth, NodeSet::NONE);
        let live = nodes.len();
        let nodes = nodes.into_iter().map(Some).collect();
        let ceilings = vec![0.0; keys.len()];
        let mut rankings = Self { keys, depth, nodes, live, cells, ceilings, isa: Isa::detect() };
        (0..rankings.keys.len()).for_each(|index| rankings.set_ceiling(index));
        rankings
    }

    /// The same rankings kept by other instructions than the widest: for tests. The results are equal.
    #[doc(hidden)]
    #[must_use]
    pub fn with_isa(mut self, isa: Isa) -> Self {
        self.isa = isa;
        self
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Are there no keys?
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Handles of the nodes that are known to come first for a key, best first: at least two, if the
    /// depth is not one and there are two nodes.
    pub fn first(&self, key: u32) -> &[u32] {
        self.known(key as usize)
    }

    /// The nodes with their handles.
    pub fn nodes(&self) -> impl Iterator<Item = (u32, &Node)> {
        (0..).zip(&self.nodes).filter_map(|(handle, node)| Some((handle, node.as_ref()?)))
    }

    /// Adds a node. `O(keys)`: one score each.
    pub fn insert(&mut self, node: Node) -> Change {
        let free = self.nodes.iter().position(Option::is_none).unwrap_or(self.nodes.len());
        let handle = u32::try_from(free).unwrap_or(NodeSet::NONE);
        if free == self.nodes.len() {
            self.nodes.push(None);
        }
        self.place(handle, node)
    }

    /// Takes a node away. `O(keys)` comparisons of handles, and a ranking of the few keys that know too little after.
    pub fn remove(&mut self, handle: u32) -> Change {
        let Some(node) = self.nodes.get_mut(handle as usize) else {
            return Change { node: handle, keys: Vec::new() };
        };
        self.live -= usize::from(node.take().is_some());
        let keys = self.knowing(handle);
        for key in &keys {
            self.forget(*key as usize, handle);
        }
        self.rank_poor(&keys);
        Change { node: handle, keys }
    }

    /// Changes a node's weight.
    pub fn replace(&mut self, handle: u32, node: Node) -> Change {
        let mut keys = self.remove(handle).keys;
        keys.extend(self.place(handle, node).keys);
        keys.sort_unstable();
        keys.dedup();
        Change { node: handle, keys }
    }

    /// Keys that know the node, ascending.
    pub fn knowing(&self, handle: u32) -> Vec<u32> {
        let depth = self.depth;
        let hits = simd::positions_of(self.isa, &self.cells, handle).into_iter();
        hits.filter_map(|cell| u32::try_from(cell as usize / depth).ok()).collect()
    }

    fn place(&mut self, handle: u32, node: Node) -> Change {
        let Some(cell) = self.nodes.get_mut(handle as usize) else {
            return Change { node: handle, keys: Vec::new() };
        };
        let (seed, weight) = (node.seed(), node.weight());
        *cell = Some(node);
        self.live += 1;
        if !bound::covers(weight, weight) || !self.all_covered() {
            self.rank_all();
            let keys = (0..u32::try_from(self.keys.len()).unwrap_or(u32::MAX)).collect();
            return Change { node: handle, keys };
        }
        let slack = bound::slack(weight);
        let contended =
            simd::not_above(self.isa, &self.keys, &self.ceilings, seed, bound::inverse(weight), slack);
        let (mut keys, mut doubtful) = (Vec::with_capacity(contended.len()), Vec::new());
        for index in contended {
            match self.contend(index as usize, handle) {
                Outcome::Won => keys.push(index),
                Outcome::Lost => {}
                Outcome::Doubtful => doubtful.push(index),
            }
        }
        self.rank(&doubtful);
        keys.extend(doubtful);
        keys.sort_unstable();
        Change { node: handle, keys }
    }

    /// Lets a newcomer contend for a place among the nodes that are known to a key.
    fn contend(&mut self, index: usize, newcomer: u32) -> Outcome {
        let known = self.known(index);
        let everyone = known.len() + 1 == self.live;
        let Some(key) = self.keys.get(index).copied() else { return Outcome::Lost };
        let mut finalists: Vec<Finalist> =
            known.iter().chain([&newcomer]).filter_map(|handle| self.finalist(key, *handle)).collect();
        let newcomer = newcomer as usize;
        let count = finalists.len();
        let weight = |slot: usize| self.nodes.get(slot).and_then(Option::as_ref).map_or(1.0, Node::weight);
        if !bound::decide(&mut finalists, count, weight) {
            return Outcome::Doubtful;
        }
        if !everyone && finalists.last().is_some_and(|last| last.slot == newcomer) {
            return Outcome::Lost;
        }
        let depth = self.depth;
        if let Some(cells) = self.cells.get_mut(index * depth..(index + 1) * depth) {
            let ranked =
                finalists.iter().map(|finalist| u32::try_from(finalist.slot).unwrap_or(NodeSet::NONE));
            cells.iter_mut().zip(ranked).for_each(|(cell, handle)| *cell = handle);
        }
        self.set_ceiling(index);
        if self.known(index).contains(&u32::try_from(newcomer).unwrap_or(NodeSet::NONE)) {
            Outcome::Won
        } else {
            Outcome::Lost
        }
    }

    fn known(&self, index: usize) -> &[u32] {
        let cells = self.cells.get(index * self.depth..(index + 1) * self.depth).unwrap_or_default();
        let count = cells.iter().position(|handle| *handle == NodeSet::NONE).unwrap_or(cells.len());
        cells.get(..count).unwrap_or_default()
    }

    fn finalist(&self, key: u64, handle: u32) -> Option<Finalist> {
        let node = self.nodes.get(handle as usize)?.as_ref()?;
        Some(Finalist::new(handle as usize, score(key, node.seed()), node.weight()))
    }

    fn forget(&mut self, index: usize, handle: u32) {
        let depth = self.depth;
        let Some(cells) = self.cells.get_mut(index * depth..(index + 1) * depth) else { return };
        if let Some(place) = cells.iter().position(|cell| *cell == handle)
            && let Some(tail) = cells.get_mut(place..)
        {
            tail.rotate_left(1);
            tail.last_mut().into_iter().for_each(|last| *last = NodeSet::NONE);
        }
        self.set_ceiling(index);
    }

    fn set_ceiling(&mut self, index: usize) {
        let known = self.known(index);
        let last = if known.len() >= self.live.min(self.depth) && known.len() < self.depth {
            None
        } else {
            self.keys.get(index).zip(known.last()).and_then(|(key, last)| self.finalist(*key, *last))
        };
        if let Some(ceiling) = self.ceilings.get_mut(index) {
            *ceiling = last.map_or(f64::INFINITY, |last| last.most * (1.0 + bound::QUICK));
        }
    }

    /// Ranks the keys again that know too few.
    fn rank_poor(&mut self, keys: &[u32]) {
        let enough = LEAST_KNOWN.min(self.depth).min(self.live);
        let poor: Vec<u32> =
            keys.iter().copied().filter(|key| self.known(*key as usize).len() < enough).collect();
        self.rank(&poor);
    }

    fn rank_all(&mut self) {
        let all: Vec<u32> = (0..).take(self.keys.len()).collect();
        self.rank(&all);
    }

    /// Ranks keys in full.
    fn rank(&mut self, keys: &[u32]) {
        if keys.is_empty() {
            return;
        }
        let (handles, nodes): (Vec<u32>, Vec<Node>) =
            self.nodes().map(|(handle, node)| (handle, node.clone())).unzip();
        let set = NodeSet::new(&nodes).with_isa(self.isa);
        let hashes: Vec<u64> = keys.iter().filter_map(|key| self.keys.get(*key as usize).copied()).collect();
        let mut first = vec![NodeSet::NONE; hashes.len() * self.depth];
        set.top_many(&hashes, self.depth, &mut first);
        let depth = self.depth;
        for (key, first) in keys.iter().zip(first.chunks(depth)) {
            let index = *key as usize;
            if let Some(cells) = self.cells.get_mut(index * depth..(index + 1) * depth) {
                let ranked =
                    first.iter().map(|index| handles.get(*index as usize).copied().unwrap_or(NodeSet::NONE));
                cells.iter_mut().zip(ranked).for_each(|(cell, handle)| *cell = handle);
            }
            self.set_ceiling(index);
        }
    }

    fn all_covered(&self) -> bool {
        self.nodes.iter().flatten().all(|node| bound::covers(node.weight(), node.weight()))
    }
}

/// How a newcomer fared at one key.
enum Outcome {
    Won,
    Lost,
    /// Too close to tell without the whole ranking.
    Doubtful,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mix;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Edit {
        Insert(f64),
        Remove(prop::sample::Index),
        Replace(prop::sample::Index, f64),
    }

    fn edits() -> impl Strategy<Value = Vec<Edit>> {
        let weight = || prop_oneof![4 => Just(1.0), 2 => Just(2.0), 1 => 0.01f64..100.0, 1 => Just(1e-300)];
        let edit = prop_oneof![
            weight().prop_map(Edit::Insert),
            any::<prop::sample::Index>().prop_map(Edit::Remove),
            (any::<prop::sample::Index>(), weight()).prop_map(|(index, weight)| Edit::Replace(index, weight)),
        ];
        prop::collection::vec(edit, 0..40)
    }

    fn named(name: usize, weight: f64) -> Node {
        Node::weighted(format!("node-{name}"), weight).unwrap()
    }

    fn apply(rankings: &mut Rankings, name: usize, edit: &Edit) -> Option<Change> {
        let handles: Vec<u32> = rankings.nodes().map(|(handle, _)| handle).collect();
        match edit {
            Edit::Insert(weight) => Some(rankings.insert(named(name, *weight))),
            _ if handles.is_empty() => None,
            Edit::Remove(index) => Some(rankings.remove(*index.get(&handles))),
            Edit::Replace(index, weight) => {
                let handle = *index.get(&handles);
                let id = rankings
                    .nodes()
                    .find(|(index, _)| *index == handle)
                    .map(|(_, node)| node.id().to_owned())?;
                Some(rankings.replace(handle, Node::weighted(id, *weight).unwrap()))
            }
        }
    }

    /// What is known is how a full ranking begins, and long enough; what was not reported did not change.
    fn assert_like_full(rankings: &Rankings, before: &Rankings, change: Option<&Change>) {
        let (handles, nodes): (Vec<u32>, Vec<Node>) =
            rankings.nodes().map(|(index, node)| (index, node.clone())).unzip();
        let set = NodeSet::new(&nodes);
        for index in 0..u32::try_from(rankings.keys.len()).unwrap() {
            let known = rankings.first(index);
            assert!(known.len() >= nodes.len().min(LEAST_KNOWN));
            let mut full = vec![0; known.len()];
            set.top(rankings.keys[index as usize], &mut full);
            let full: Vec<u32> = full.into_iter().map(|index| handles[index as usize]).collect();
            assert_eq!(known, full, "key {index}");
            let reported = change.is_some_and(|change| change.keys.binary_search(&index).is_ok());
            assert!(reported || known == before.first(index), "key {index} changed unreported");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_edit_gives_what_a_full_ranking_gives(
            start in prop::collection::vec(prop::sample::select(vec![1.0, 1.0, 3.0]), 0..12),
            edits in edits(),
        ) {
            let nodes: Vec<Node> = start.iter().enumerate().map(|(i, weight)| named(i, *weight)).collect();
            let keys: Vec<u64> = (0..130).map(|key| mix(key + 1)).collect();
            for isa in Isa::available() {
                let mut rankings = Rankings::new(keys.clone(), 4, nodes.clone()).with_isa(isa);
                for (step, edit) in edits.iter().enumerate() {
                    let before = rankings.clone();
                    let change = apply(&mut rankings, 100 + step, edit);
                    assert_like_full(&rankings, &before, change.as_ref());
                }
            }
        }
    }

    /// A flip there and back touches the keys that know the node and no others.
    #[test]
    fn one_change_among_many_touches_few_keys() {
        let nodes: Vec<Node> = (0..200).map(|i| named(i, 1.0)).collect();
        let keys: Vec<u64> = (0..4096).map(mix).collect();
        let mut rankings = Rankings::new(keys, 4, nodes);
        let fair = 4096 * 4 / 200;
        let gone = rankings.remove(17).keys;
        let back = rankings.insert(named(17, 1.0));
        assert_eq!(back.node, 17);
        assert!((fair / 2..fair * 2).contains(&gone.len()), "{}", gone.len());
        assert!(back.keys.len() <= gone.len());
    }

    /// Every node at the same place: the ids decide, and only a full ranking can say how.
    #[test]
    fn nodes_that_tie_are_ranked_in_full() {
        let twin = |id: &str| Node { seed: 7, ..Node::new(id) };
        let mut rankings = Rankings::new((0..70).collect(), 4, vec![twin("b"), twin("c"), Node::new("x")]);
        let change = rankings.insert(twin("a"));
        assert_like_full(&rankings, &rankings.clone(), Some(&change));
        let change = rankings.insert(twin("d"));
        assert_like_full(&rankings, &rankings.clone(), Some(&change));
    }
}
