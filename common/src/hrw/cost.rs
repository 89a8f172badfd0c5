//! Costs in single precision, which tell the first few from all others in nearly every ranking.
//!
//! A node's *cost* is `−ln u / weight`, the inverse of its weighted score: the least cost ranks first. To find the few of
//! least cost, and to see beyond doubt that they are these and in this order, a short logarithm of the upper 31
//! bits of `u` is enough in all but a few rankings of ten thousand. Those are decided among the *contenders*, which
//! are all nodes that may cost as little as the few, by [bounds](super::bound) in double precision or by the definition.

use super::set::Slot;
use crate::hash::{mix_complement, mix_unfinished};

/// How the costs of a set of nodes are taken and compared. The unit is the cost of the heaviest node where `−ln u` is 1.
#[derive(Clone, Debug)]
pub(super) struct Costs {
    /// The low bits of a cost that give way to its slot.
    pub(super) mask: u32,
    pub(super) logarithm: Logarithm,
    /// What a step of `u` makes of the lightest node's cost at most.
    slack: f32,
    /// Above 1 by the relative errors of two costs, and by what the slot takes from one.
    doubt: f32,
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

    /// With the inverse weight of each slot; none if weights are too far apart.
    pub(super) fn new(mask: u32, slots: &[Slot], lightest: f64, heaviest: f64) -> Option<(Self, Vec<f32>)> {
        let farthest = heaviest / lightest;
        let in_range = farthest <= Self::FARTHEST;
        if !in_range {
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
        #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "rounded")]
        let costs = Self {
            mask,
            logarithm,
            slack: 2.0 * STEP * farthest as f32,
            doubt: 1.0 + 1.0 / 8_192.0 + f32::EPSILON * (mask as f32 + 1.0),
        };
        Some((costs, inverses))
    }

    /// Does the node of the first packed cost beyond doubt rank before the node of the second?
    #[inline(always)]
    pub(super) fn are_apart(&self, this: u32, next: u32) -> bool {
        self.most(this) < self.cost(next)
    }

    /// What no node's cost is above that ranks before the one with this packed cost; infinite if that is not known.
    #[inline(always)]
    pub(super) fn most(&self, packed: u32) -> f32 {
        let cost = self.cost(packed);
        let (most, known) = match self.logarithm {
            Logarithm::Polynomial => (cost, cost > 0.0),
            // What is left out is v³/3 + v⁴/4 + …, and v is at most the cost.
            Logarithm::TwoTerms => (cost * (1.0 + 0.34 * cost * cost), cost > 0.0 && cost <= 0.5),
        };
        if known { most * self.doubt + self.slack } else { f32::INFINITY }
    }

    #[inline(always)]
    fn cost(&self, packed: u32) -> f32 {
        f32::from_bits(packed & !self.mask)
    }
}

/// An approximation of `−ln u`.
pub(super) trait MinusLn {
    /// What it takes of the score that [`mix`](crate::hash::mix) makes of `z`.
    fn bits(z: u64) -> u32;

    fn minus_ln(bits: u32) -> f32;
}

/// Good for every `u`: right to 2⁻¹⁶ of itself, and to two steps more above √½; below, it may be 2⁻¹³ of itself more than it is, since
/// `u` is rounded down. It is 0 for the least `u`, where that would be yet more.
///
/// With `u = 2⁻ᵏ·(1 − t)` and `1 − t` between √½ and √2, `−ln (1 − t)` is `t·p(t)`, where of all polynomials of the fifth degree
/// `p` is the one of least relative error, 2⁻¹⁷ (by Remez's algorithm).
pub(super) struct Polynomial;

impl MinusLn for Polynomial {
    #[inline(always)]
    fn bits(z: u64) -> u32 {
        upper_bits(z)
    }

    #[inline(always)]
    fn minus_ln(bits: u32) -> f32 {
        const ONE: u32 = 1.0f32.to_bits();
        const SQRT_HALF: u32 = std::f32::consts::FRAC_1_SQRT_2.to_bits();
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
        let minus_ln = k * std::f32::consts::LN_2 + t * (1.000_005 + t * p);
        if bits < LEAST { 0.0 } else { minus_ln }
    }
}

/// `v + v²/2` in steps, where `v = 1 − u`: the first terms of `−ln u`, all of which are positive. Where nodes are many,
/// the first few have a `u` near 1, and the rest need only be seen to cost more.
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
            let steps = if f64::from(bits) / STEPS > 0.7072 { 2.0 / STEPS } else { 0.0 };
            assert!(most <= is * (1.0 + 2f64.powi(-16)) + steps, "{bits:x}: {is} {most}");
            assert!(is <= least * (1.0 + 2f64.powi(-13)), "{bits:x}: {is} {least}");
            assert!(bits < 1 << 20 || is <= most * (1.0 + 2f64.powi(-16)), "{bits:x}: {is} {most}");
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
            let bound = is * (1.0 + 0.34 * is * is) * (1.0 + 2f64.powi(-22)) + 2.0 / STEPS;
            assert!(is > 0.5 || most <= bound, "{bits:x}: {is} {most}");
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
