//! Bounds of weighted scores that need no logarithm.
//!
//! A node's *cost* is `−ln u / weight`, the inverse of its weighted score: the least cost ranks first. With
//! `v = 1 − u`,
//!
//! ```text
//! v  ≤  v + v²/2 + v³/3 + v⁴/4  ≤  −ln u  ≤  v + v²/2 + v³/3 + v⁴/4 + ⅖ v⁵      (the last for v ≤ ½)
//! ```
//!
//! by the series of the logarithm, all of whose terms are positive; its tail from `v⁵/5` is at most that term times
//! `1 / (1 − v) ≤ 2`. The first bound costs one multiplication and sees for most keys that a newcomer is not among the
//! first. The few nodes that may be, the *finalists*, get both of the others; among a hundred nodes the winners have `v`
//! near 0.01, where the two differ by one part in 10⁸. Only if they overlap is the logarithm taken, and if even that does
//! not tell two finalists apart beyond doubt, the whole ranking is made in the defined way.

use super::weighted_score;
use crate::hash::mix_complement;

/// Relative room for rounding: that of the handful of operations below and of [`weighted_score`] is under 2⁻⁴⁹.
const ROUNDING: f64 = 1.0 / 1_099_511_627_776.0; // 2⁻⁴⁰
/// Relative room for a [`quick_bound`].
pub(super) const QUICK: f64 = 1.0 / 1_073_741_824.0; // 2⁻³⁰

const TWO_POW_64: f64 = 18_446_744_073_709_551_616.0;

/// Can weights of this range be bounded without overflow or loss of precision?
pub(super) fn covers(lightest: f64, heaviest: f64) -> bool {
    lightest > 1e-200 && heaviest < 1e200
}

/// 2⁻⁶⁴ / weight.
pub(super) fn inverse(weight: f64) -> f64 {
    1.0 / TWO_POW_64 / weight
}

/// A number not above `−ln u / weight` but for 2⁻³⁰ / weight; `inverse` is 2⁻⁶⁴ / weight.
///
/// It is `(1 − u) / weight`, for the score that [`mix`](crate::hash::mix) makes of `z` but for its last step.
#[inline(always)]
pub(super) fn quick_bound(z: u64, inverse: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a bound, given with its error")]
    let complement = mix_complement(z) as f64;
    complement * inverse
}

/// The most that a quick bound may lie above the cost, by the missing last step of `mix` and the rounding of `u`.
pub(super) fn slack(weight: f64) -> f64 {
    QUICK / weight
}

/// `1 + v/2 + v²/3 + v³/4`.
#[inline(always)]
fn series(v: f64) -> f64 {
    1.0 + v * (1.0 / 2.0 + v * (1.0 / 3.0 + v * (1.0 / 4.0)))
}

/// Bounds of a node's cost, the upper one infinite for the lower half of scores; `inverse` is 2⁻⁶⁴ / weight.
#[inline(always)]
pub(super) fn bounds(score: u64, inverse: f64) -> (f64, f64) {
    let v = 1.0 - super::unit(score);
    let least = v * series(v);
    let most = if v > 0.5 { f64::INFINITY } else { least + 0.4 * (v * v) * (v * v) * v };
    let inverse = inverse * TWO_POW_64;
    (least * inverse * (1.0 - ROUNDING), most * inverse * (1.0 + ROUNDING))
}

/// A node that may be among the first, and what is known of its cost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Finalist {
    pub(super) slot: usize,
    pub(super) score: u64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Finalist {
    /// By bounds alone.
    #[inline]
    pub(super) fn new(slot: usize, score: u64, weight: f64) -> Self {
        let (least, most) = bounds(score, inverse(weight));
        Self { slot, score, least, most }
    }

    /// Takes the logarithm.
    fn sharpen(&mut self, weight: f64) {
        let cost = 1.0 / weighted_score(self.score, weight);
        self.least = cost * (1.0 - ROUNDING);
        self.most = cost * (1.0 + ROUNDING);
    }
}

/// Sorts finalists by cost; false if it is not beyond doubt that the first `k` are the first of all of them, in this
/// order. `weight` gives that of a slot.
#[inline]
pub(super) fn decide(finalists: &mut [Finalist], k: usize, weight: impl Fn(usize) -> f64) -> bool {
    sort(finalists);
    separated(finalists, k) || decide_sharply(finalists, k, weight)
}

#[cold]
fn decide_sharply(finalists: &mut [Finalist], k: usize, weight: impl Fn(usize) -> f64) -> bool {
    finalists.iter_mut().for_each(|finalist| finalist.sharpen(weight(finalist.slot)));
    sort(finalists);
    separated(finalists, k)
}

#[inline]
fn sort(finalists: &mut [Finalist]) {
    // Insertion, since they come nearly sorted and are few.
    for end in 1..finalists.len() {
        for index in (0..end).rev() {
            let Some([a, b]) = finalists.get_mut(index..index + 2) else { return };
            if a.least <= b.least {
                break;
            }
            core::mem::swap(a, b);
        }
    }
}

/// Does each of the first `k` beyond doubt cost less than the next? Nobody comes after the last.
#[inline]
fn separated(finalists: &[Finalist], k: usize) -> bool {
    finalists.iter().zip(finalists.iter().skip(1)).take(k).all(|(this, next)| this.most < next.least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::{mix, unmix};

    #[test]
    fn quick_bounds_are_bounds() {
        let extremes = [0, 1, u64::MAX, u64::MAX - 1, 1 << 33, !(1 << 33)];
        for score in extremes.into_iter().chain((1..=10_000).map(mix)) {
            for weight in [1e-3, 1.0, 7.0, 1e9] {
                let quick = quick_bound(unmix(score), inverse(weight));
                let cost = 1.0 / weighted_score(score, weight);
                assert!(quick * (1.0 - f64::EPSILON) <= cost + slack(weight), "{score:x} {weight}");
                let (least, most) = bounds(score, inverse(weight));
                assert!(least <= cost && cost <= most, "{score:x} {weight} {least} {most}");
                assert!(most.is_infinite() || most - least <= cost * 0.05);
            }
        }
    }
}
