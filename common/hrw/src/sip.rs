//! SipHash-2-4, for GLB Director's ranking.
//!
//! J.-P. Aumasson and D. J. Bernstein, *SipHash: a fast short-input PRF*, INDOCRYPT 2012. The function is published and
//! fixed; a test compares this code with the `siphasher` crate.

/// A SipHash-2-4 key. It may be secret, so it never shows in `Debug`.
#[derive(Clone, Copy)]
pub(crate) struct SipKey {
    k0: u64,
    k1: u64,
}

impl SipKey {
    /// The key from its 16 octets.
    pub(crate) const fn new(octets: [u8; 16]) -> Self {
        let both = u128::from_le_bytes(octets);
        #[expect(clippy::cast_possible_truncation, reason = "the two halves of 128 bits")]
        Self { k0: both as u64, k1: (both >> 64) as u64 }
    }

    /// SipHash-2-4 of `message`. The usual 8-octet output is this number in little-endian order.
    #[inline]
    pub(crate) fn hash(self, message: &[u8]) -> u64 {
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
}

impl core::fmt::Debug for SipKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
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
    use core::hash::Hasher;
    use proptest::prelude::*;

    #[test]
    fn a_key_never_shows_in_debug() {
        assert_eq!(format!("{:?}", SipKey::new([0xab; 16])), "SipKey(secret)");
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
