//! Nodes laid out for scanning.

use super::Node;
use super::cost::Costs;
use super::simd::{Isa, NODE_LANES};
use alloc::vec::Vec;
use core::ops::Range;

/// Nodes laid out for scanning: in classes of equal weight, within a class by descending id.
///
/// That order makes ties resolve themselves: of equal scores the first one met has the greater id.
///
/// Memory: 36 octets a node, and 24 a weight.
#[derive(Clone, Debug)]
pub struct NodeSet {
    pub(super) nodes: Nodes,
    pub(super) slots: Vec<Slot>,
    pub(super) classes: Vec<Class>,
    pub(super) scan: Scan,
    pub(super) isa: Isa,
}

/// What scans read of the nodes, slot by slot, and beyond them so much that vectors are full.
#[derive(Clone, Debug)]
pub(super) struct Nodes {
    seeds: Vec<u64>,
    /// 1 / weight, in the unit of [`Costs`]; any number where weights do not differ.
    inverses: Vec<f32>,
    count: usize,
}

impl Nodes {
    fn new(mut seeds: Vec<u64>, mut inverses: Vec<f32>) -> Self {
        let count = seeds.len();
        let padded = count.next_multiple_of(NODE_LANES);
        seeds.resize(padded, 0);
        inverses.resize(padded, 0.0);
        Self { seeds, inverses, count }
    }

    /// How many there are.
    #[inline]
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    /// Seeds, and inverses of weights.
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, f32)> {
        self.seeds().iter().copied().zip(self.inverses.iter().copied())
    }

    /// The same in groups, the last of which goes beyond the nodes.
    #[inline]
    pub(super) fn groups(&self) -> impl Iterator<Item = (&[u64; NODE_LANES], &[f32; NODE_LANES])> {
        self.seeds.as_chunks().0.iter().zip(self.inverses.as_chunks().0)
    }

    pub(super) fn seeds(&self) -> &[u64] {
        self.seeds.get(..self.count).unwrap_or_default()
    }

    pub(super) fn seed(&self, slot: usize) -> u64 {
        self.seeds.get(slot).copied().unwrap_or_default()
    }
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
    /// One weight: by the upper bits of raw scores.
    Tops { mask: u32 },
    /// One weight, and so many nodes that these would not often tell them apart: by raw score.
    Scores { mask: u32 },
    /// Several.
    Costs(Costs),
    /// Nodes too many to pack, or weights that [`Costs`] cannot compare.
    Full,
}

/// The slot of a packed number.
#[inline]
pub(super) fn slot(packed: u32, mask: u32) -> usize {
    (packed & mask) as usize
}

impl NodeSet {
    /// Lays out `nodes`; positions in the ranking refer to this list. `O(n log n)`.
    pub fn new(nodes: &[Node]) -> Self {
        let mut by_id: Vec<usize> = (0..nodes.len()).collect();
        by_id.sort_by_key(|&index| nodes.get(index).map(Node::id));
        let mut entries: Vec<(u64, Slot)> = (by_id.iter().enumerate())
            .filter_map(|(id_rank, &index)| {
                let node = nodes.get(index)?;
                Some((node.seed(), Slot { node: index, id_rank, weight: node.weight() }))
            })
            .collect();
        entries.sort_by(|(_, a), (_, b)| a.weight.total_cmp(&b.weight).then(b.id_rank.cmp(&a.id_rank)));
        let (seeds, slots): (Vec<u64>, Vec<Slot>) = entries.into_iter().unzip();
        let classes = classes(&slots);
        let (scan, inverses) = Scan::new(&slots, &classes);
        let nodes = Nodes::new(seeds, inverses);
        Self { nodes, slots, classes, scan, isa: Isa::detect() }
    }

    /// The same set scanned by other instructions than the widest: for tests and measurements. The results are equal.
    #[doc(hidden)]
    #[must_use]
    pub fn with_isa(mut self, isa: Isa) -> Self {
        self.isa = isa;
        self
    }

    /// Octets that look-ups read.
    pub fn octets(&self) -> usize {
        let Nodes { seeds, inverses, .. } = &self.nodes;
        let lists = [size_of_val(seeds.as_slice()), size_of_val(inverses.as_slice())];
        let tables = [size_of_val(self.slots.as_slice()), size_of_val(self.classes.as_slice())];
        lists.into_iter().chain(tables).sum()
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

fn classes(slots: &[Slot]) -> Vec<Class> {
    let mut classes: Vec<Class> = Vec::new();
    for (index, slot) in slots.iter().enumerate() {
        match classes.last_mut() {
            Some(class) if class.weight == slot.weight => class.slots.end = index + 1,
            _ => classes.push(Class { weight: slot.weight, slots: index..index + 1 }),
        }
    }
    classes
}

impl Scan {
    /// Most slots that are packed: 44 bits of a score are left.
    const MAX_PACKED: usize = 1 << 20;
    /// Most slots that are packed in 32 bits, where 19 are left to tell scores apart.
    pub(super) const MAX_NARROW: usize = 1 << 12;

    /// With the inverses of weights.
    fn new(slots: &[Slot], classes: &[Class]) -> (Self, Vec<f32>) {
        let full = (Self::Full, Vec::new());
        let Ok(mask) = u32::try_from(slots.len().next_power_of_two() - 1) else { return full };
        match classes {
            _ if slots.len() > Self::MAX_PACKED => full,
            [lightest, .., heaviest] => Costs::new(mask, slots, lightest.weight, heaviest.weight)
                .map_or(full, |(costs, inverses)| (Self::Costs(costs), inverses)),
            _ if slots.len() > Self::MAX_NARROW => (Self::Scores { mask }, Vec::new()),
            _ => (Self::Tops { mask }, Vec::new()),
        }
    }
}
