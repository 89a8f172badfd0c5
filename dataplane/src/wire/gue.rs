//! Generic UDP Encapsulation, version 0, with the private data that carries the hops (GLB's format).
//!
//! ```text
//! 0 1 2 3              8                    16                  24
//! │0 0│C│ header length│ inner protocol     │ flags                                │
//! │ private type                            │ next hop           │ hop count       │
//! │ hop 1 │ hop 2 │ …         4 octets each (type 0, IPv4) or 16 (type 1, IPv6)
//! ```
//!
//! The header length counts 32-bit words after the first. Hop 0, the outer destination of the first packet,
//! is not in the list; `next hop` is the index of the hop to try next.

use super::WireError;

/// The UDP port of all receivers.
pub const PORT: u16 = 19_523;
/// Length of the first word of a GUE header, in octets.
pub const HEADER_LEN: usize = 4;
/// Length of the first word of the private data, in octets.
pub const PRIVATE_LEN: usize = 4;
/// Length of the part before the hops, in octets.
pub const FIXED_LEN: usize = HEADER_LEN + PRIVATE_LEN;
/// Largest header length, in words: the field has five bits.
const MAX_WORDS: usize = 31;
/// Private type of IPv4 hops.
pub const TYPE_IPV4: u16 = 0;
/// Private type of IPv6 hops.
pub const TYPE_IPV6: u16 = 1;

/// Number of hops of `hop_len` octets that the header has room for: 30 of IPv4, 7 of IPv6.
#[must_use]
pub const fn capacity(hop_len: usize) -> usize {
    (MAX_WORDS - 1) * 4 / hop_len
}

/// More hops than a header has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyHops;

/// Writes the eight octets before a list of `count` hops of `hop_len` octets each, with `next_hop` 0.
///
/// # Errors
/// If `count` is over the [`capacity`].
#[inline]
pub const fn emit(inner_protocol: u8, hop_len: usize, count: usize) -> Result<[u8; FIXED_LEN], TooManyHops> {
    if count > capacity(hop_len) {
        return Err(TooManyHops);
    }
    #[expect(clippy::cast_possible_truncation, reason = "at most 31 words and 30 hops")]
    let (words, hops) = ((1 + count * hop_len / 4) as u8, count as u8);
    let private_type = if hop_len == 16 { 1 } else { 0 };
    Ok([words, inner_protocol, 0, 0, 0, private_type, 0, hops])
}

/// Why a header is invalid. `redirect` has a counter for each reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GueError {
    /// It is shorter than its header length.
    Truncated,
    /// A version other than 0 (version 1 is IP directly in UDP).
    Version,
    /// The control bit is set: there is no inner packet.
    Control,
    /// A flag is set; each flag announces a field that this program does not support.
    Flags,
    /// The inner protocol is neither IPv4 nor IPv6.
    InnerProtocol,
    /// The header length does not match the number of hops.
    HeaderLength,
    /// An unknown type of private data.
    PrivateType,
    /// The next hop is beyond the end of the list.
    NextHop,
}

impl From<WireError> for GueError {
    fn from(_: WireError) -> Self {
        Self::Truncated
    }
}

/// A valid header, and the inner packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gue<'a> {
    /// 4 or 41.
    pub inner_protocol: u8,
    /// Index of the hop to try next; equal to the number of hops after the last one.
    pub next_hop: u8,
    /// The hops.
    pub hops: Hops<'a>,
    /// The inner packet.
    pub inner: &'a [u8],
}

/// The hops of one packet, all of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hops<'a> {
    /// Private type 0.
    V4(&'a [[u8; 4]]),
    /// Private type 1.
    V6(&'a [[u8; 16]]),
}

impl Hops<'_> {
    /// Number of hops.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::V4(hops) => hops.len(),
            Self::V6(hops) => hops.len(),
        }
    }

    /// Whether the list is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address of a hop.
    #[must_use]
    pub fn address(&self, index: usize) -> Option<std::net::IpAddr> {
        match self {
            Self::V4(hops) => hops.get(index).map(|a| std::net::IpAddr::from(*a)),
            Self::V6(hops) => hops.get(index).map(|a| std::net::IpAddr::from(*a)),
        }
    }
}

impl<'a> Gue<'a> {
    /// Parses the payload of a UDP datagram.
    ///
    /// # Errors
    /// The first error, in the order of the octets.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, GueError> {
        let (&[first, inner_protocol, flags_high, flags_low], rest) =
            bytes.split_first_chunk().ok_or(GueError::Truncated)?;
        check_first_word(first, inner_protocol, flags_high | flags_low)?;
        let words = usize::from(first & 0x1f);
        let (data, inner) = rest.split_at_checked(words * 4).ok_or(GueError::Truncated)?;
        // GUE without private data is valid but not supported: the length must match the hops.
        let (&[type_high, type_low, next_hop, count], list) =
            data.split_first_chunk().ok_or(GueError::HeaderLength)?;
        let hops = match u16::from_be_bytes([type_high, type_low]) {
            TYPE_IPV4 => Hops::V4(exactly(list, count)?),
            TYPE_IPV6 => Hops::V6(exactly(list, count)?),
            _ => return Err(GueError::PrivateType),
        };
        if next_hop > count {
            return Err(GueError::NextHop);
        }
        Ok(Self { inner_protocol, next_hop, hops, inner })
    }
}

fn check_first_word(first: u8, inner_protocol: u8, flags: u8) -> Result<(), GueError> {
    if first >> 6 != 0 {
        return Err(GueError::Version);
    }
    if first & 0x20 != 0 {
        return Err(GueError::Control);
    }
    if inner_protocol != super::protocol::IPV4 && inner_protocol != super::protocol::IPV6 {
        return Err(GueError::InnerProtocol);
    }
    if flags != 0 { Err(GueError::Flags) } else { Ok(()) }
}

fn exactly<const N: usize>(list: &[u8], count: u8) -> Result<&[[u8; N]], GueError> {
    let (hops, rest) = list.as_chunks();
    if rest.is_empty() && hops.len() == usize::from(count) { Ok(hops) } else { Err(GueError::HeaderLength) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(hop_len: usize, count: usize, inner: &[u8]) -> Vec<u8> {
        let mut bytes = emit(4, hop_len, count).unwrap().to_vec();
        for hop in 0..count {
            bytes.extend(vec![u8::try_from(hop + 1).unwrap(); hop_len]);
        }
        bytes.extend(inner);
        bytes
    }

    #[test]
    fn every_count_round_trips_and_every_cut_fails() {
        for hop_len in [4, 16] {
            for count in 0..=capacity(hop_len) {
                let bytes = packet(hop_len, count, b"");
                let gue = Gue::parse(&bytes).unwrap();
                assert_eq!((gue.inner_protocol, gue.next_hop, gue.hops.len()), (4, 0, count));
                assert_eq!(matches!(gue.hops, Hops::V6(_)), hop_len == 16);
                assert_eq!(gue.hops.address(count), None);
                for cut in 0..bytes.len() {
                    assert_eq!(
                        Gue::parse(&bytes[..cut]),
                        Err(GueError::Truncated),
                        "{count} hops, cut {cut}"
                    );
                }
            }
        }
    }

    #[test]
    fn capacity_is_that_of_five_bits() {
        assert_eq!((capacity(4), capacity(16)), (30, 7));
        assert_eq!(emit(4, 4, 30), Ok([31, 4, 0, 0, 0, 0, 0, 30]));
        assert_eq!(emit(41, 16, 7), Ok([29, 41, 0, 0, 0, 1, 0, 7]));
    }

    #[test]
    fn more_hops_than_fit_are_refused_and_not_cut() {
        for (hop_len, most) in [(4, 30), (16, 7)] {
            for count in most + 1..=600 {
                assert_eq!(emit(4, hop_len, count), Err(TooManyHops), "{count} hops of {hop_len}");
            }
        }
    }

    /// Every value of every 16-bit half of the first two words, compared with a second implementation of the
    /// format.
    #[test]
    fn every_half_word() {
        let good = packet(4, 2, &[0; 200]);
        for offset in [0, 2, 4, 6] {
            for value in 0..=u16::MAX {
                let mut bytes = good.clone();
                bytes[offset..offset + 2].copy_from_slice(&value.to_be_bytes());
                assert_eq!(
                    Gue::parse(&bytes).map(|g| g.hops.len()),
                    expected(&bytes),
                    "octet {offset}: {value:04x}"
                );
            }
        }
    }

    fn expected(b: &[u8]) -> Result<usize, GueError> {
        let words = usize::from(b[0] & 31);
        let per_hop = if b[5] == 1 { 4 } else { 1 };
        match () {
            () if b[0] & 0xc0 != 0 => Err(GueError::Version),
            () if b[0] & 0x20 != 0 => Err(GueError::Control),
            () if b[1] != 4 && b[1] != 41 => Err(GueError::InnerProtocol),
            () if b[2] != 0 || b[3] != 0 => Err(GueError::Flags),
            () if words == 0 => Err(GueError::HeaderLength),
            () if b[4] != 0 || b[5] > 1 => Err(GueError::PrivateType),
            () if words != 1 + usize::from(b[7]) * per_hop => Err(GueError::HeaderLength),
            () if b[6] > b[7] => Err(GueError::NextHop),
            () => Ok(usize::from(b[7])),
        }
    }
}
