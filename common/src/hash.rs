//! The hash functions that both programs share.
//!
//! | function | for | why this one |
//! |---|---|---|
//! | [`mix`] | spreading words over the cells of a table in memory | the splitmix64 finaliser: a bijection in which every input bit reaches every output bit |
//! | [`SipKey::hash`] | flows | keyed: a client who does not know the key cannot aim at one backend |
//!
//! The hash functions of rendezvous hashing are in the crate `tryst-hrw`, which `common` does not use. `mix` and
//! SipHash-2-4 are published functions and stand in both crates; the same vectors pin both.
//!
//! Sources: splitmix64, Steele, Lea and Flood, *Fast splittable pseudorandom number generators*, OOPSLA 2014, with the
//! constants of Stafford's variant 13; SipHash-2-4, Aumasson and Bernstein, *SipHash: a fast short-input PRF*,
//! INDOCRYPT 2012.

use std::fmt;

/// The splitmix64 finaliser (Stafford's variant 13): a bijection of 64-bit words.
#[inline]
pub const fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
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

/// SipHash between two words of a message.
#[derive(Clone, Copy)]
struct SipState {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
}

impl SipState {
    #[inline(always)]
    const fn new(key: SipKey) -> Self {
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
    const fn finish(mut self) -> u64 {
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
