//! The Internet checksum: RFC 1071, updated incrementally as in RFC 1624.
//!
//! The sum is the one's complement sum of 16-bit words. Three properties make it cheap here:
//!
//! - It is the sum modulo 2^16 − 1, and 2^16 ≡ 1 modulo that. So a 32-bit word can be added whole: both
//!   halves have the same weight. Sums are kept in a u64 and folded once, at the end; 2^32 words of 32 bits
//!   fit.
//! - The order of octets in a word does not matter as long as it is the same everywhere: swapping the octets
//!   of every word swaps those of the sum. Words are read big-endian here so that header fields can be added
//!   as numbers.
//! - If most fields of a header are known in advance, their sum can be computed in advance: a [`Sum`] is
//!   `Copy` and can be kept and extended later.
//!
//! An odd last octet counts as the high half of a word, so a `Sum` may be extended by slices of odd length
//! only as its last step.
//!
//! **The two zeros.** In one's complement 0x0000 and 0xffff are the same number. A sum over octets that are
//! not all zero is never 0x0000, because addition with end-around carry gives 0 only for 0 + 0. A sum over
//! zeros only is 0x0000, and its checksum is 0xffff. A receiver that sums a message with its checksum expects
//! 0xffff (RFC 1071 §1), so it would refuse zeros with the checksum 0x0000. A sum over the whole message
//! distinguishes the two cases. An incremental update (RFC 1624, equation 3) does not: it has the form `~m +
//! m'`, which is 0xffff if the message becomes all zero. So [`updated`] takes a function that checks for
//! zeros. IPv4 headers and messages with a pseudo header are never all zero, and a [`Sum`] that starts from
//! the complement of a checksum of one of these is right without a check.

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

    /// Adds octets; an odd last octet is the high half of a word.
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

    /// The sum folded to 16 bits: 0xffff for octets that include their own right checksum.
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

    /// The value of the checksum field, which was zero in the sum.
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

/// Updates a checksum after one word has changed (RFC 1624, equation 3). A wrong checksum stays wrong.
///
/// `all_zero` is called rarely. It returns whether all octets that the checksum covers are zero now, without
/// the checksum itself.
#[inline]
#[must_use]
pub fn updated(checksum: u16, from: u16, to: u16, all_zero: impl FnOnce() -> bool) -> u16 {
    let updated = Sum::ZERO.word(!checksum).word(!from).word(to).checksum();
    if updated == 0 && all_zero() { 0xffff } else { updated }
}

/// Whether octets that include their own checksum have the sum that RFC 1071 requires.
#[inline]
#[must_use]
pub fn holds(bytes: &[u8]) -> bool {
    Sum::ZERO.octets(bytes).fold() == 0xffff
}

/// The sum of the IPv6 pseudo header (RFC 8200 §8.1); `length` is the number of octets that the checksum
/// covers.
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

    /// A message of two words that becomes another: its checksum is that of the new message, computed from
    /// scratch.
    fn check_update(first: u16, second: u16, to: u16) {
        let words = |first: u16| [first.to_be_bytes(), second.to_be_bytes()].concat();
        let new = updated(reference(&words(first)), first, to, || to == 0 && second == 0);
        assert_eq!(new, reference(&words(to)), "{first:04x} {second:04x} to {to:04x}");
    }

    #[test]
    fn every_update_to_and_from_zero() {
        for word in 0..=u16::MAX {
            for second in [0, 1, 0x7fff, 0xfffe, 0xffff] {
                check_update(word, second, 0);
                check_update(0, second, word);
                check_update(word, second, !second);
                check_update(word, second, word);
            }
        }
    }

    /// An echo request of type 8 and nothing else becomes a reply of zeros (RFC 792).
    #[test]
    fn a_message_that_becomes_all_zero_has_the_checksum_ffff() {
        assert_eq!(updated(0xf7ff, 0x0800, 0, || true), 0xffff);
        assert_eq!(updated(0xf7fe, 0x0800, 0, || true), 0xfffe);
        // The same sum of other octets: 0x0800, then words that sum to 0xffff.
        assert_eq!(updated(0xf7ff, 0x0800, 0, || false), 0);
        assert!(holds(&[0, 0, 0xff, 0xff, 0, 0, 0, 0]) && !holds(&[0; 8]));
    }

    proptest! {
        #[test]
        fn an_update_equals_a_new_sum(first: u16, second: u16, to: u16) {
            check_update(first, second, to);
        }

        #[test]
        fn equals_the_reference(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            // 0 and 0xffff are the same number; only the sum of nothing but zeros may differ, and it does
            // not.
            prop_assert_eq!(checksum(&bytes), reference(&bytes));
        }

        #[test]
        fn may_be_taken_in_steps(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0..200_usize) {
            let (head, tail) = bytes.split_at(at.min(bytes.len()) & !1);
            prop_assert_eq!(Sum::ZERO.octets(head).octets(tail).checksum(), checksum(&bytes));
        }
    }
}
