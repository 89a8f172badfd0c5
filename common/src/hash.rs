//! The three hash functions of the system.
//!
//! | function | for | why this one |
//! |---|---|---|
//! | [`hash_bytes`] | ranking keys and node ids | FNV-1a reads any length; its weak high bits are repaired by [`mix`] |
//! | [`mix`] | combining a key with a node | the splitmix64 finaliser: a bijection in which every input bit reaches every output bit |
//! | [`SipKey::hash`] | flows | keyed: a client who does not know the key cannot aim at one backend |
//!
//! Sources: FNV-1a, <http://www.isthe.com/chongo/tech/comp/fnv/>; splitmix64, Steele, Lea and Flood, *Fast
//! splittable pseudorandom number generators*, OOPSLA 2014, with the constants of Stafford's variant 13;
//! SipHash-2-4, Aumasson and Bernstein, *SipHash: a fast short-input PRF*, INDOCRYPT 2012.

use std::fmt;

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
/// assert_eq!(common::hash::hash_bytes(b"user:42"), 0xd68c_b863_fc5e_0c34);
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
/// use common::hash::{Prefix, hash_bytes};
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

/// A SipHash-2-4 key: secret, so it never shows in `Debug`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SipKey {
    k0: u64,
    k1: u64,
}

impl SipKey {
    /// The key as it is written in a configuration: 16 octets.
    pub const fn new(octets: [u8; 16]) -> Self {
        let both = u128::from_le_bytes(octets);
        #[expect(clippy::cast_possible_truncation, reason = "the two halves of 128 bits")]
        Self { k0: both as u64, k1: (both >> 64) as u64 }
    }

    /// The 16 octets again, for the table file and the BPF program.
    pub const fn octets(self) -> [u8; 16] {
        ((self.k0 as u128) | ((self.k1 as u128) << 64)).to_le_bytes()
    }

    /// SipHash-2-4 of `message`. The usual 8-octet output is this number in little-endian order.
    ///
    /// ```
    /// # use common::hash::SipKey;
    /// let key = SipKey::new(std::array::from_fn(|i| i as u8));
    /// assert_eq!(key.hash(b""), 0x726f_db47_dd0e_0e31); // the paper's first test vector
    /// ```
    #[inline]
    pub fn hash(self, message: &[u8]) -> u64 {
        let mut state = SipState::new(self);
        let (words, tail) = message.as_chunks::<8>();
        for word in words {
            state.compress(u64::from_le_bytes(*word));
        }
        let mut last = (message.len() as u64) << 56;
        for (i, octet) in tail.iter().enumerate() {
            last |= u64::from(*octet) << (8 * i);
        }
        state.compress(last);
        state.finish()
    }

    /// [`SipKey::hash`] of a message that is in registers already: its whole words in little-endian order, then the
    /// last word with what is left over, and the low octet of the length on top.
    #[inline]
    pub fn hash_words(self, words: &[u64], last: u64) -> u64 {
        let mut state = SipState::new(self);
        for word in words {
            state.compress(*word);
        }
        state.compress(last);
        state.finish()
    }
}

impl fmt::Debug for SipKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SipKey(secret)")
    }
}

/// SipHash between two words of a message. Its steps are always inlined: loops over them are to become vectors.
#[derive(Clone, Copy)]
pub(crate) struct SipState {
    pub(crate) v0: u64,
    pub(crate) v1: u64,
    pub(crate) v2: u64,
    pub(crate) v3: u64,
}

impl SipState {
    #[inline(always)]
    pub(crate) const fn new(key: SipKey) -> Self {
        Self {
            v0: key.k0 ^ 0x736f_6d65_7073_6575,
            v1: key.k1 ^ 0x646f_7261_6e64_6f6d,
            v2: key.k0 ^ 0x6c79_6765_6e65_7261,
            v3: key.k1 ^ 0x7465_6462_7974_6573,
        }
    }

    #[inline(always)]
    const fn round(&mut self) {
        self.v0 = self.v0.wrapping_add(self.v1);
        self.v2 = self.v2.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(13) ^ self.v0;
        self.v3 = self.v3.rotate_left(16) ^ self.v2;
        self.v0 = self.v0.rotate_left(32);
        self.v2 = self.v2.wrapping_add(self.v1);
        self.v0 = self.v0.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(17) ^ self.v2;
        self.v3 = self.v3.rotate_left(21) ^ self.v0;
        self.v2 = self.v2.rotate_left(32);
    }

    #[inline(always)]
    const fn compress(&mut self, word: u64) {
        self.v3 ^= word;
        self.round();
        self.round();
        self.v0 ^= word;
    }

    #[inline(always)]
    pub(crate) const fn compressed(mut self, word: u64) -> Self {
        self.compress(word);
        self
    }

    #[inline(always)]
    pub(crate) const fn finish(mut self) -> u64 {
        self.v2 ^= 0xff;
        self.round();
        self.round();
        self.round();
        self.round();
        self.v0 ^ self.v1 ^ self.v2 ^ self.v3
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::hash::Hasher;

    #[test]
    fn mix_is_a_bijection_on_a_sample() {
        for z in (0..10_000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
            assert_eq!(unmix(mix(z)), z);
        }
    }

    #[test]
    fn a_key_never_shows_in_debug() {
        let key = SipKey::new([0xab; 16]);
        assert_eq!(format!("{key:?}"), "SipKey(secret)");
        assert_eq!(key.octets(), [0xab; 16]);
    }

    proptest! {
        #[test]
        fn sip_equals_the_siphasher_crate(key: [u8; 16], message in prop::collection::vec(any::<u8>(), 0..80)) {
            let mut reference = siphasher::sip::SipHasher24::new_with_key(&key);
            reference.write(&message);
            prop_assert_eq!(SipKey::new(key).hash(&message), reference.finish());
        }
    }
}
