//! IPv4 (RFC 791).

use etherparse::Ipv4HeaderSlice;

use super::{
    WireError,
    checksum::{self, Sum},
};

/// Length of a header without options.
pub const HEADER_LEN: usize = 20;
/// The TTL of packets that this program creates.
pub const DEFAULT_TTL: u8 = 64;
/// The don't-fragment bit in the word of flags and offset.
const DONT_FRAGMENT: u16 = 0x4000;
/// The more-fragments bit in the same word.
const MORE_FRAGMENTS: u16 = 0x2000;
/// The offset in the same word, in units of eight octets.
const OFFSET: u16 = 0x1fff;

/// Option kinds of a single octet.
const END_OF_LIST: u8 = 0;
const NO_OPERATION: u8 = 1;

/// A complete header with its options. The total length is unchecked.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    header: Ipv4HeaderSlice<'a>,
    fixed: &'a [u8; HEADER_LEN],
}

impl<'a> View<'a> {
    /// Reads the header at the start of `bytes`.
    ///
    /// # Errors
    /// `Truncated` if it ends inside the header, `Malformed` for another version or a header length under 20.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let header = Ipv4HeaderSlice::from_slice(bytes).map_err(|e| match e {
            etherparse::err::ipv4::HeaderSliceError::Len(_) => WireError::Truncated,
            etherparse::err::ipv4::HeaderSliceError::Content(_) => WireError::Malformed,
        })?;
        let fixed = bytes.first_chunk().ok_or(WireError::Truncated)?;
        Ok(Self { header, fixed })
    }

    /// Length of the header with its options: 20 to 60.
    #[inline]
    #[must_use]
    pub fn header_len(&self) -> usize {
        self.header.slice().len()
    }

    /// Length of header and payload, by the header.
    #[inline]
    #[must_use]
    pub fn total_len(&self) -> usize {
        usize::from(self.header.total_len())
    }

    /// DSCP and ECN.
    #[inline]
    #[must_use]
    pub fn traffic_class(&self) -> u8 {
        self.fixed[1]
    }

    /// The identification.
    #[inline]
    #[must_use]
    pub fn identification(&self) -> u16 {
        self.header.identification()
    }

    /// The word of flags and fragment offset.
    #[inline]
    fn fragment_word(&self) -> u16 {
        u16::from_be_bytes([self.fixed[6], self.fixed[7]])
    }

    /// Whether DF is set.
    #[inline]
    #[must_use]
    pub fn dont_fragment(&self) -> bool {
        self.fragment_word() & DONT_FRAGMENT != 0
    }

    /// Whether it is a fragment: more fragments follow, or it does not start at offset 0.
    #[inline]
    #[must_use]
    pub fn is_fragment(&self) -> bool {
        self.fragment_word() & (MORE_FRAGMENTS | OFFSET) != 0
    }

    /// Whether it is a fragment without the transport header.
    #[inline]
    #[must_use]
    pub fn is_later_fragment(&self) -> bool {
        self.fragment_word() & OFFSET != 0
    }

    /// The protocol of the payload.
    #[inline]
    #[must_use]
    pub fn protocol(&self) -> u8 {
        self.fixed[9]
    }

    /// Source address.
    #[inline]
    #[must_use]
    pub fn source(&self) -> [u8; 4] {
        self.header.source()
    }

    /// Destination address.
    #[inline]
    #[must_use]
    pub fn destination(&self) -> [u8; 4] {
        self.header.destination()
    }

    /// Whether the header's checksum is right (RFC 1122 §3.2.1.2: a packet with a wrong one must be dropped).
    #[inline]
    #[must_use]
    pub fn checksum_holds(&self) -> bool {
        if self.header_len() == HEADER_LEN {
            // The length is constant in this branch: five additions and no loop.
            return checksum::holds(self.fixed);
        }
        checksum::holds(self.header.slice())
    }

    /// Whether all options are valid (RFC 791 §3.1): each is a single octet (end of list, no operation), or
    /// has a length of two or more that ends within the header. Octets after the end of the list are padding.
    #[inline]
    #[must_use]
    pub fn options_hold(&self) -> bool {
        self.header_len() == HEADER_LEN || options_hold(self.header.options())
    }
}

#[cold]
fn options_hold(mut options: &[u8]) -> bool {
    while let Some((&kind, after)) = options.split_first() {
        let len = match kind {
            END_OF_LIST => return true,
            NO_OPERATION => 1,
            _ => match after.first() {
                Some(len @ 2..) => usize::from(*len),
                _ => return false,
            },
        };
        let Some(rest) = options.get(len..) else { return false };
        options = rest;
    }
    true
}

/// A header without options, for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Length of header and payload.
    pub total_len: u16,
    /// The identification.
    pub identification: u16,
    /// Whether DF is set.
    pub dont_fragment: bool,
    /// Time to live.
    pub ttl: u8,
    /// The protocol of the payload.
    pub protocol: u8,
    /// Source address.
    pub source: [u8; 4],
    /// Destination address.
    pub destination: [u8; 4],
}

impl Header {
    /// The header's octets, with the checksum.
    #[must_use]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        out[0] = 0x45;
        out[1] = self.traffic_class;
        out[2..4].copy_from_slice(&self.total_len.to_be_bytes());
        out[4..6].copy_from_slice(&self.identification.to_be_bytes());
        out[6..8].copy_from_slice(&(if self.dont_fragment { DONT_FRAGMENT } else { 0 }).to_be_bytes());
        out[8] = self.ttl;
        out[9] = self.protocol;
        out[12..16].copy_from_slice(&self.source);
        out[16..20].copy_from_slice(&self.destination);
        let checksum = Sum::ZERO.octets(&out).checksum();
        out[10..12].copy_from_slice(&checksum.to_be_bytes());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: Header = Header {
        traffic_class: 0,
        total_len: 20,
        identification: 0,
        dont_fragment: true,
        ttl: DEFAULT_TTL,
        protocol: 6,
        source: [10, 11, 12, 13],
        destination: [1, 1, 1, 1],
    };

    fn read(header: &Header) -> Header {
        let octets = header.emit();
        let view = View::parse(&octets).unwrap();
        assert!(view.checksum_holds());
        Header {
            traffic_class: view.traffic_class(),
            total_len: u16::try_from(view.total_len()).unwrap(),
            identification: view.identification(),
            dont_fragment: view.dont_fragment(),
            ttl: octets[8],
            protocol: view.protocol(),
            source: view.source(),
            destination: view.destination(),
        }
    }

    #[test]
    fn every_value_of_every_field_round_trips() {
        for value in 0..=u16::MAX {
            let [high, low] = value.to_be_bytes();
            for header in [
                Header { traffic_class: low, ttl: high, ..SAMPLE },
                Header { total_len: value, ..SAMPLE },
                Header { identification: value, ..SAMPLE },
                Header { dont_fragment: high > 127, protocol: low, ..SAMPLE },
            ] {
                assert_eq!(read(&header), header);
            }
        }
    }

    #[test]
    fn every_word_of_flags_and_offset() {
        let mut octets = SAMPLE.emit();
        for word in 0..=u16::MAX {
            octets[6..8].copy_from_slice(&word.to_be_bytes());
            let view = View::parse(&octets).unwrap();
            assert_eq!(view.dont_fragment(), word >> 14 & 1 == 1, "{word:04x}");
            assert_eq!(view.is_later_fragment(), word.trailing_zeros() < 13, "{word:04x}");
            assert_eq!(view.is_fragment(), word.trailing_zeros() < 14, "{word:04x}");
        }
    }

    #[test]
    fn every_first_octet_and_every_cut() {
        for first in 0..=u8::MAX {
            let mut octets = [0; 60];
            octets[0] = first;
            let header_len = usize::from(first & 15) * 4;
            for cut in 0..=60 {
                let expected = match cut {
                    0..20 => Err(WireError::Truncated),
                    _ if first >> 4 != 4 || header_len < 20 => Err(WireError::Malformed),
                    _ if cut < header_len => Err(WireError::Truncated),
                    _ => Ok(header_len),
                };
                assert_eq!(
                    View::parse(&octets[..cut]).map(|v| v.header_len()),
                    expected,
                    "{first:02x} cut {cut}"
                );
            }
        }
    }

    fn with_options(options: &[u8]) -> bool {
        let mut octets = SAMPLE.emit().to_vec();
        octets[0] = 0x45 + u8::try_from(options.len() / 4).unwrap();
        octets.extend(options);
        View::parse(&octets).unwrap().options_hold()
    }

    #[test]
    fn options_are_read_to_their_end() {
        for (options, expected) in [
            (&[][..], true),
            (&[1, 1, 1, 1], true),
            (&[0, 9, 9, 9], true),
            (&[7, 4, 0, 0], true),
            (&[7, 3, 0, 0], true),
            (&[1, 7, 3, 0], true),
            (&[1, 1, 1, 0], true),
            (&[7, 5, 0, 0], false),
            (&[7, 1, 0, 0], false),
            (&[7, 0, 0, 0], false),
            (&[1, 1, 1, 7], false),
            (&[1, 1, 7, 3], false),
            (&[1, 1, 7, 2], true),
            (&[7, 2, 7, 2, 7, 2, 7, 3], false),
            (&[131, 7, 4, 10, 0, 0, 1, 0], true),
            (&[131, 7, 4, 10, 0, 0, 1, 9], false),
        ] {
            assert_eq!(with_options(options), expected, "{options:?}");
        }
    }

    /// An option that fills the header, of every kind and length: it ends within the header or it does not.
    #[test]
    fn every_kind_and_length_of_an_option() {
        for (kind, len) in (2..=u8::MAX).flat_map(|kind| (0..=u8::MAX).map(move |len| (kind, len))) {
            let mut options = [1; 40];
            options[..2].copy_from_slice(&[kind, len]);
            assert_eq!(with_options(&options), (2..=40).contains(&len), "{kind} {len}");
        }
    }

    #[test]
    fn every_flipped_bit_breaks_the_checksum() {
        let mut with_options = [1; 24];
        with_options[..20].copy_from_slice(&SAMPLE.emit());
        with_options[0] = 0x46;
        with_options[10..12].fill(0);
        let sum = checksum::checksum(&with_options);
        with_options[10..12].copy_from_slice(&sum.to_be_bytes());
        assert!(View::parse(&with_options).unwrap().checksum_holds());
        for bit in 0..24 * 8 {
            let mut bad = with_options;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(!View::parse(&bad).is_ok_and(|v| v.checksum_holds()), "bit {bit}");
        }
    }
}
