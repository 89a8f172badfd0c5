//! The inner loops, compiled once for each instruction set.
//!
//! Every function here is a plain loop over arrays that the compiler turns into vectors. The same source is compiled
//! for the machine's baseline, for AVX2 and for AVX-512, so all give the same bits: integer arithmetic wraps alike
//! everywhere, and floating-point operations are correctly rounded and never contracted.
//!
//! The loops find the least of *packed* numbers: a [sort key](SortKey) whose low bits were replaced by the node's slot.
//! The least few then tell their slots without a second pass and without moving indices alongside, which keeps the
//! reduction down to one minimum and one maximum a rank. What packing takes from a sort key is for the caller to look at
//! again, who sees it where two of the least are equal above the mask.
//!
//! This is the one file of the crate with `unsafe`: calling a function that was compiled for an instruction set is
//! sound only on a processor that has it. [`Isa`] is the proof: its values come from detection alone.

#![expect(unsafe_code, reason = "calls of functions compiled for an instruction set that was detected")]
#![expect(
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "indices run below the constant lengths of arrays; iterators in their place are not vectorised"
)]

use super::bound::quick_bound;
use super::cost::{Costs, Logarithm, MinusLn, Polynomial, TwoTerms};
use super::set::Nodes;
use super::sort_key::{Cost, Score, SortKey, Top, Word};
use crate::hash::mix;
use crate::sip::{SipKey, SipState};
use alloc::vec::Vec;

/// Keys that are ranked together: four AVX-512 registers of 64-bit words.
pub(super) const LANES: usize = 32;
/// Lanes when nodes, not keys, stand side by side.
pub(super) const NODE_LANES: usize = 16;

/// Cells or keys whose hits are gathered in one word.
const BLOCK: usize = 64;

/// One 64-bit word a key.
pub(super) type Lanes = [u64; LANES];

/// Has the processor this feature? With `std` it is asked; without, only what the compiler may assume counts.
#[cfg(all(target_arch = "x86_64", feature = "std"))]
macro_rules! has {
    ($feature:tt) => {
        is_x86_feature_detected!($feature)
    };
}
#[cfg(all(target_arch = "x86_64", not(feature = "std")))]
macro_rules! has {
    ($feature:tt) => {
        cfg!(target_feature = $feature)
    };
}

/// An instruction set that this machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa(Level);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Isa {
    /// What every machine of the architecture has: SSE2 on x86-64, NEON on AArch64.
    pub const PORTABLE: Self = Self(Level::Portable);

    /// The widest set that this machine has.
    pub fn detect() -> Self {
        Self::available().last().unwrap_or(Self::PORTABLE)
    }

    /// All sets that this machine has, narrow ones first.
    pub fn available() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let wide = {
            let avx2 = has!("avx2");
            let avx512 = avx2 && has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
            [avx2.then_some(Self(Level::Avx2)), avx512.then_some(Self(Level::Avx512))]
        };
        #[cfg(not(target_arch = "x86_64"))]
        let wide: [Option<Self>; 0] = [];
        core::iter::once(Self::PORTABLE).chain(wide.into_iter().flatten())
    }

    /// The word for reports: `portable`, `avx2` or `avx512`.
    pub const fn name(self) -> &'static str {
        match self.0 {
            Level::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "avx512",
        }
    }
}

impl Default for Isa {
    fn default() -> Self {
        Self::detect()
    }
}

/// Compiles a loop for every instruction set, and makes a function of the same name that picks by [`Isa`].
macro_rules! for_every_isa {
    ($(#[$doc:meta])* fn $name:ident<$(const $k:ident: usize),*>($($arg:ident: $type:ty),*) -> $out:ty $body:block) => {
        $(#[$doc])*
        pub(super) fn $name<$(const $k: usize),*>(isa: Isa, $($arg: $type),*) -> $out {
            #[inline(always)]
            fn plain<$(const $k: usize),*>($($arg: $type),*) -> $out $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            fn avx2<$(const $k: usize),*>($($arg: $type),*) -> $out {
                plain::<$($k),*>($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,avx512f,avx512bw,avx512dq,avx512vl")]
            fn avx512<$(const $k: usize),*>($($arg: $type),*) -> $out {
                plain::<$($k),*>($($arg),*)
            }

            match isa.0 {
                Level::Portable => plain::<$($k),*>($($arg),*),
                // SAFETY: the machine has AVX2; `Isa::available`, the only maker of this level, detected it.
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => unsafe { avx2::<$($k),*>($($arg),*) },
                // SAFETY: the machine has these sets; `Isa::available`, the only maker of this level, detected them.
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 => unsafe { avx512::<$($k),*>($($arg),*) },
            }
        }
    };
}

for_every_isa! {
/// For each key the `K` least packed complements of scores, least first: the highest scores.
fn keys_by_score<const K: usize>(nodes: &Nodes, mask: u64, keys: &Lanes) -> [Lanes; K] {
    least_by_key(&Score { mask }, nodes, keys)
}
}

for_every_isa! {
/// For each key the `K` least packed complements of the upper bits of scores, least first.
fn keys_by_top<const K: usize>(nodes: &Nodes, mask: u32, keys: &Lanes) -> [[u32; LANES]; K] {
    least_by_key(&Top { mask }, nodes, keys)
}
}

for_every_isa! {
/// For each key the `K` least packed costs, least first, and whether each of the first `k` is told apart from the next.
fn keys_by_cost<const K: usize>(costs: &Costs, nodes: &Nodes, keys: &Lanes, k: usize) -> ([[u32; LANES]; K], [bool; LANES]) {
    let mask = costs.mask;
    let least: [[u32; LANES]; K] = match costs.logarithm {
        Logarithm::Polynomial => least_by_key(&Cost::<Polynomial>::new(mask), nodes, keys),
        Logarithm::TwoTerms => least_by_key(&Cost::<TwoTerms>::new(mask), nodes, keys),
    };
    let mut apart = [true; LANES];
    for (this, next) in least.iter().zip(least.iter().skip(1)).take(k) {
        for lane in 0..LANES {
            apart[lane] &= costs.are_apart(this[lane], next[lane]);
        }
    }
    (least, apart)
}
}

for_every_isa! {
/// SipHash states after the row's own seed, which is the hash of its number in big-endian order.
fn row_states<>(key: SipKey, rows: &[u32; LANES]) -> [Lanes; 4] {
    let mut states = [[0; LANES]; 4];
    for lane in 0..LANES {
        // One word: the four octets, and the message's length at its top.
        let number = u64::from(rows[lane].swap_bytes()) | 4 << 56;
        let state = SipState::new(key).compressed(SipState::new(key).compressed(number).finish());
        states[0][lane] = state.v0;
        states[1][lane] = state.v1;
        states[2][lane] = state.v2;
        states[3][lane] = state.v3;
    }
    states
}
}

for_every_isa! {
/// For each SipHash state the `K` least packed digests, read as octets in order, of the `W` words that end a message.
fn states_by_digest<const K: usize, const W: usize>(tails: &[[u64; W]], mask: u64, states: &[Lanes; 4]) -> [Lanes; K] {
    let mut least = [[u64::MAX; LANES]; K];
    for (tail, slot) in tails.iter().zip(0u64..) {
        let mut digests = [0; LANES];
        for lane in 0..LANES {
            let mut state = SipState { v0: states[0][lane], v1: states[1][lane], v2: states[2][lane], v3: states[3][lane] };
            for word in 0..W {
                state = state.compressed(tail[word]);
            }
            digests[lane] = state.finish();
        }
        for lane in 0..LANES {
            let mut next = digests[lane].swap_bytes().pack(mask, slot);
            for rank in 0..K {
                (least[rank][lane], next) = (least[rank][lane].min(next), least[rank][lane].max(next));
            }
        }
    }
    least
}
}

for_every_isa! {
/// For one key the `K` least packed complements of scores, least first.
fn nodes_by_score<const K: usize>(nodes: &Nodes, mask: u64, key: u64) -> [u64; K] {
    least_by_node(&Score { mask }, nodes, key)
}
}

for_every_isa! {
/// For one key the `K` least packed complements of the upper bits of scores, least first.
fn nodes_by_top<const K: usize>(nodes: &Nodes, mask: u32, key: u64) -> [u32; K] {
    least_by_node(&Top { mask }, nodes, key)
}
}

for_every_isa! {
/// For one key the `K` least packed costs, least first.
fn nodes_by_cost<const K: usize>(costs: &Costs, nodes: &Nodes, key: u64) -> [u32; K] {
    let mask = costs.mask;
    match costs.logarithm {
        Logarithm::Polynomial => least_by_node(&Cost::<Polynomial>::new(mask), nodes, key),
        Logarithm::TwoTerms => least_by_node(&Cost::<TwoTerms>::new(mask), nodes, key),
    }
}
}

for_every_isa! {
/// The slots whose cost for one key is not above `most`, in `found` as far as it reaches, and how many they are.
fn slots_within<>(costs: &Costs, nodes: &Nodes, key: u64, most: f32, found: &mut [u32]) -> usize {
    let mut count = 0;
    for ((seeds, inverses), start) in nodes.groups().zip((0u32..).step_by(NODE_LANES)) {
        let mut hits = match costs.logarithm {
            Logarithm::Polynomial => hits_within::<Polynomial>(seeds, inverses, key, most),
            Logarithm::TwoTerms => hits_within::<TwoTerms>(seeds, inverses, key, most),
        };
        while hits != 0 {
            let slot = start + hits.trailing_zeros();
            hits &= hits - 1;
            if (slot as usize) < nodes.len() {
                found.get_mut(count).into_iter().for_each(|cell| *cell = slot);
                count += 1;
            }
        }
    }
    count
}
}

for_every_isa! {
/// The scores of all nodes for one key.
fn scores<>(seeds: &[u64], key: u64, out: &mut [u64]) -> () {
    for (cell, seed) in out.iter_mut().zip(seeds) {
        *cell = mix(key ^ seed);
    }
}
}

for_every_isa! {
/// Positions of the keys for which a newcomer's [`quick_bound`] is not above the ceiling, but for `slack`.
fn not_above<>(keys: &[u64], ceilings: &[f64], seed: u64, inverse: f64, slack: f64) -> Vec<u32> {
    let mut found = Vec::new();
    let blocks = keys.chunks(BLOCK).zip(ceilings.chunks(BLOCK)).zip((0u32..).step_by(BLOCK));
    for ((keys, ceilings), start) in blocks {
        let mut hits = 0u64;
        for (bit, (key, ceiling)) in keys.iter().zip(ceilings).enumerate() {
            hits |= u64::from(quick_bound(key ^ seed, inverse) <= ceiling + slack) << bit;
        }
        push_hits(&mut found, start, hits);
    }
    found
}
}

for_every_isa! {
/// Positions of the cells that hold `wanted`.
fn positions_of<>(cells: &[u32], wanted: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for (cells, start) in cells.chunks(BLOCK).zip((0u32..).step_by(BLOCK)) {
        let mut hits = 0u64;
        for (bit, cell) in cells.iter().enumerate() {
            hits |= u64::from(*cell == wanted) << bit;
        }
        push_hits(&mut found, start, hits);
    }
    found
}
}

/// Appends `start` plus the number of each bit that is set.
#[inline]
fn push_hits(found: &mut Vec<u32>, start: u32, mut hits: u64) {
    while hits != 0 {
        found.push(start + hits.trailing_zeros());
        hits &= hits - 1;
    }
}

/// A bit for each of a group of nodes whose cost is not above `most`.
#[inline(always)]
fn hits_within<L: MinusLn>(
    seeds: &[u64; NODE_LANES],
    inverses: &[f32; NODE_LANES],
    key: u64,
    most: f32,
) -> u32 {
    let mut hits = 0;
    for lane in 0..NODE_LANES {
        let cost = L::minus_ln(L::bits(key ^ seeds[lane])) * inverses[lane];
        hits |= u32::from(cost <= most) << lane;
    }
    hits
}

/// The `K` least for each key, of all nodes, least first.
#[inline(always)]
fn least_by_key<S: SortKey, const K: usize>(sort: &S, nodes: &Nodes, keys: &Lanes) -> [[S::Word; LANES]; K] {
    let mut least = [[S::Word::MAX; LANES]; K];
    for ((seed, inverse), slot) in nodes.iter().zip(0u64..) {
        let mut bits = [S::Word::MAX; LANES];
        for lane in 0..LANES {
            bits[lane] = S::bits(keys[lane] ^ seed);
        }
        for lane in 0..LANES {
            let mut here: [S::Word; K] = core::array::from_fn(|rank| least[rank][lane]);
            insert(&mut here, sort.packed(bits[lane], inverse, slot));
            for rank in 0..K {
                least[rank][lane] = here[rank];
            }
        }
    }
    least
}

/// The `K` least for one key, of all nodes, least first: a list for each lane of nodes, then the least of all lists.
#[inline(always)]
fn least_by_node<S: SortKey, const K: usize>(sort: &S, nodes: &Nodes, key: u64) -> [S::Word; K] {
    let mut lists = [[S::Word::MAX; NODE_LANES]; K];
    let count = nodes.len() as u64;
    for ((seeds, inverses), first) in nodes.groups().zip((0u64..).step_by(NODE_LANES)) {
        let mut bits = [S::Word::MAX; NODE_LANES];
        for lane in 0..NODE_LANES {
            bits[lane] = S::bits(key ^ seeds[lane]);
        }
        for lane in 0..NODE_LANES {
            let slot = first + lane as u64;
            let packed = sort.packed(bits[lane], inverses[lane], slot);
            let mut here: [S::Word; K] = core::array::from_fn(|rank| lists[rank][lane]);
            insert(&mut here, if slot < count { packed } else { S::Word::MAX });
            for rank in 0..K {
                lists[rank][lane] = here[rank];
            }
        }
    }
    if S::IS_SHORT {
        turn::<_, 8, K>(&mut lists);
        turn::<_, 4, K>(&mut lists);
        turn::<_, 2, K>(&mut lists);
        turn::<_, 1, K>(&mut lists);
    } else {
        fold::<_, 8, K>(&mut lists);
        fold::<_, 4, K>(&mut lists);
        fold::<_, 2, K>(&mut lists);
        fold::<_, 1, K>(&mut lists);
    }
    lists.map(|list| list[0])
}

/// Adds to each lane's list that of the lane `STEP` further on: after the last of halving steps the first has all lanes'.
/// More than [`fold`] does, and faster, since it stays in whole vectors; but it makes the compiler unroll the loops
/// before it, and those of long sort keys lose more by that.
#[inline(always)]
fn turn<W: Word, const STEP: usize, const K: usize>(lists: &mut [[W; NODE_LANES]; K]) {
    let mut turned = *lists;
    for rank in 0..K {
        for lane in 0..NODE_LANES {
            turned[rank][lane] = lists[rank][(lane + STEP) % NODE_LANES];
        }
    }
    for next in turned {
        for lane in 0..NODE_LANES {
            let mut here: [W; K] = core::array::from_fn(|rank| lists[rank][lane]);
            insert(&mut here, next[lane]);
            for rank in 0..K {
                lists[rank][lane] = here[rank];
            }
        }
    }
}

/// The lists of twice as many lanes in those of the first `WIDTH`.
#[inline(always)]
fn fold<W: Word, const WIDTH: usize, const K: usize>(lists: &mut [[W; NODE_LANES]; K]) {
    for lane in 0..WIDTH {
        let mut here: [W; K] = core::array::from_fn(|rank| lists[rank][lane]);
        for rank in 0..K {
            insert(&mut here, lists[rank][lane + WIDTH]);
        }
        for rank in 0..K {
            lists[rank][lane] = here[rank];
        }
    }
}

/// Puts a number where it belongs among the `K` least.
#[inline(always)]
fn insert<W: Word, const K: usize>(least: &mut [W; K], mut next: W) {
    for held in least {
        (*held, next) = ((*held).min(next), (*held).max(next));
    }
}
