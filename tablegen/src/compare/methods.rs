//! The methods. Each takes the same 64-bit hash of a key and is independent of the others.

use std::collections::{HashMap, HashSet};
use tryst_hrw::hash::{hash_bytes, mix};
use tryst_hrw::{self as hrw, Node, Skeleton};

/// Why a look-up finds a node.
const NODES: &str = "invariant: a placement has nodes";

/// A node of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Id of the node.
    pub id: String,
    /// Weight of the node, greater than 0.
    pub weight: f64,
}

/// A method that assigns keys to nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The hash modulo the number of nodes.
    ModN,
    /// This number of tokens per node on a ring. A key belongs to the next token.
    Ring(u32),
    /// J. Lamping and E. Veach, *A fast, minimal memory, consistent hash algorithm*, 2014.
    Jump,
    /// This number of slots. Each node in turn takes the next free slot of its own order (D. Eisenbud et al., *Maglev*,
    /// NSDI 2016).
    Maglev(u32),
    /// The highest random weight, without the weights of nodes.
    Rendezvous,
    /// The highest random weight, scaled by the weights of nodes.
    Weighted,
    /// The weighted method on each level of a tree with this number of children per branch.
    Skeleton(u32),
}

/// All methods; `rows` is a power of two.
pub fn all(rows: u32) -> Vec<Method> {
    let rings = [1, 4, 16, 128].map(Method::Ring);
    let mut all = vec![Method::ModN];
    all.extend(rings);
    all.extend([Method::Jump, Method::Maglev(4_093), Method::Maglev(65_537), Method::Maglev(rows)]);
    all.extend([Method::Rendezvous, Method::Weighted, Method::Skeleton(16)]);
    all
}

impl Method {
    /// Name in reports.
    pub fn name(&self) -> String {
        match self {
            Self::ModN => "mod-N".to_owned(),
            Self::Ring(1) => "ring, 1 token".to_owned(),
            Self::Ring(tokens) => format!("ring, {tokens} tokens"),
            Self::Jump => "jump hash".to_owned(),
            Self::Maglev(slots) => format!("Maglev, {slots} slots"),
            Self::Rendezvous => "rendezvous".to_owned(),
            Self::Weighted => "rendezvous, weighted".to_owned(),
            Self::Skeleton(fan_out) => format!("skeleton, fan-out {fan_out}"),
        }
    }

    /// The data that look-ups need.
    pub fn place(&self, members: &[Member]) -> Placement {
        match *self {
            Self::ModN => Placement::ModN(members.len()),
            Self::Ring(tokens) => Placement::Ring(ring(members, tokens)),
            Self::Jump => Placement::Jump(members.len()),
            Self::Maglev(slots) => Placement::Maglev(maglev(members, slots)),
            Self::Rendezvous => Placement::Rendezvous(seeds(members)),
            Self::Weighted => {
                let weights = members.iter().map(|member| member.weight);
                Placement::Weighted(seeds(members).into_iter().zip(weights).collect())
            }
            Self::Skeleton(fan_out) => {
                let tree = Skeleton::new(members.iter().map(node).collect(), fan_out as usize);
                Placement::Skeleton(tree, (0..members.len()).collect())
            }
        }
    }

    /// The placement after its members changed. Only a tree depends on its history: members that stay keep their place in
    /// it.
    pub fn change(&self, placement: &Placement, before: &[Member], after: &[Member]) -> Placement {
        match placement {
            Placement::Skeleton(tree, _) => grown(tree.clone(), before, after),
            _ => self.place(after),
        }
    }
}

fn node(member: &Member) -> Node {
    Node::weighted(member.id.as_str(), member.weight)
        .expect("invariant: weights are within the range of a configuration")
}

/// The tree after its members changed: first weights change, then members leave, then new ones join.
fn grown(mut tree: Skeleton, before: &[Member], after: &[Member]) -> Placement {
    let by_id: HashMap<&str, usize> = after.iter().map(|one| one.id.as_str()).zip(0..).collect();
    let known: HashSet<&str> = before.iter().map(|one| one.id.as_str()).collect();
    for (old, slot) in before.iter().zip(0..) {
        let new = by_id.get(old.id.as_str()).map(|index| &after[*index]);
        if let Some(new) = new.filter(|new| new.weight != old.weight) {
            tree.remove(slot);
            tree.insert(node(new));
        }
    }
    for (old, slot) in before.iter().zip(0..) {
        if !by_id.contains_key(old.id.as_str()) {
            tree.remove(slot);
        }
    }
    for new in after.iter().filter(|new| !known.contains(new.id.as_str())) {
        tree.insert(node(new));
    }
    let slots = before.len() + after.len();
    // A slot without a node is never the result of a look-up.
    let member = |slot| tree.node(slot).and_then(|node| by_id.get(node.id()).copied()).unwrap_or(0);
    let members = (0..slots).map(member).collect();
    Placement::Skeleton(tree, members)
}

fn seeds(members: &[Member]) -> Vec<u64> {
    members.iter().map(|member| hash_bytes(member.id.as_bytes())).collect()
}

/// Tokens in ascending order with the index of their node. The number of a node's tokens is proportional to its weight.
fn ring(members: &[Member], tokens: u32) -> Vec<(u64, usize)> {
    let mut ring: Vec<(u64, usize)> = Vec::new();
    for (index, member) in members.iter().enumerate() {
        for token in 0..ring_tokens(member, tokens) {
            ring.push((hash_bytes(format!("{}#{token}", member.id).as_bytes()), index));
        }
    }
    ring.sort_unstable();
    ring
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a small range")]
fn ring_tokens(member: &Member, tokens: u32) -> u32 {
    (member.weight * f64::from(tokens)).round().clamp(1.0, 65_536.0) as u32
}

/// The index of the node of each slot. The number of slots is a prime or a power of two. With a prime, every step visits
/// all slots; with a power of two, every odd step does.
fn maglev(members: &[Member], slots: u32) -> Vec<u32> {
    const FREE: u32 = u32::MAX;
    let wide = u64::from(slots);
    let mut orders: Vec<(u64, u64)> = seeds(members)
        .into_iter()
        .map(|seed| {
            let step = mix(seed ^ 0x9e37_79b9_7f4a_7c15) % (wide - 1) + 1;
            (seed % wide, if wide.is_power_of_two() { step | 1 } else { step })
        })
        .collect();
    let mut table = vec![FREE; slots as usize];
    let mut left = table.len();
    while left > 0 && !orders.is_empty() {
        for (node, (slot, step)) in (0u32..).zip(&mut orders) {
            while table[index(*slot)] != FREE {
                *slot = (*slot + *step) % wide;
            }
            table[index(*slot)] = node;
            left -= 1;
            if left == 0 {
                break;
            }
        }
    }
    table
}

fn index(slot: u64) -> usize {
    usize::try_from(slot).expect("invariant: less than the number of slots or nodes")
}

/// The data that look-ups of one method need.
#[derive(Clone, Debug)]
pub enum Placement {
    /// The number of nodes.
    ModN(usize),
    /// Tokens and their nodes.
    Ring(Vec<(u64, usize)>),
    /// The number of nodes.
    Jump(usize),
    /// The node of each slot.
    Maglev(Vec<u32>),
    /// Seeds of the nodes.
    Rendezvous(Vec<u64>),
    /// Seeds and weights.
    Weighted(Vec<(u64, f64)>),
    /// The tree, and the index of the node in each of its slots.
    Skeleton(Skeleton, Vec<usize>),
}

impl Placement {
    /// Index of the node that owns a key. A placement has at least one node.
    pub fn owner(&self, key: u64) -> usize {
        match self {
            Self::ModN(nodes) => index(key % *nodes as u64),
            Self::Ring(ring) => {
                let next = ring.partition_point(|(token, _)| *token < key);
                ring[if next < ring.len() { next } else { 0 }].1
            }
            Self::Jump(nodes) => jump(key, *nodes),
            Self::Maglev(slots) => slots[index(key % slots.len() as u64)] as usize,
            Self::Rendezvous(seeds) => {
                let scores = seeds.iter().map(|seed| hrw::score(key, *seed)).enumerate();
                scores.max_by_key(|(_, score)| *score).expect(NODES).0
            }
            Self::Weighted(nodes) => {
                let score =
                    |(seed, weight): &(u64, f64)| hrw::weighted_score(hrw::score(key, *seed), *weight);
                let scores = nodes.iter().map(score).enumerate();
                scores.max_by(|a, b| a.1.total_cmp(&b.1)).expect(NODES).0
            }
            Self::Skeleton(tree, members) => members[tree.owner(key).expect(NODES)],
        }
    }

    /// Octets of memory of this data.
    pub fn octets(&self) -> usize {
        match self {
            Self::ModN(_) | Self::Jump(_) => size_of::<usize>(),
            Self::Ring(ring) => size_of_val(ring.as_slice()),
            Self::Maglev(slots) => size_of_val(slots.as_slice()),
            Self::Rendezvous(seeds) => size_of_val(seeds.as_slice()),
            Self::Weighted(nodes) => size_of_val(nodes.as_slice()),
            Self::Skeleton(tree, members) => tree.octets() + size_of_val(members.as_slice()),
        }
    }
}

/// The bucket of a key among `nodes` buckets.
fn jump(mut key: u64, nodes: usize) -> usize {
    let (mut bucket, mut next) = (0usize, 0usize);
    while next < nodes {
        bucket = next;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        let factor = (1u64 << 31) as f64 / ((key >> 33) + 1) as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates beyond any number of nodes"
        )]
        let jumped = ((bucket + 1) as f64 * factor) as usize;
        next = jumped;
    }
    bucket
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jump_hash_equals_published_values() {
        // From the paper's algorithm: jump(key, buckets).
        let cases = [(1, 1, 0), (42, 57, 43), (0xDEAD_10CC, 1, 0), (0xDEAD_10CC, 666, 361), (256, 1024, 520)];
        for (key, nodes, bucket) in cases {
            assert_eq!(jump(key, nodes), bucket, "{key} {nodes}");
        }
    }
}
