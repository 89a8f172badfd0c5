//! How the first nodes of a ranking are found, and why the result is exact. This module holds text only.
//!
//! # Definition
//!
//! For a key and a node of weight `w`, with `u` the [score](crate::score) as a number in (0, 1), the *cost* is
//! `−ln u / w`. It is the inverse of the [weighted score](crate::weighted_score). The ranking of the key lists the nodes
//! by ascending cost. [`Ranker`](crate::Ranker) computes it directly, with the logarithm of the `libm` crate. Every other
//! type of this crate but the skeleton must give the same result. They are faster because they compute an approximation
//! first and the definition only for the few keys where the approximation does not decide.
//!
//! # Tiers
//!
//! | tier | input | used for | the next tier decides if |
//! |---|---|---|---|
//! | 1 | 31 bits of the score, one word of 32 bits a node | every key | two neighbours among the first `k + 1` are too close |
//! | 2, one weight | all bits of the score that the slot leaves, 64-bit words | keys in doubt; sets of more than 4,096 nodes | two of them are equal |
//! | 2, several weights | bounds in double precision, then `libm`, of at most 16 contenders | keys in doubt | the intervals of two contenders overlap |
//! | 3 | the definition | the rest; sets of more than 2²⁰ nodes; weights of a ratio above 2²⁰ | |
//!
//! Tier 1 visits the nodes once and keeps the `k + 1` least words. The low bits of a word hold the number of the node's
//! *slot*, so the least words name their nodes, and no index moves beside them. For a set of `n` nodes the slot takes
//! `log₂ n` bits, rounded up.
//!
//! With several weights the word of tier 1 is a cost in single precision. Two approximations of `−ln u` exist: a
//! polynomial, which is good for every `u`, and two terms of the series, which are good for `u` near 1. The second serves
//! sets whose total weight is at least 16 times the heaviest weight: there the first few nodes have a `u` near 1.
//!
//! # Error bounds of tier 1
//!
//! Let `b` be the upper 31 bits of the score. They are `u` rounded down: `b / 2³¹ ≤ u < (b + 1) / 2³¹`.
//!
//! **Polynomial.** With `u = 2⁻ᵏ (1 − t)` and `√½ ≤ 1 − t < √2`, it computes `k ln 2 + t·p(t)`.
//! 1. The relative difference of `t·p(t)` from `−ln (1 − t)` lies between −7.07·10⁻⁶ and 7.92·10⁻⁶. This is the measured
//!    maximum over two million values of `t`, with the coefficients as single precision rounds them. It is a little more than 2⁻¹⁷ = 7.63·10⁻⁶.
//! 2. For `k ≥ 1` the sum is at least `½ ln 2`, and the term `t·p(t)` is at most that in size. So the relative difference
//!    of the sum is not greater than that of the term.
//! 3. Rounding in single precision adds a few times 2⁻²⁴. The sum of all is below 2⁻¹⁶.
//! 4. Rounding `u` down to `b / 2³¹` makes the result greater by at most `1 / b`. The polynomial is used for `b ≥ 2¹⁰`,
//!    where `−ln u ≥ 21 ln 2 − 2⁻¹⁰`: the relative effect is at most 6.8·10⁻⁵, and with point 3 less than 5·2⁻¹⁶.
//!    For smaller `b` the result is 0, which means "not known".
//! 5. For `u > √½` one step of 2⁻³¹ is counted apart, in point 7.
//!
//! **Two terms.** With `v = 1 − u` it computes `a = v + v²/2`. The remainder of the series is `r = v³/3 + v⁴/4 + …`.
//! The bound is used for `a ≤ ½`, so for `v ≤ √2 − 1`. There `r ≤ 0.34 a³`: divide both by `v³`.
//! ```text
//! r / v³      ≤ 1/3 + v/4 + v²/5 + v³/(6 (1 − v)) ≤ 0.3334 + 0.25 v + 0.2 v² + 0.285 v³
//! 0.34 a³/v³  = 0.34 (1 + v/2)³                   = 0.34 + 0.51 v + 0.255 v² + 0.0425 v³
//! difference  ≥ 0.0066 + 0.26 v + 0.055 v² − 0.2425 v³ > 0         since v³ < v
//! ```
//! A cost is `a` times the ratio of the heaviest weight to the node's, which is at least 1. So the condition and the bound
//! hold for the cost as they do for `a`.
//!
//! **Comparison.** Let `x` and `y` be the packed costs of two nodes.
//! 6. The slot replaces the low bits. All ones there give an upper limit of the approximation, all zeros a lower one.
//! 7. The true cost of the first is at most `x (1 + 2⁻¹⁶)` plus one step divided by its weight; that of the second is at
//!    least `y / (1 + 5·2⁻¹⁶)` less one step divided by its weight. The relative errors together are below
//!    6.1·2⁻¹⁶ = 9.3·10⁻⁵. The code multiplies by `1 + 2⁻¹³`, which is `1 + 1.22·10⁻⁴`, and adds two steps of the lightest node.
//! 8. If the upper limit of the first, enlarged by point 7, is below the lower limit of the second, then the first ranks
//!    before the second. If that holds for each of the first `k` and its successor, the order of tier 1 is the ranking.
//!
//! # Error bounds of tier 2
//!
//! All terms of `−ln u = v + v²/2 + v³/3 + …` are positive, so its first four terms are a lower bound. The tail from
//! `v⁵/5` on is at most `v⁵/5 · 1/(1 − v)`, which is at most `2/5 v⁵` for `v ≤ ½`: the upper bound. Both are widened by
//! 2⁻⁴⁰, far above the rounding of a few operations in double precision. Every node whose tier-1 cost may be as low as the upper limit of
//! the last wanted node is a *contender*. If the intervals of the contenders overlap, their logarithms are taken;
//! if those are within 2⁻⁴⁰ of each other too, tier 3 decides by the definition, which settles ties by id.
//!
//! # Tests
//!
//! * `cost`: both approximations against the platform's logarithm, around every power of two and at a million other
//!   values, with all widths of the slot; the share of rankings in doubt.
//! * `scan`: all instruction sets and all sizes against [`Ranker`](crate::Ranker), with weights that are equal, few, all
//!   different or extreme, and keys made so that two scores or two costs are equal or differ in the last bit.
//! * the crate's root: `Ranker` against a sort by the definition.
//! * `tests/it/vectors`: results of an independent implementation. `tests/it/quality`: statistics of shares and pairs.
//!
//! # Why three tiers
//!
//! Two passes (scores, then one fallback to the definition) would need less text. With several weights they need a
//! logarithm in double precision for every class of equal weight, which is one for each node if all weights differ. That
//! variant has not been measured.
