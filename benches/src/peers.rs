//! The crates that people would pick for finding a key's owner, and `tryst_hrw`, behind one trait.

use maglev::ConsistentHasher as _;
use std::hash::{Hash, Hasher};
use tryst_hrw::hash::{hash_bytes, mix};
use tryst_hrw::{Node, NodeSet, OwnerCache, Skeleton};

/// Points on a ring for each node: what users of rings commonly take.
const POINTS: usize = 100;

/// Something that finds the owner of a key.
pub trait Peer {
    /// Number of the node that owns the key: what [`name`] was made of.
    fn owner(&mut self, key: u64) -> u32;
}

/// How to build a peer over nodes of these numbers; none where it cannot sensibly be built.
pub type Build = fn(&[u32]) -> Option<Box<dyn Peer>>;

/// All of them by name.
pub const PEERS: [(&str, Build); 9] = [
    ("hrw (this)", |nodes| Some(Box::new(Plain(set(nodes), nodes.to_vec())))),
    ("hrw skeleton 16", |nodes| Some(Box::new(Tree::new(nodes)))),
    ("hrw cache, hit", |nodes| Some(Box::new(Cached(OwnerCache::new(made(nodes), 1 << 16), nodes.to_vec())))),
    ("hrw-hash", |nodes| Some(Box::new(HrwHash(hrw_hash::HrwNodes::new(nodes.iter().map(|n| Id::new(*n))))))),
    ("rendezvous_hash", |nodes| Some(Box::new(RendezvousHash::new(nodes)))),
    ("hashring", |nodes| Some(Box::new(Ring::new(nodes)))),
    ("consistent_hash_ring", |nodes| {
        // Every point is inserted into a sorted list: half a minute for 1,000 nodes.
        (nodes.len() < 500).then(|| Box::new(ConsistentRing::new(nodes)) as Box<dyn Peer>)
    }),
    ("jumpch", |nodes| {
        // Buckets are numbers without gaps: only the last can leave.
        let gapless = nodes.iter().zip(0..).all(|(node, at)| *node == at);
        gapless.then(|| Box::new(Jump(u32::try_from(nodes.len()).unwrap_or(u32::MAX))) as Box<dyn Peer>)
    }),
    ("maglev", |nodes| {
        // Its permutations take slots × nodes × 8 octets: 5 GB for 10,000 nodes.
        let ids = nodes.iter().map(|node| Id::new(*node));
        (nodes.len() < 2_000)
            .then(|| Box::new(Slots(maglev::Maglev::with_capacity(ids, 65_537))) as Box<dyn Peer>)
    }),
];

/// Id of a node.
pub fn name(node: u32) -> String {
    format!("node-{node:05}")
}

fn made(nodes: &[u32]) -> Vec<Node> {
    nodes.iter().map(|node| Node::new(name(*node))).collect()
}

fn set(nodes: &[u32]) -> NodeSet {
    NodeSet::new(&made(nodes))
}

/// A node for the crates that hash their nodes themselves: by id alone.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Id {
    id: String,
    number: u32,
    point: u32,
}

impl Id {
    fn new(number: u32) -> Self {
        Self { id: name(number), number, point: 0 }
    }
}

impl Hash for Id {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
        self.point.hash(state);
    }
}

impl hrw_hash::HrwNode for Id {}

struct Plain(NodeSet, Vec<u32>);

impl Peer for Plain {
    fn owner(&mut self, key: u64) -> u32 {
        let at = self.0.owner(hash_bytes(&key.to_le_bytes()));
        at.and_then(|at| self.1.get(at).copied()).unwrap_or(u32::MAX)
    }
}

struct Tree(Skeleton);

impl Tree {
    /// Numbers are slots; those that are missing were removed.
    fn new(nodes: &[u32]) -> Self {
        let all: Vec<u32> = (0..=nodes.iter().copied().max().unwrap_or(0)).collect();
        let mut tree = Skeleton::new(made(&all), 16);
        all.iter()
            .filter(|node| nodes.binary_search(node).is_err())
            .for_each(|node| drop(tree.remove(*node as usize)));
        Self(tree)
    }
}

impl Peer for Tree {
    fn owner(&mut self, key: u64) -> u32 {
        let slot = self.0.owner(hash_bytes(&key.to_le_bytes()));
        slot.and_then(|slot| u32::try_from(slot).ok()).unwrap_or(u32::MAX)
    }
}

struct Cached(OwnerCache, Vec<u32>);

impl Peer for Cached {
    fn owner(&mut self, key: u64) -> u32 {
        let index = self.0.owner(hash_bytes(&key.to_le_bytes()));
        index.and_then(|index| self.1.get(index).copied()).unwrap_or(u32::MAX)
    }
}

struct HrwHash(hrw_hash::HrwNodes<Id>);

impl Peer for HrwHash {
    fn owner(&mut self, key: u64) -> u32 {
        self.0.sorted(&key).next().map_or(u32::MAX, |node| node.number)
    }
}

struct RendezvousHash(
    rendezvous_hash::RendezvousNodes<
        rendezvous_hash::KeyValueNode<String, u32>,
        rendezvous_hash::DefaultNodeHasher,
    >,
);

impl RendezvousHash {
    fn new(nodes: &[u32]) -> Self {
        let mut all = rendezvous_hash::RendezvousNodes::default();
        for node in nodes {
            all.insert(rendezvous_hash::KeyValueNode::new(name(*node), *node));
        }
        Self(all)
    }
}

impl Peer for RendezvousHash {
    fn owner(&mut self, key: u64) -> u32 {
        self.0.calc_candidates(&key).next().map_or(u32::MAX, |node| node.value)
    }
}

struct Ring(hashring::HashRing<Id>);

impl Ring {
    fn new(nodes: &[u32]) -> Self {
        let mut ring = hashring::HashRing::new();
        let points =
            nodes.iter().flat_map(|node| (0u32..).take(POINTS).map(|point| Id { point, ..Id::new(*node) }));
        ring.batch_add(points.collect());
        Self(ring)
    }
}

impl Peer for Ring {
    fn owner(&mut self, key: u64) -> u32 {
        self.0.get(&key).map_or(u32::MAX, |node| node.number)
    }
}

struct ConsistentRing(consistent_hash_ring::Ring<Id>);

impl ConsistentRing {
    fn new(nodes: &[u32]) -> Self {
        let builder = consistent_hash_ring::RingBuilder::default().vnodes(POINTS);
        Self(builder.nodes_iter(nodes.iter().map(|node| Id::new(*node))).build())
    }
}

impl Peer for ConsistentRing {
    fn owner(&mut self, key: u64) -> u32 {
        self.0.try_get(key).map_or(u32::MAX, |node| node.number)
    }
}

struct Jump(u32);

impl Peer for Jump {
    fn owner(&mut self, key: u64) -> u32 {
        jumpch::hash(mix(key), self.0)
    }
}

struct Slots(maglev::Maglev<Id>);

impl Peer for Slots {
    fn owner(&mut self, key: u64) -> u32 {
        self.0.get(&key).map_or(u32::MAX, |node| node.number)
    }
}
