//! The order in which a row prefers its backends: the seam between the generator and [`common::hrw`].

use crate::config::TableSpec;
use common::backend::Backend;
use common::hash::{SipKey, hash_bytes};
use common::hrw::{Node, NodeSet, Ranker};
use common::table::{self, Seed};
use std::net::IpAddr;

/// Ranks the candidates of one table for any of its rows.
#[derive(Clone, Debug)]
pub struct Ranking {
    nodes: NodeSet,
    /// Position among all backends of each node.
    positions: Vec<u16>,
    key: Key,
}

#[derive(Clone, Debug)]
enum Key {
    Hrw(Seed),
    /// The nodes' addresses, as GLB hashes them.
    Glb(SipKey, Vec<IpAddr>),
}

impl Ranking {
    /// `backends` are those of the table, in its order; positions refer to them.
    pub fn new(spec: &TableSpec, backends: &[Backend]) -> Self {
        let candidates = (0u16..).zip(backends).filter(|(_, backend)| backend.is_candidate());
        let (positions, candidates): (Vec<u16>, Vec<&Backend>) = candidates.unzip();
        let nodes: Vec<Node> = candidates.iter().map(|backend| node(backend)).collect();
        let key = match spec.ranking {
            table::Ranking::Hrw => Key::Hrw(spec.seed),
            table::Ranking::Glb => {
                let addresses = candidates.iter().map(|backend| backend.address).collect();
                Key::Glb(SipKey::new(spec.seed.0), addresses)
            }
        };
        Self { nodes: NodeSet::new(&nodes), positions, key }
    }

    /// For one thread, to rank row after row.
    pub fn ranker(&self) -> RowRanker<'_> {
        RowRanker { ranking: self, ranker: Ranker::new(&self.nodes) }
    }
}

/// A weight that is none was refused with the configuration, and is again when the table is sealed.
fn node(backend: &Backend) -> Node {
    let node = Node::weighted(backend.id.as_str(), backend.effective_weight());
    node.unwrap_or_else(|_| Node::new(backend.id.as_str()))
}

/// Ranks one row after another without allocating.
#[derive(Clone, Debug)]
pub struct RowRanker<'a> {
    ranking: &'a Ranking,
    ranker: Ranker<'a>,
}

impl RowRanker<'_> {
    /// Positions of the candidates in the order in which `row` prefers them; each costs when it is asked for.
    pub fn rank(&mut self, row: u32) -> impl Iterator<Item = u16> {
        let Self { ranking, ranker } = self;
        match &ranking.key {
            Key::Hrw(seed) => ranker.start(hash_bytes(&seed.row_key(row))),
            Key::Glb(seed, addresses) => {
                let row_seed = glb_row_seed(*seed, row);
                ranker.start_with(|at| addresses.get(at).map_or(0, |a| glb_score(*seed, row_seed, *a)));
            }
        }
        std::iter::from_fn(|| ranker.next_node()).filter_map(|at| ranking.positions.get(at).copied())
    }
}

/// GLB's seed of a row: eight octets.
pub fn glb_row_seed(seed: SipKey, row: u32) -> [u8; 8] {
    seed.hash(&row.to_be_bytes()).to_le_bytes()
}

/// GLB takes the lowest digest, compared octet by octet; the highest of these numbers is the same one.
pub fn glb_score(seed: SipKey, row_seed: [u8; 8], address: IpAddr) -> u64 {
    let mut message = [0; 24];
    let (head, tail) = message.split_at_mut(8);
    head.copy_from_slice(&row_seed);
    let length = match address {
        IpAddr::V4(v4) => copy(tail, &v4.octets()),
        IpAddr::V6(v6) => copy(tail, &v6.octets()),
    };
    !seed.hash(message.get(..8 + length).unwrap_or_default()).swap_bytes()
}

fn copy(to: &mut [u8], from: &[u8]) -> usize {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    from.len()
}
