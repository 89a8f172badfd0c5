//! The order in which a row prefers its backends: the seam between the generator and [`tryst_hrw`].
//!
//! Most rows need the first two of their ranking and nothing else, so many rows' first few are found in one vectorised
//! pass, or known from an earlier build (`Kept`); a row that asks for more is ranked in full.

use crate::config::TableSpec;
use common::backend::Backend;
use common::table::{self, Seed};
use std::net::IpAddr;
use std::sync::OnceLock;
use tryst_hrw::hash::Prefix;
use tryst_hrw::{DigestSet, Node, NodeSet, Ranker, Rankings};

/// Ranks the candidates of one table for any of its rows.
#[derive(Debug)]
pub struct Ranking<'k> {
    backends: &'k [Backend],
    /// Made when it is first asked for: with kept rankings it seldom is.
    nodes: OnceLock<NodeSet>,
    /// Position among all backends of each node.
    positions: Vec<u16>,
    key: Key,
    kept: Option<Kept<'k>>,
}

#[derive(Debug)]
enum Key {
    Hrw(Prefix),
    /// With the nodes' addresses, as GLB hashes them.
    Glb(DigestSet, Vec<IpAddr>),
}

/// The first few of every row, from an earlier build.
#[derive(Clone, Debug)]
pub(super) struct Kept<'k> {
    pub(super) rankings: &'k Rankings,
    /// Position among all backends, by handle.
    pub(super) positions: Vec<u16>,
}

impl<'k> Ranking<'k> {
    /// `backends` are those of the table, in its order; positions refer to them.
    pub fn new(ranking: table::Ranking, seed: Seed, backends: &'k [Backend]) -> Self {
        let (positions, candidates): (Vec<u16>, Vec<&Backend>) = candidates(backends).unzip();
        let key = match ranking {
            table::Ranking::Hrw => Key::Hrw(Prefix::new(&seed.0)),
            table::Ranking::Glb => {
                let addresses: Vec<IpAddr> = candidates.iter().map(|backend| backend.address).collect();
                Key::Glb(DigestSet::new(seed.0, &addresses), addresses)
            }
        };
        Self { backends, nodes: OnceLock::new(), positions, key, kept: None }
    }

    pub(super) fn with_kept(self, kept: Kept<'k>) -> Self {
        Self { kept: Some(kept), ..self }
    }

    /// For one thread, to rank row after row.
    pub fn ranker(&self) -> RowRanker<'_> {
        RowRanker { ranking: self, ranker: None, depth: 0, start: 0, first: Vec::new(), deep: false }
    }

    fn nodes(&self) -> &NodeSet {
        self.nodes.get_or_init(|| NodeSet::new(&nodes(self.backends)))
    }

    /// The first few nodes of a row, and the positions of all nodes. `prepared` has `depth` cells a row from `start` on.
    #[inline]
    fn known<'a>(&'a self, row: u32, prepared: (u32, usize, &'a [u32])) -> (&'a [u32], &'a [u16]) {
        if let Some(kept) = &self.kept {
            return (kept.rankings.first(row), &kept.positions);
        }
        let (start, depth, first) = prepared;
        let at = row.wrapping_sub(start) as usize * depth;
        let count = depth.min(self.positions.len());
        (first.get(at..at + count).unwrap_or_default(), &self.positions)
    }

    /// The first `depth` nodes of the rows from `start` on.
    pub(super) fn first(&self, start: u32, depth: usize, first: &mut [u32]) {
        match &self.key {
            Key::Hrw(seed) => {
                let count = first.len() / depth.max(1);
                let keys: Vec<u64> = (start..).take(count).map(|row| key_hash(*seed, row)).collect();
                self.nodes().top_many(&keys, depth, first);
            }
            Key::Glb(digests, _) => {
                digests.top_many(start, depth, first);
            }
        }
    }
}

/// Backends that are ranked, with their positions.
pub(super) fn candidates(backends: &[Backend]) -> impl Iterator<Item = (u16, &Backend)> {
    (0u16..).zip(backends).filter(|(_, backend)| backend.is_candidate())
}

/// The hash that ranks a row.
pub(super) fn key_hash(seed: Prefix, row: u32) -> u64 {
    seed.hash(&row.to_le_bytes())
}

/// The hashes that rank a table's rows.
pub(super) fn keys(spec: &TableSpec) -> Vec<u64> {
    let seed = Prefix::new(&spec.seed.0);
    (0..spec.rows).map(|row| key_hash(seed, row)).collect()
}

/// A weight that is none was refused with the configuration, and is again when the table is sealed.
pub(super) fn node(backend: &Backend) -> Node {
    let node = Node::weighted(backend.id.as_str(), backend.effective_weight());
    node.unwrap_or_else(|_| Node::new(backend.id.as_str()))
}

/// Those that are ranked, in the order of [`candidates`].
pub(super) fn nodes(backends: &[Backend]) -> Vec<Node> {
    candidates(backends).map(|(_, backend)| node(backend)).collect()
}

/// Ranks one row after another.
#[derive(Debug)]
pub struct RowRanker<'a> {
    ranking: &'a Ranking<'a>,
    /// Made for the first row that needs it.
    ranker: Option<Ranker<'a>>,
    depth: usize,
    /// The rows whose `first` are at hand.
    start: u32,
    first: Vec<u32>,
    /// Was the last row asked for more than was at hand?
    deep: bool,
}

impl<'a> RowRanker<'a> {
    /// Gets the first `depth` of `count` rows ready. Any other row can be ranked too, at a price.
    pub fn prepare(&mut self, start: u32, count: usize, depth: usize) {
        if self.ranking.kept.is_none() {
            self.depth = depth;
            self.start = start;
            self.first.resize(count * self.depth, NodeSet::NONE);
            self.ranking.first(start, self.depth, &mut self.first);
        }
    }

    /// Positions of the candidates in the order in which `row` prefers them; each costs when it is asked for.
    pub fn rank(&mut self, row: u32) -> Order<'a, '_> {
        self.deep = false;
        let Self { ranking, ranker, deep, depth, start, first } = self;
        let (known, positions) = ranking.known(row, (*start, *depth, first));
        Order { known: known.iter(), positions, given: 0, rest: Rest { ranking, ranker, row, deep } }
    }

    /// The first two candidates, if they are at hand.
    #[inline]
    pub(super) fn pair(&self, row: u32) -> Option<[u16; 2]> {
        let (known, positions) = self.ranking.known(row, (self.start, self.depth, &self.first));
        let [first, second, ..] = known else { return None };
        Some([*positions.get(*first as usize)?, *positions.get(*second as usize)?])
    }

    /// Was the row ranked last asked for more than was known of it?
    pub(super) const fn was_deep(&self) -> bool {
        self.deep
    }
}

/// A row's candidates, most preferred first.
#[derive(Debug)]
pub struct Order<'a, 'r> {
    known: std::slice::Iter<'r, u32>,
    positions: &'r [u16],
    given: usize,
    rest: Rest<'a, 'r>,
}

impl Iterator for Order<'_, '_> {
    type Item = u16;

    #[inline]
    fn next(&mut self) -> Option<u16> {
        match self.known.next() {
            Some(at) => {
                self.given += 1;
                self.positions.get(*at as usize).copied()
            }
            None => self.rest.next(self.given),
        }
    }
}

/// What comes after the part of a ranking that is known.
#[derive(Debug)]
struct Rest<'a, 'r> {
    ranking: &'a Ranking<'a>,
    ranker: &'r mut Option<Ranker<'a>>,
    row: u32,
    deep: &'r mut bool,
}

impl Rest<'_, '_> {
    /// The next candidate after `given` others.
    #[cold]
    fn next(&mut self, given: usize) -> Option<u16> {
        if given >= self.ranking.positions.len() {
            return None;
        }
        let ranker = self.ranker.get_or_insert_with(|| Ranker::new(self.ranking.nodes()));
        if !std::mem::replace(self.deep, true) {
            match &self.ranking.key {
                Key::Hrw(seed) => ranker.start(key_hash(*seed, self.row)),
                Key::Glb(digests, addresses) => ranker.start_with(|at| {
                    addresses.get(at).map_or(0, |address| !digests.digest(self.row, *address))
                }),
            }
            for _ in 0..given {
                ranker.next_node();
            }
        }
        ranker.next_node().and_then(|at| self.ranking.positions.get(at).copied())
    }
}
