//! The hash functions of a ranking.
//!
//! [`hash_bytes`] turns a key or a node's id into a word: FNV-1a over its octets, then [`mix`]. [`mix`] combines the word
//! of a key with the word of a node: it is the finaliser of splitmix64, a bijection in which every input bit reaches
//! every output bit.
//!
//! Both are fixed for good: scores, and so the owners of keys, follow from them.
//!
//! Sources: FNV-1a, <http://www.isthe.com/chongo/tech/comp/fnv/>; splitmix64, Steele, Lea and Flood, *Fast
//! splittable pseudorandom number generators*, OOPSLA 2014, with the constants of Stafford's variant 13.

/// FNV-1a offset basis and prime for 64 bits.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// The splitmix64 finaliser (Stafford's variant 13): a bijection of 64-bit words.
#[inline]
pub const fn mix(z: u64) -> u64 {
    let z = mix_unfinished(z);
    z ^ (z >> 31)
}

/// [`mix`] but for its last step, which changes only the lower 33 bits.
#[inline(always)]
pub(crate) const fn mix_unfinished(z: u64) -> u64 {
    mix_until_last(z, MIX_SECOND)
}

/// 2⁶⁴ less [`mix_unfinished`], or 0 for 0: the negated multiplier gives it free.
#[inline(always)]
pub(crate) const fn mix_complement(z: u64) -> u64 {
    mix_until_last(z, MIX_SECOND.wrapping_neg())
}

const MIX_SECOND: u64 = 0x94d0_49bb_1331_11eb;

#[inline(always)]
const fn mix_until_last(z: u64, second: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (z ^ (z >> 27)).wrapping_mul(second)
}

/// [`mix`] backwards.
#[cfg(test)]
pub(crate) fn unmix(z: u64) -> u64 {
    let unshift = |z: u64, by: u32| (0..=64 / by).fold(z, |acc, _| z ^ (acc >> by));
    let z = unshift(z, 31).wrapping_mul(0x3196_42b2_d24d_8ec3);
    let z = unshift(z, 27).wrapping_mul(0x96de_1b17_3f11_9089);
    unshift(z, 30)
}

/// FNV-1a, 64 bits, then [`mix`].
///
/// Without the finaliser FNV leaves its high bits to the last octets: over 65,536 rows and ten nodes the fullest
/// node then gets five to ten times its share.
///
/// ```
/// assert_eq!(tryst_hrw::hash::hash_bytes(b"user:42"), 0xd68c_b863_fc5e_0c34);
/// ```
#[inline]
pub const fn hash_bytes(bytes: &[u8]) -> u64 {
    mix(fnv(FNV_OFFSET, bytes))
}

#[inline]
const fn fnv(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut rest = bytes;
    while let [octet, tail @ ..] = rest {
        hash = (hash ^ *octet as u64).wrapping_mul(FNV_PRIME);
        rest = tail;
    }
    hash
}

/// The beginning that many messages share, hashed once.
///
/// ```
/// use tryst_hrw::hash::{Prefix, hash_bytes};
/// assert_eq!(Prefix::new(b"user:").hash(b"42"), hash_bytes(b"user:42"));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Prefix(u64);

impl Prefix {
    /// Hashes the beginning.
    #[inline]
    pub const fn new(bytes: &[u8]) -> Self {
        Self(fnv(FNV_OFFSET, bytes))
    }

    /// [`hash_bytes`] of the beginning followed by `rest`.
    #[inline]
    pub const fn hash(self, rest: &[u8]) -> u64 {
        mix(fnv(self.0, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mix_is_a_bijection_on_a_sample() {
        for z in (0..10_000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
            assert_eq!(unmix(mix(z)), z);
        }
    }
}
