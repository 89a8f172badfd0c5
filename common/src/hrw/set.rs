//! Nodes laid out for scanning.

use super::simd::Isa;
use super::{Node, bound};
use std::ops::Range;

/// Nodes laid out for scanning: in classes of equal weight, within a class by descending id.
///
/// That order makes ties resolve themselves: of equal scores the first one met has the greater id.
///
/// Memory: 40 octets a node, and 16 more where weights differ.
#[derive(Clone, Debug)]
pub struct NodeSet {
    pub(super) seeds: Vec<u64>,
    pub(super) slots: Vec<Slot>,
    pub(super) classes: Vec<Class>,
    pub(super) scan: Scan,
    pub(super) isa: Isa,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// Position of the node in the list that was given.
    pub(super) node: usize,
    /// The greater of two has the greater id.
    pub(super) id_rank: usize,
    pub(super) weight: f64,
}

impl Slot {
    /// The node's position in 32 bits.
    #[inline]
    pub(super) fn position(&self) -> u32 {
        u32::try_from(self.node).unwrap_or(NodeSet::NONE)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Class {
    pub(super) weight: f64,
    pub(super) slots: Range<usize>,
}

/// How the first few of a ranking are found without ranking all.
#[derive(Clone, Debug)]
pub(super) enum Scan {
    /// One weight: by raw score.
    Scores { mask: u64 },
    /// Few, of several: by costs to a relative error that is small beside what packing takes; each slot's seed and the
    /// inverse of its weight.
    Costs { mask: u64, nodes: Vec<(u64, f64)> },
    /// Several: by bounds of the weighted scores, of which this is each slot's seed and 2⁻⁶⁴ / weight.
    Bounds { mask: u64, nodes: Vec<(u64, f64)>, lightest: f64 },
    /// Nodes too many to pack, or weights too far apart for bounds to tell anything.
    Full,
}

impl NodeSet {
    /// Lays out `nodes`; positions in the ranking refer to this list. `O(n log n)`.
    pub fn new(nodes: &[Node]) -> Self {
        let mut by_id: Vec<usize> = (0..nodes.len()).collect();
        by_id.sort_by_key(|&at| nodes.get(at).map(Node::id));
        let mut entries: Vec<(u64, Slot)> = (by_id.iter().enumerate())
            .filter_map(|(id_rank, &at)| {
                let node = nodes.get(at)?;
                Some((node.seed(), Slot { node: at, id_rank, weight: node.weight() }))
            })
            .collect();
        entries.sort_by(|(_, a), (_, b)| a.weight.total_cmp(&b.weight).then(b.id_rank.cmp(&a.id_rank)));
        let (seeds, slots): (Vec<u64>, Vec<Slot>) = entries.into_iter().unzip();
        let classes = classes(&slots);
        let scan = Scan::new(&seeds, &slots, &classes);
        Self { seeds, slots, classes, scan, isa: Isa::detect() }
    }

    /// The same set scanned by other instructions than the widest: for tests and measurements. The results are equal.
    #[must_use]
    pub fn with_isa(mut self, isa: Isa) -> Self {
        self.isa = isa;
        self
    }

    /// Octets that look-ups read.
    pub fn octets(&self) -> usize {
        let bounds = match &self.scan {
            Scan::Bounds { nodes, .. } | Scan::Costs { nodes, .. } => size_of_val(nodes.as_slice()),
            Scan::Scores { .. } | Scan::Full => 0,
        };
        let classes = size_of_val(self.classes.as_slice());
        size_of_val(self.seeds.as_slice()) + size_of_val(self.slots.as_slice()) + classes + bounds
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.seeds.len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.seeds.is_empty()
    }
}

fn classes(slots: &[Slot]) -> Vec<Class> {
    let mut classes: Vec<Class> = Vec::new();
    for (at, slot) in slots.iter().enumerate() {
        match classes.last_mut() {
            Some(class) if class.weight == slot.weight => class.slots.end = at + 1,
            _ => classes.push(Class { weight: slot.weight, slots: at..at + 1 }),
        }
    }
    classes
}

impl Scan {
    /// Most slots that are packed: 20 bits leave 32 of a double's mantissa.
    const MAX_PACKED: usize = 1 << 20;
    /// Up to so many nodes a cost for each is faster than bounds, which are the wider the fewer there are.
    const FEW: usize = 16;

    fn new(seeds: &[u64], slots: &[Slot], classes: &[Class]) -> Self {
        if seeds.len() > Self::MAX_PACKED {
            return Self::Full;
        }
        let mask = seeds.len().next_power_of_two() as u64 - 1;
        match classes {
            [] | [_] => Self::Scores { mask },
            [lightest, .., heaviest] if !bound::covers(lightest.weight, heaviest.weight) => Self::Full,
            [_, ..] if seeds.len() <= Self::FEW => {
                let nodes = seeds.iter().zip(slots).map(|(seed, slot)| (*seed, 1.0 / slot.weight));
                Self::Costs { mask, nodes: nodes.collect() }
            }
            [lightest, ..] => {
                let nodes = seeds.iter().zip(slots).map(|(seed, slot)| (*seed, bound::inverse(slot.weight)));
                Self::Bounds { mask, nodes: nodes.collect(), lightest: lightest.weight }
            }
        }
    }
}
