//! Owners remembered across changes of membership.

use super::bound::{self, Finalist};
use super::{Node, NodeSet, score};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// Changes that are remembered; an owner found before the oldest of them is looked up again.
const LOG: usize = 64;

/// The owners of keys that were asked for before.
///
/// Each entry carries the *epoch* at which it was right: the number of changes of membership until then. Asked for
/// again it is brought up to date by the changes since: a node that joined costs one score, one that left costs nothing
/// unless it owned the key. Only a key whose owner is gone, or whose entry is older than the last 64 changes, is looked
/// up in full. The answer is always that of [`NodeSet::owner`].
///
/// The entries are a fixed number of cells with one place for each key; a key that falls on another's cell takes its
/// place. There is no lock: share nothing, or give each thread its own.
///
/// ```
/// use tryst_hrw::hash::hash_bytes;
/// use tryst_hrw::{Node, OwnerCache};
///
/// let mut cache = OwnerCache::new(["a", "b", "c"].map(Node::new).to_vec(), 1024);
/// let owner = cache.owner(hash_bytes(b"key")).unwrap();
/// cache.remove(owner);
/// assert_ne!(cache.owner(hash_bytes(b"key")), Some(owner));
/// ```
///
/// Memory: 24 octets an entry, 90 a node.
#[derive(Clone, Debug)]
pub struct OwnerCache {
    nodes: Vec<Option<Node>>,
    /// The nodes of `epoch`, and the handle of each; made again when a full look-up needs it.
    set: Option<(NodeSet, Vec<u32>)>,
    epoch: u64,
    /// The newest change last.
    log: VecDeque<Event>,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u64,
    /// 0: empty.
    epoch: u64,
    owner: u32,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Joined(u32),
    Left(u32),
}

impl OwnerCache {
    /// An empty cache for at least `entries` keys; handles are positions in `nodes`.
    pub fn new(nodes: Vec<Node>, entries: usize) -> Self {
        let empty = Entry { key: 0, epoch: 0, owner: NodeSet::NONE };
        Self {
            nodes: nodes.into_iter().map(Some).collect(),
            set: None,
            epoch: 1,
            log: VecDeque::with_capacity(LOG),
            entries: vec![empty; entries.max(1).next_power_of_two()],
        }
    }

    /// Number of changes of membership so far, and one.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Handle of the node that owns the key; none if there are no nodes.
    #[inline]
    pub fn owner(&mut self, key_hash: u64) -> Option<usize> {
        let cell = usize::try_from(key_hash).unwrap_or_default() & (self.entries.len() - 1);
        let entry = *self.entries.get(cell)?;
        if entry.epoch == self.epoch && entry.key == key_hash {
            return Some(entry.owner).filter(|owner| *owner != NodeSet::NONE).map(|owner| owner as usize);
        }
        let known = (entry.epoch != 0 && entry.key == key_hash).then(|| self.followed(entry)).flatten();
        let owner = known.or_else(|| self.look_up(key_hash));
        if let Some(entry) = self.entries.get_mut(cell) {
            *entry = Entry { key: key_hash, epoch: self.epoch, owner: owner.unwrap_or(NodeSet::NONE) };
        }
        owner.map(|owner| owner as usize)
    }

    /// The node of a handle.
    pub fn node(&self, handle: usize) -> Option<&Node> {
        self.nodes.get(handle)?.as_ref()
    }

    /// Adds a node, and gives its handle.
    pub fn insert(&mut self, node: Node) -> usize {
        // Not a handle that the log still speaks of: it would mean another node there.
        let spoken_of = |index: usize| {
            self.log.iter().any(|(Event::Joined(handle) | Event::Left(handle))| *handle as usize == index)
        };
        let mut cells = self.nodes.iter().enumerate();
        let free = cells.find(|(index, node)| node.is_none() && !spoken_of(*index));
        let free = free.map_or(self.nodes.len(), |(index, _)| index);
        if free == self.nodes.len() {
            self.nodes.push(None);
        }
        if let Some(cell) = self.nodes.get_mut(free) {
            *cell = Some(node);
        }
        let handle = u32::try_from(free).unwrap_or(NodeSet::NONE);
        self.happened(Event::Joined(handle));
        free
    }

    /// Takes a node away.
    pub fn remove(&mut self, handle: usize) -> Option<Node> {
        let node = self.nodes.get_mut(handle)?.take()?;
        self.happened(Event::Left(u32::try_from(handle).unwrap_or(NodeSet::NONE)));
        Some(node)
    }

    fn happened(&mut self, event: Event) {
        if self.log.len() == LOG {
            self.log.pop_front();
        }
        self.log.push_back(event);
        self.epoch += 1;
        self.set = None;
    }

    /// The owner of an older entry's key, if what happened since tells it.
    fn followed(&self, entry: Entry) -> Option<u32> {
        let age = usize::try_from(self.epoch - entry.epoch).ok()?;
        let first = self.log.len().checked_sub(age)?;
        let mut owner = entry.owner;
        for event in self.log.range(first..) {
            match event {
                Event::Left(handle) if *handle == owner => return None,
                Event::Left(_) => {}
                Event::Joined(handle) => owner = self.better(entry.key, owner, *handle)?,
            }
        }
        Some(owner).filter(|owner| *owner != NodeSet::NONE)
    }

    /// Which of the two comes first, if that is beyond doubt. A node that has left since loses.
    fn better(&self, key: u64, owner: u32, newcomer: u32) -> Option<u32> {
        let finalist = |handle: u32| {
            let node = self.node(handle as usize)?;
            let covered = bound::covers(node.weight(), node.weight());
            covered.then(|| Finalist::new(handle as usize, score(key, node.seed()), node.weight()))
        };
        if self.node(newcomer as usize).is_none() {
            return Some(owner);
        }
        let mut both = [finalist(owner)?, finalist(newcomer)?];
        let weight = |slot: usize| self.nodes.get(slot).and_then(Option::as_ref).map_or(1.0, Node::weight);
        let decided = bound::decide(&mut both, 1, weight);
        both.first().filter(|_| decided).and_then(|first| u32::try_from(first.slot).ok())
    }

    #[cold]
    fn look_up(&mut self, key_hash: u64) -> Option<u32> {
        let (set, handles) = self.set.get_or_insert_with(|| {
            let live = (0..).zip(&self.nodes).filter_map(|(handle, node)| Some((handle, node.clone()?)));
            let (handles, nodes): (Vec<u32>, Vec<Node>) = live.unzip();
            (NodeSet::new(&nodes), handles)
        });
        handles.get(set.owner(key_hash)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mix;
    use proptest::prelude::*;

    fn full(cache: &OwnerCache, key: u64) -> Option<usize> {
        let live = (0..).zip(&cache.nodes).filter_map(|(handle, node)| Some((handle, node.clone()?)));
        let (handles, nodes): (Vec<usize>, Vec<Node>) = live.unzip();
        NodeSet::new(&nodes).owner(key).map(|index| handles[index])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Random joins, leaves and look-ups, with more keys than cells.
        #[test]
        fn the_answer_is_that_of_a_full_look_up(steps in prop::collection::vec((0u8..8, any::<u64>()), 1..300)) {
            let mut cache = OwnerCache::new((0..5).map(|i| Node::new(format!("{i}"))).collect(), 16);
            for (step, (what, number)) in steps.into_iter().enumerate() {
                let live: Vec<usize> = (0..200).filter(|handle| cache.node(*handle).is_some()).collect();
                match what {
                    0 if live.len() < 8 => {
                        let weight = [1.0, 1.0, 2.5, 1e-300][usize::try_from(number % 4).unwrap()];
                        cache.insert(Node::weighted(format!("new-{step}"), weight).unwrap());
                    }
                    1 if !live.is_empty() => {
                        cache.remove(live[usize::try_from(number).unwrap() % live.len()]);
                    }
                    _ => {
                        let key = mix(number % 40);
                        prop_assert_eq!(cache.owner(key), full(&cache, key));
                    }
                }
            }
        }
    }

    #[test]
    fn an_entry_older_than_the_log_is_looked_up_anew() {
        let mut cache = OwnerCache::new(vec![Node::new("a"), Node::new("b")], 64);
        let before = cache.owner(5);
        for round in 0..LOG + 3 {
            let handle = cache.insert(Node::new(format!("guest-{round}")));
            cache.remove(handle);
        }
        assert_eq!(cache.owner(5), before);
    }

    #[test]
    fn no_nodes_no_owner() {
        let mut cache = OwnerCache::new(Vec::new(), 0);
        assert_eq!((cache.owner(1), cache.owner(1)), (None, None));
        let handle = cache.insert(Node::new("a"));
        assert_eq!(cache.owner(1), Some(handle));
    }
}
