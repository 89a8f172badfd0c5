//! Costs in single precision, which tell the first few from all others in nearly every ranking.
//!
//! A node's *cost* is `−ln u / weight`, the inverse of its weighted score: the least cost ranks first. To find the few of
//! least cost, and to see beyond doubt that they are these and in this order, a short logarithm of the upper 31
//! bits of `u` is enough in all but a few rankings of ten thousand. Those are decided among the *contenders*, which
//! are all nodes that may cost as little as the few, by [bounds](super::bound) in double precision or by the definition.

use super::bound;
use super::set::Slot;
use crate::hash::{mix_complement, mix_unfinished};
use alloc::vec::Vec;

/// How the costs of a set of nodes are taken and compared. The unit is the cost of the heaviest node where `−ln u` is 1.
#[derive(Clone, Debug)]
pub(super) struct Costs {
    /// The low bits of a cost that give way to its slot.
    pub(super) mask: u32,
    pub(super) logarithm: Logarithm,
    /// Two steps of `u` in the lightest node's cost: one node's logarithm may be a step too little, another's a step too great.
    slack: f32,
}

/// Which approximation of `−ln u` serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Logarithm {
    /// [`Polynomial`].
    Polynomial,
    /// [`TwoTerms`].
    TwoTerms,
}

/// A step of `u`: its upper 31 bits are looked at.
const STEP: f32 = 1.0 / 2_147_483_648.0;

impl Costs {
    /// From so many nodes on, each counted by its part of the heaviest one's weight, two terms do for the first few.
    const MANY: f64 = 16.0;
    /// The most that weights may differ by: beyond, a step of the lightest node is too much for the heaviest.
    const FARTHEST: f64 = 1_048_576.0;
    /// Above 1 by more than the relative errors of two costs together: the approximations', and a few roundings of 2⁻²⁴.
    const DOUBT: f32 = 1.0 + 1.0 / 8_192.0;

    /// With the inverse weight of each slot; none if weights are too far apart, or so great or small that weighted scores
    /// overflow or lose precision, and the order of costs is not theirs.
    pub(super) fn new(mask: u32, slots: &[Slot], lightest: f64, heaviest: f64) -> Option<(Self, Vec<f32>)> {
        let farthest = heaviest / lightest;
        if farthest > Self::FARTHEST || !bound::covers(lightest, heaviest) {
            return None;
        }
        let heaviest_nodes: f64 = slots.iter().map(|slot| slot.weight / heaviest).sum();
        let logarithm = if heaviest_nodes < Self::MANY { Logarithm::Polynomial } else { Logarithm::TwoTerms };
        let unit = match logarithm {
            Logarithm::Polynomial => 1.0,
            Logarithm::TwoTerms => f64::from(STEP),
        };
        #[expect(clippy::cast_possible_truncation, reason = "between 2⁻³¹ and 2²⁰")]
        let inverses = slots.iter().map(|slot| (heaviest / slot.weight * unit) as f32).collect();
        #[expect(clippy::cast_possible_truncation, reason = "rounded")]
        let slack = 2.0 * STEP * farthest as f32;
        Some((Self { mask, logarithm, slack }, inverses))
    }

    /// Does the node of the first packed cost beyond doubt rank before the node of the second?
    #[inline(always)]
    pub(super) fn are_apart(&self, this: u32, next: u32) -> bool {
        self.most(this) < self.least(next)
    }

    /// What no node's cost is above that ranks before the one with this packed cost; infinite if that is not known.
    #[inline(always)]
    pub(super) fn most(&self, packed: u32) -> f32 {
        let cost = f32::from_bits(packed | self.mask);
        let (most, known) = match self.logarithm {
            Logarithm::Polynomial => (cost, true),
            // What is left out is v³/3 + v⁴/4 + …, which is less than 0.34 (v + v²/2)³ up to v = ¾.
            Logarithm::TwoTerms => (cost * (1.0 + 0.34 * cost * cost), cost <= 0.5),
        };
        if known && self.least(packed) > 0.0 { most * Self::DOUBT + self.slack } else { f32::INFINITY }
    }

    /// The packed cost without its slot.
    #[inline(always)]
    fn least(&self, packed: u32) -> f32 {
        f32::from_bits(packed & !self.mask)
    }
}

/// An approximation of `−ln u`.
pub(super) trait MinusLn {
    /// What it takes of the score that [`mix`](crate::hash::mix) makes of `z`.
    fn bits(z: u64) -> u32;

    fn minus_ln(bits: u32) -> f32;
}

/// Good for every `u`: at most 2⁻¹⁶ of itself too little, and a step more above √½; and at most as much too great, or 5·2⁻¹⁶ for
/// a `u` so small that to round it down tells. It is 0 for the least `u`, where that would be yet more.
///
/// With `u = 2⁻ᵏ·(1 − t)` and `1 − t` between √½ and √2, `−ln (1 − t)` is `t·p(t)`, where of all polynomials of the fifth degree
/// `p` is the one of least relative error (by Remez's algorithm). Its greatest
/// measured error is 7.92·10⁻⁶, a little more than 2⁻¹⁷.
pub(super) struct Polynomial;

impl MinusLn for Polynomial {
    #[inline(always)]
    fn bits(z: u64) -> u32 {
        upper_bits(z)
    }

    #[inline(always)]
    fn minus_ln(bits: u32) -> f32 {
        const ONE: u32 = 1.0f32.to_bits();
        const SQRT_HALF: u32 = core::f32::consts::FRAC_1_SQRT_2.to_bits();
        /// The exponent of 2³¹.
        const EXPONENT: u32 = 127 + 31;
        /// Below it a step is more than 2⁻¹⁰ of `u`, and 2⁻¹³ of the logarithm.
        const LEAST: u32 = 1 << 10;
        let u = float(bits);
        let exponent = u.to_bits().wrapping_sub(SQRT_HALF).wrapping_add(ONE) >> 23;
        let m = f32::from_bits(u.to_bits().wrapping_sub(exponent << 23).wrapping_add(ONE));
        let k = float(EXPONENT.wrapping_sub(exponent));
        // Near 1 the difference from it is still exact in the complement, and no longer in `u`.
        let t = if exponent == EXPONENT { float(bits ^ 0x7fff_ffff) * STEP } else { 1.0 - m };
        let p = 0.499_902 + t * (0.332_58 + t * (0.254_033 + t * (0.220_559 + t * 0.142_921)));
        let minus_ln = k * core::f32::consts::LN_2 + t * (1.000_005 + t * p);
        if bits < LEAST { 0.0 } else { minus_ln }
    }
}

/// `v + v²/2` in steps, where `v = 1 − u`: the first terms of `−ln u`, all of which are positive. Where nodes are many,
/// the first few have a `u` near 1, and the rest need only be seen to cost more. It is a step too great in one case of 2³³,
/// and while it is below ½, a step too little at most, beside the terms that are left out.
pub(super) struct TwoTerms;

impl MinusLn for TwoTerms {
    #[inline(always)]
    fn bits(z: u64) -> u32 {
        upper_bits_of_complement(z)
    }

    #[inline(always)]
    fn minus_ln(bits: u32) -> f32 {
        let v = float(bits);
        v * (1.0 + STEP / 2.0 * v)
    }
}

/// The upper 31 bits of the score that [`mix`](crate::hash::mix) makes of `z`: `u` in steps, rounded down.
#[inline(always)]
pub(super) fn upper_bits(z: u64) -> u32 {
    (mix_unfinished(z) >> 33) as u32
}

/// `1 − u` in steps, rounded down; but rounded up where the lower 33 bits are 0 before the last step of
/// [`mix`](crate::hash::mix), and 0 for the score 0.
#[inline(always)]
fn upper_bits_of_complement(z: u64) -> u32 {
    (mix_complement(z) >> 33) as u32
}

/// A number of at most 31 bits, rounded: signed, as every instruction set can convert it.
#[inline(always)]
#[expect(clippy::cast_precision_loss, clippy::cast_possible_wrap, reason = "31 bits, rounded")]
fn float(number: u32) -> f32 {
    number as i32 as f32
}

#[cfg(test)]
mod tests {
    use super::super::set::Scan;
    use super::super::sort_key::{Cost, SortKey};
    use super::super::{Node, NodeSet, simd};
    use super::*;
    use crate::hash::mix;

    const STEPS: f64 = 2_147_483_648.0;

    /// Both ends of the range, all around powers of two and √½, and a million others.
    fn samples() -> impl Iterator<Item = u32> {
        let around =
            |centre: u32| (centre.saturating_sub(300)..centre.saturating_add(300)).filter(|n| n >> 31 == 0);
        let marks = (0..32).map(|bit| 1u32.checked_shl(bit).unwrap_or(0)).chain([
            0,
            0x7fff_ffff,
            0x5a82_799a,
            0x2d41_3ccd,
        ]);
        marks.flat_map(around).chain((0..1_000_000).map(|i| u32::try_from(mix(i) >> 33).unwrap()))
    }

    /// Against the platform's logarithm, which is right to a unit or two in the last place.
    #[test]
    fn the_polynomial_is_as_near_as_it_says() {
        for bits in samples().filter(|bits| *bits >= 1 << 10) {
            let is = f64::from(Polynomial::minus_ln(bits));
            let (most, least) = (-(f64::from(bits) / STEPS).ln(), -((f64::from(bits) + 1.0) / STEPS).ln());
            let steps = if f64::from(bits) / STEPS > 0.7072 { 1.001 / STEPS } else { 0.0 };
            assert!(most <= is * (1.0 + 2f64.powi(-16)) + steps, "{bits:x}: {is} {most}");
            assert!(is <= least * (1.0 + 5.0 * 2f64.powi(-16)), "{bits:x}: {is} {least}");
            assert!(bits < 1 << 20 || is <= least * (1.0 + 2f64.powi(-16)), "{bits:x}: {is} {most}");
        }
        assert!((0..1 << 10).all(|bits| Polynomial::minus_ln(bits) == 0.0));
    }

    #[test]
    fn two_terms_are_never_more_and_little_less_near_one() {
        for bits in samples() {
            let is = f64::from(TwoTerms::minus_ln(bits)) / STEPS;
            let (least, most) =
                (-(-f64::from(bits) / STEPS).ln_1p(), -(-(f64::from(bits) + 1.0) / STEPS).ln_1p());
            assert!(is <= least * (1.0 + 2f64.powi(-22)), "{bits:x}: {is} {least}");
            let bound = is * (1.0 + 0.34 * is * is) * (1.0 + 2f64.powi(-22)) + 1.001 / STEPS;
            assert!(is > 0.5 || most <= bound, "{bits:x}: {is} {most}");
        }
    }

    /// However much of it the slot takes.
    #[test]
    fn a_packed_cost_bounds_the_cost() {
        let (polynomial, two_terms) = (Cost::<Polynomial>::new, Cost::<TwoTerms>::new);
        for mask in [0, 1, 127, 4_095, 1_048_575] {
            let of = |logarithm| Costs { mask, logarithm, slack: 2.0 * STEP };
            for bits in samples() {
                let assert_bounds = |costs: Costs, packed: u32, u: f64| {
                    let (least, most) = (-(u + 1.0 / STEPS).ln(), -u.ln());
                    let (below, above) = (f64::from(costs.least(packed)), f64::from(costs.most(packed)));
                    assert!(most <= above, "{bits:x}, {mask:x}: {most} {above}");
                    assert!(below <= least * f64::from(Costs::DOUBT), "{bits:x}, {mask:x}: {least} {below}");
                };
                let packed = polynomial(mask).packed(bits, 1.0, 0);
                assert_bounds(of(Logarithm::Polynomial), packed, f64::from(bits) / STEPS);
                let packed = two_terms(mask).packed(bits, STEP, 0);
                assert_bounds(of(Logarithm::TwoTerms), packed, 1.0 - (f64::from(bits) + 1.0) / STEPS);
            }
        }
    }

    #[test]
    fn bits_are_those_of_the_score() {
        for z in (0..100_000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).chain([0, 1, u64::MAX]) {
            assert_eq!(u64::from(upper_bits(z)), mix(z) >> 33);
            let complement = 0x7fff_ffff - upper_bits(z);
            assert!(upper_bits_of_complement(z).wrapping_sub(complement) <= 1 || z == 0);
        }
    }

    #[test]
    fn what_is_not_known_bounds_nothing() {
        let weights =
            |count| (1..=count).map(|i| Node::weighted(format!("{i}"), 1.0 + f64::from(i) / 100.0).unwrap());
        for (count, most_known) in [(3, 1e6), (50, 0.5)] {
            let set = NodeSet::new(&weights(count).collect::<Vec<_>>());
            let Scan::Costs(costs) = &set.scan else { panic!("weights differ") };
            assert_eq!(costs.most(costs.mask), f32::INFINITY, "no cost but a slot");
            assert!(costs.most(f32::to_bits(most_known * 0.99)).is_finite());
            assert_eq!(costs.most(f32::to_bits(most_known * 1.01)).is_finite(), count == 3);
        }
    }

    /// What single precision leaves in doubt costs a second pass: it has to be rare.
    #[test]
    fn few_rankings_are_left_in_doubt() {
        for (count, most) in [(3, 20), (10, 20), (20, 20), (40, 200), (100, 40), (1_000, 40), (4_000, 120)] {
            let weight = |i: u32| 1.0 + f64::from(i * 7919 % 1009) / 331.0;
            let nodes: Vec<Node> =
                (0..count).map(|i| Node::weighted(format!("node-{i}"), weight(i)).unwrap()).collect();
            let set = NodeSet::new(&nodes);
            let Scan::Costs(costs) = &set.scan else { panic!("weights differ") };
            let in_doubt = |key: &u64| {
                let [first, second, third] = simd::nodes_by_cost::<3>(set.isa, costs, &set.nodes, *key);
                !(costs.are_apart(first, second) && costs.are_apart(second, third))
            };
            let doubts = (0..10_000).map(mix).filter(in_doubt).count();
            assert!(doubts <= most, "{count} nodes: {doubts} of 10,000 rankings");
        }
    }
}
