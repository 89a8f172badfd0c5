//! The inner loops, compiled once for each instruction set.
//!
//! Every function here is a plain loop over arrays that the compiler turns into vectors. The same source is compiled
//! for the machine's baseline, for AVX2 and for AVX-512, so all give the same bits: integer arithmetic wraps alike
//! everywhere, and floating-point operations are correctly rounded and never contracted.
//!
//! The loops find the least of *packed* numbers: a sort key whose low bits were replaced by the node's slot. The least
//! few then tell their slots without a second pass and without moving indices alongside, which keeps the reduction
//! down to one minimum and one maximum a rank. What packing takes from a sort key is for the caller to look at again,
//! who sees it where two of the least are equal above the mask.
//!
//! This is the one file of the crate with `unsafe`: calling a function that was compiled for an instruction set is
//! sound only on a processor that has it. [`Isa`] is the proof: its values come from detection alone.

#![allow(unsafe_code, reason = "calls of functions compiled for an instruction set that was detected")]
#![allow(
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "indices run below the constant lengths of arrays; iterators in their place are not vectorised"
)]

use super::bound;
use crate::hash::{SipKey, SipState, mix};

/// Keys that are ranked together: four AVX-512 registers of 64-bit words.
pub(super) const LANES: usize = 32;
/// Nodes that are worked on between loading the least so far and storing them.
const GROUP: usize = 4;
/// Lanes when nodes, not keys, stand side by side.
const NODE_LANES: usize = 8;

/// Cells or keys whose hits are gathered in one word.
const BLOCK: usize = 64;

/// One 64-bit word a key.
pub(super) type Lanes = [u64; LANES];

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
            let avx2 = is_x86_feature_detected!("avx2");
            let avx512 = avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            [avx2.then_some(Self(Level::Avx2)), avx512.then_some(Self(Level::Avx512))]
        };
        #[cfg(not(target_arch = "x86_64"))]
        let wide: [Option<Self>; 0] = [];
        std::iter::once(Self::PORTABLE).chain(wide.into_iter().flatten())
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
fn keys_by_score<const K: usize>(seeds: &[u64], mask: u64, keys: &Lanes) -> [Lanes; K] {
    least_by_key(seeds, |lane, seed, slot| pack(!mix(keys[lane] ^ seed), mask, slot))
}
}

for_every_isa! {
/// For each key the `K` least packed [`quick_bound`]s, least first.
fn keys_by_bound<const K: usize>(nodes: &[(u64, f64)], mask: u64, keys: &Lanes) -> [Lanes; K] {
    least_by_key(nodes, |lane, (seed, inverse), slot| {
        pack(quick_bound(keys[lane] ^ seed, *inverse).to_bits(), mask, slot)
    })
}
}

for_every_isa! {
/// For each key the `K` least packed costs, least first; `nodes` are seeds and inverse weights.
fn keys_by_cost<const K: usize>(nodes: &[(u64, f64)], mask: u64, keys: &Lanes) -> [Lanes; K] {
    least_by_key(nodes, |lane, (seed, inverse), slot| pack(cost(keys[lane] ^ seed, *inverse).to_bits(), mask, slot))
}
}

for_every_isa! {
/// For each key: is it beyond doubt, by bounds alone, that the first `k` of `packed` are the first of all, in this
/// order? `lightest` is the least weight; none if `packed` holds all nodes.
fn are_settled<const K: usize>(nodes: &[(u64, f64)], mask: u64, lightest: Option<f64>, keys: &Lanes, packed: &[Lanes; K], k: usize) -> [bool; LANES] {
    let mut settled = [true; LANES];
    // The least that any node costs which comes later in `packed`, or not at all.
    let mut later = [f64::INFINITY; LANES];
    if let Some(lightest) = lightest {
        for lane in 0..LANES {
            later[lane] = bound::floor(packed[K - 1][lane], mask, lightest);
        }
    }
    for rank in (0..K).rev() {
        let (mut seeds, mut inverse) = ([0; LANES], [0.0; LANES]);
        for lane in 0..LANES {
            let slot = usize::try_from(packed[rank][lane] & mask).unwrap_or(usize::MAX);
            (seeds[lane], inverse[lane]) = nodes.get(slot).copied().unwrap_or((0, f64::INFINITY));
        }
        for lane in 0..LANES {
            let (least, most) = bound::bounds(mix(keys[lane] ^ seeds[lane]), inverse[lane]);
            settled[lane] &= (rank >= k) | (most < later[lane]);
            later[lane] = later[lane].min(least);
        }
    }
    settled
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
            let mut next = pack(digests[lane].swap_bytes(), mask, slot);
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
fn nodes_by_score<const K: usize>(seeds: &[u64], mask: u64, key: u64) -> [u64; K] {
    least_by_node(seeds, |seed, slot| pack(!mix(key ^ seed), mask, slot))
}
}

for_every_isa! {
/// For one key the `K` least packed [`quick_bound`]s, least first.
fn nodes_by_bound<const K: usize>(nodes: &[(u64, f64)], mask: u64, key: u64) -> [u64; K] {
    least_by_node(nodes, |(seed, inverse), slot| pack(quick_bound(key ^ seed, *inverse).to_bits(), mask, slot))
}
}

for_every_isa! {
/// For one key the `K` least packed costs, least first.
fn nodes_by_cost<const K: usize>(nodes: &[(u64, f64)], mask: u64, key: u64) -> [u64; K] {
    least_by_node(nodes, |(seed, inverse), slot| pack(cost(key ^ seed, *inverse).to_bits(), mask, slot))
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

/// `sort_key` with `slot` in the bits of `mask`.
#[inline(always)]
fn pack(sort_key: u64, mask: u64, slot: u64) -> u64 {
    (sort_key & !mask) | slot
}

/// The `K` least for each key, of all nodes. `packed` is given a lane, a node, and its slot.
#[inline(always)]
fn least_by_key<N, const K: usize>(nodes: &[N], packed: impl Fn(usize, &N, u64) -> u64) -> [Lanes; K] {
    let mut least = [[u64::MAX; LANES]; K];
    let (groups, rest) = nodes.as_chunks::<GROUP>();
    let mut slot = 0;
    for group in groups {
        for lane in 0..LANES {
            let mut here: [u64; K] = std::array::from_fn(|rank| least[rank][lane]);
            for (node, at) in group.iter().zip(slot..) {
                insert(&mut here, packed(lane, node, at));
            }
            for rank in 0..K {
                least[rank][lane] = here[rank];
            }
        }
        slot += GROUP as u64;
    }
    for (node, at) in rest.iter().zip(slot..) {
        for lane in 0..LANES {
            let mut here: [u64; K] = std::array::from_fn(|rank| least[rank][lane]);
            insert(&mut here, packed(lane, node, at));
            for rank in 0..K {
                least[rank][lane] = here[rank];
            }
        }
    }
    least
}

/// The `K` least for one key: a list for each lane of nodes, then the least of all lists.
#[inline(always)]
fn least_by_node<N, const K: usize>(nodes: &[N], packed: impl Fn(&N, u64) -> u64) -> [u64; K] {
    let mut lists = [[u64::MAX; NODE_LANES]; K];
    let (groups, rest) = nodes.as_chunks::<NODE_LANES>();
    for (group, first) in groups.iter().zip((0u64..).step_by(NODE_LANES)) {
        for lane in 0..NODE_LANES {
            let mut here: [u64; K] = std::array::from_fn(|rank| lists[rank][lane]);
            insert(&mut here, packed(&group[lane], first + lane as u64));
            for rank in 0..K {
                lists[rank][lane] = here[rank];
            }
        }
    }
    let mut least = [u64::MAX; K];
    lists.as_flattened().iter().for_each(|next| insert(&mut least, *next));
    let first = (nodes.len() - rest.len()) as u64;
    rest.iter().zip(first..).for_each(|(node, slot)| insert(&mut least, packed(node, slot)));
    least
}

/// Puts a number where it belongs among the `K` least.
#[inline(always)]
fn insert<const K: usize>(least: &mut [u64; K], mut next: u64) {
    for held in least {
        (*held, next) = ((*held).min(next), (*held).max(next));
    }
}

/// `−ln u / weight` but for a relative error below 2⁻³¹; `inverse` is 1 / weight.
#[inline(always)]
fn cost(z: u64, inverse: f64) -> f64 {
    bound::minus_ln(super::unit(mix(z))) * inverse
}

/// A number not above `−ln u / weight` but for 2⁻³⁰ / weight; `inverse` is 2⁻⁶⁴ / weight.
///
/// It is `(1 − u) / weight`, and takes the last step of [`mix`], which changes only bits below the 34th, as done; the
/// complement comes free with a negated multiplier.
#[inline(always)]
pub(super) fn quick_bound(z: u64, inverse: f64) -> f64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb_u64.wrapping_neg());
    #[expect(clippy::cast_precision_loss, reason = "a bound, given with its error")]
    let complement = z as f64;
    complement * inverse
}
