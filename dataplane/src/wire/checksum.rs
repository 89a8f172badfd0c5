//! The Internet checksum: RFC 1071, updated incrementally as in RFC 1624.
//!
//! The sum is the one's complement sum of 16-bit words. Three properties make it cheap here:
//!
//! - It is the sum modulo 2^16 − 1, and 2^16 ≡ 1 modulo that. So a 32-bit word may be added whole: its two
//!   halves weigh the same. Sums are kept in a u64 and folded once, at the end; 2^32 words of 32 bits fit.
//! - The order of octets does not matter as long as it is the same everywhere, since swapping the octets of every
//!   word swaps those of the sum. Words are read big-endian here so that header fields can be added as numbers.
//! - A header whose fields but a few are known in advance has a sum that is known but for those few: a
//!   [`Sum`] is `Copy` and can be kept, then extended.
//!
//! An odd last octet counts as the high half of a word, so a `Sum` may be extended by slices of odd length only
//! as its last step.

/// An unfolded one's complement sum of 16-bit words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// The sum of nothing.
    pub const ZERO: Self = Self(0);

    /// Adds one 16-bit word.
    #[inline]
    #[must_use]
    pub const fn word(self, word: u16) -> Self {
        Self(self.0 + word as u64)
    }

    /// Adds a 32-bit number: two words.
    #[inline]
    #[must_use]
    pub const fn double(self, words: u32) -> Self {
        Self(self.0 + words as u64)
    }

    /// Adds octets; an odd last one is the high half of a word.
    #[inline]
    #[must_use]
    pub fn octets(self, bytes: &[u8]) -> Self {
        let (doubles, rest) = bytes.as_chunks::<4>();
        let sum = doubles.iter().fold(self, |sum, four| sum.double(u32::from_be_bytes(*four)));
        let mut last = [0; 4];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        sum.double(u32::from_be_bytes(last))
    }

    /// The sum folded to 16 bits: 0xffff over octets that contain their own right checksum.
    #[inline]
    #[must_use]
    pub const fn fold(self) -> u16 {
        let once = (self.0 >> 32) + (self.0 & 0xffff_ffff);
        let twice = (once >> 16) + (once & 0xffff);
        let thrice = (twice >> 16) + (twice & 0xffff);
        let last = (thrice >> 16) + (thrice & 0xffff);
        #[allow(clippy::cast_possible_truncation, reason = "33 bits were folded three times: 16 are left")]
        let folded = last as u16;
        folded
    }

    /// The checksum to put into the field that was summed as zero.
    #[inline]
    #[must_use]
    pub const fn checksum(self) -> u16 {
        !self.fold()
    }
}

/// The checksum of octets whose checksum field is zero.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u16 {
    Sum::ZERO.octets(bytes).checksum()
}

/// Whether octets that hold their own checksum sum to what RFC 1071 asks.
#[inline]
#[must_use]
pub fn holds(bytes: &[u8]) -> bool {
    Sum::ZERO.octets(bytes).fold() == 0xffff
}

/// The sum of the IPv6 pseudo header (RFC 8200 §8.1); `length` counts what the checksum covers.
#[must_use]
pub fn ipv6_pseudo(source: &[u8; 16], destination: &[u8; 16], length: u32, protocol: u8) -> Sum {
    Sum::ZERO.octets(source).octets(destination).double(length).word(u16::from(protocol))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 1071 §4.1, word by word with an end-around carry each time.
    fn reference(bytes: &[u8]) -> u16 {
        let mut sum: u16 = 0;
        for pair in bytes.chunks(2) {
            let word = u16::from(pair[0]) << 8 | u16::from(*pair.get(1).unwrap_or(&0));
            let (wrapped, carry) = sum.overflowing_add(word);
            sum = wrapped + u16::from(carry);
        }
        !sum
    }

    #[test]
    fn example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::ZERO.octets(&bytes).fold(), 0xddf2);
    }

    #[test]
    fn every_single_word() {
        for word in 0..=u16::MAX {
            assert_eq!(checksum(&word.to_be_bytes()), !word);
        }
    }

    #[test]
    fn folds_the_largest_sum() {
        assert_eq!(Sum(u64::MAX).fold(), 0xffff);
        assert_eq!(Sum(0xffff_ffff_0000_0001).fold(), 1);
    }

    proptest! {
        #[test]
        fn equals_the_reference(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            // 0 and 0xffff are the same number; only the sum of nothing but zeros may differ, and it does not.
            prop_assert_eq!(checksum(&bytes), reference(&bytes));
        }

        #[test]
        fn may_be_taken_in_steps(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0..200_usize) {
            let (head, tail) = bytes.split_at(at.min(bytes.len()) & !1);
            prop_assert_eq!(Sum::ZERO.octets(head).octets(tail).checksum(), checksum(&bytes));
        }
    }
}
