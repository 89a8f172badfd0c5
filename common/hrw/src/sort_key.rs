//! What nodes are scanned by.

use super::cost::{MinusLn, upper_bits};
use crate::hash::mix;
use core::marker::PhantomData;

/// A word whose order is that of a ranking, and whose low bits give way to the node's slot.
pub(super) trait SortKey {
    type Word: Word;
    /// Does it take only a few steps from the bits?
    const IS_SHORT: bool;

    /// What the sort key is made of, from a node's seed in a key. Apart from the rest, so that words of 64 and of 32 bits
    /// have loops of their own and fill their vectors.
    fn bits(z: u64) -> Self::Word;

    /// The sort key with the slot in it. `inverse` is 1 / weight where weights differ.
    fn packed(&self, bits: Self::Word, inverse: f32, slot: u64) -> Self::Word;
}

/// An unsigned number whose low bits may be replaced.
pub(super) trait Word: Copy + Ord {
    const MAX: Self;

    /// The number with `slot` in the bits of `mask`.
    fn pack(self, mask: Self, slot: u64) -> Self;
}

impl Word for u64 {
    const MAX: Self = Self::MAX;

    #[inline(always)]
    fn pack(self, mask: Self, slot: u64) -> Self {
        (self & !mask) | slot
    }
}

impl Word for u32 {
    const MAX: Self = Self::MAX;

    #[inline(always)]
    fn pack(self, mask: Self, slot: u64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "the mask is of 32 bits, and holds all slots")]
        let slot = slot as Self;
        (self & !mask) | slot
    }
}

/// By the complement of the score.
pub(super) struct Score {
    pub(super) mask: u64,
}

impl SortKey for Score {
    type Word = u64;
    const IS_SHORT: bool = true;

    #[inline(always)]
    fn bits(z: u64) -> u64 {
        mix(z)
    }

    #[inline(always)]
    fn packed(&self, score: u64, _: f32, slot: u64) -> u64 {
        (!score).pack(self.mask, slot)
    }
}

/// By the complement of the score's upper bits.
pub(super) struct Top {
    pub(super) mask: u32,
}

impl SortKey for Top {
    type Word = u32;
    const IS_SHORT: bool = true;

    #[inline(always)]
    fn bits(z: u64) -> u32 {
        upper_bits(z)
    }

    #[inline(always)]
    fn packed(&self, top: u32, _: f32, slot: u64) -> u32 {
        (!top).pack(self.mask, slot)
    }
}

/// By cost.
pub(super) struct Cost<L> {
    mask: u32,
    logarithm: PhantomData<L>,
}

impl<L> Cost<L> {
    pub(super) const fn new(mask: u32) -> Self {
        Self { mask, logarithm: PhantomData }
    }
}

impl<L: MinusLn> SortKey for Cost<L> {
    type Word = u32;
    const IS_SHORT: bool = false;

    #[inline(always)]
    fn bits(z: u64) -> u32 {
        L::bits(z)
    }

    #[inline(always)]
    fn packed(&self, bits: u32, inverse: f32, slot: u64) -> u32 {
        (L::minus_ln(bits) * inverse).to_bits().pack(self.mask, slot)
    }
}
