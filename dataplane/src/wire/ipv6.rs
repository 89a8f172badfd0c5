//! IPv6 and its extension headers (RFC 8200, RFC 4302 for AH, RFC 6946 for atomic fragments).
//!
//! ```text
//! fixed header (40) │ next │ length │ … │ next │ length │ … │ transport
//!                   └── extension ──────┘└── extension ──┘
//! ```
//!
//! An extension's length is in units of eight octets and does not count the first eight, except for AH (units
//! of four, minus two) and the fragment header (always eight octets).

use etherparse::Ipv6HeaderSlice;

use super::WireError;

/// Length of the fixed header.
pub const HEADER_LEN: usize = 40;
/// The smallest MTU of a link, in octets (RFC 8200 §5).
pub const LEAST_MTU: u16 = 1_280;
/// The hop limit of packets that this program creates.
pub const DEFAULT_HOP_LIMIT: u8 = 64;
/// Largest number of extension headers that the parser follows. RFC 8200 §4.1 names seven positions, in
/// practice none is used twice; longer chains are attacks on parsers more often than traffic of hosts.
pub const MAX_EXTENSIONS: usize = 8;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;
const MOBILITY: u8 = 135;
const HOST_IDENTITY: u8 = 139;
const SHIM6: u8 = 140;

/// Whether a next-header value names an extension header that the parser can follow.
#[inline]
#[must_use]
pub const fn is_extension(next_header: u8) -> bool {
    matches!(
        next_header,
        HOP_BY_HOP
            | ROUTING
            | FRAGMENT
            | AUTHENTICATION
            | DESTINATION_OPTIONS
            | MOBILITY
            | HOST_IDENTITY
            | SHIM6
    )
}

/// A complete fixed header. The payload length is unchecked.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    header: Ipv6HeaderSlice<'a>,
    fixed: &'a [u8; HEADER_LEN],
}

impl<'a> View<'a> {
    /// Reads the header at the start of `bytes`.
    ///
    /// # Errors
    /// `Truncated` if it ends inside the header, `Malformed` for another version.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let header = Ipv6HeaderSlice::from_slice(bytes).map_err(|e| match e {
            etherparse::err::ipv6::HeaderSliceError::Len(_) => WireError::Truncated,
            etherparse::err::ipv6::HeaderSliceError::Content(_) => WireError::Malformed,
        })?;
        let fixed = bytes.first_chunk().ok_or(WireError::Truncated)?;
        Ok(Self { header, fixed })
    }

    /// Length of header and payload, by the header.
    #[inline]
    #[must_use]
    pub fn total_len(&self) -> usize {
        HEADER_LEN + usize::from(self.header.payload_length())
    }

    /// DSCP and ECN.
    #[inline]
    #[must_use]
    pub fn traffic_class(&self) -> u8 {
        (self.fixed[0] << 4) | (self.fixed[1] >> 4)
    }

    /// The flow label's low 16 of 20 bits.
    #[inline]
    #[must_use]
    pub fn flow_label_low(&self) -> u16 {
        u16::from_be_bytes([self.fixed[2], self.fixed[3]])
    }

    /// Type of the header after the fixed header.
    #[inline]
    #[must_use]
    pub fn next_header(&self) -> u8 {
        self.fixed[6]
    }

    /// Source address.
    #[inline]
    #[must_use]
    pub fn source(&self) -> [u8; 16] {
        self.header.source()
    }

    /// Destination address.
    #[inline]
    #[must_use]
    pub fn destination(&self) -> [u8; 16] {
        self.header.destination()
    }
}

/// The header after the extension headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upper {
    /// Protocol of the header at `offset`.
    pub protocol: u8,
    /// Its offset in octets, from the end of the fixed header.
    pub offset: usize,
    /// Set if the packet is a fragment. Then the chain is not followed further: only the first fragment has
    /// all of it, and all fragments of a packet must be treated alike.
    pub fragment: Option<Fragment>,
}

/// A fragment header. A header of an unfragmented packet (RFC 6946) is skipped instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// Whether this fragment does not start at offset 0.
    pub later: bool,
}

/// Why the transport header was not found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChainError {
    /// The payload ends inside an extension header.
    Truncated,
    /// More than [`MAX_EXTENSIONS`] headers.
    TooLong,
}

/// Follows the chain of extension headers in `payload`, whose first header is `next_header`.
///
/// # Errors
/// See [`ChainError`].
pub fn upper(next_header: u8, payload: &[u8]) -> Result<Upper, ChainError> {
    let mut upper = Upper { protocol: next_header, offset: 0, fragment: None };
    for _ in 0..MAX_EXTENSIONS {
        if !is_extension(upper.protocol) {
            return Ok(upper);
        }
        let head: [u8; 4] = super::octets(payload, upper.offset).ok_or(ChainError::Truncated)?;
        let is_fragment = upper.protocol == FRAGMENT;
        let end = upper.offset + extension_len(upper.protocol, head[1]);
        if payload.len() < end {
            return Err(ChainError::Truncated);
        }
        upper.protocol = head[0];
        upper.offset = end;
        let word = u16::from_be_bytes([head[2], head[3]]);
        if is_fragment && word & 0xfff9 != 0 {
            upper.fragment = Some(Fragment { later: word & 0xfff8 != 0 });
            return Ok(upper);
        }
    }
    if is_extension(upper.protocol) { Err(ChainError::TooLong) } else { Ok(upper) }
}

#[inline]
fn extension_len(kind: u8, length: u8) -> usize {
    match kind {
        FRAGMENT => 8,
        AUTHENTICATION => (usize::from(length) + 2) * 4,
        _ => (usize::from(length) + 1) * 8,
    }
}

/// A fixed header, for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// The flow label, 20 bits.
    pub flow_label: u32,
    /// Length of the octets after this header.
    pub payload_len: u16,
    /// Type of the next header.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub source: [u8; 16],
    /// Destination address.
    pub destination: [u8; 16],
}

impl Header {
    /// The header's octets.
    #[must_use]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | (self.flow_label & 0xf_ffff);
        let mut out = [0; HEADER_LEN];
        out[..4].copy_from_slice(&first.to_be_bytes());
        out[4..6].copy_from_slice(&self.payload_len.to_be_bytes());
        out[6] = self.next_header;
        out[7] = self.hop_limit;
        out[8..24].copy_from_slice(&self.source);
        out[24..].copy_from_slice(&self.destination);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: Header = Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: 0,
        next_header: 6,
        hop_limit: DEFAULT_HOP_LIMIT,
        source: [0xfd; 16],
        destination: [0x20; 16],
    };

    #[test]
    fn every_value_of_every_field_round_trips() {
        for value in 0..=u16::MAX {
            let [high, low] = value.to_be_bytes();
            let flow_label = u32::from(high & 15) << 16 | u32::from(value);
            let octets =
                Header { traffic_class: low, flow_label, payload_len: value, next_header: high, ..SAMPLE }
                    .emit();
            let view = View::parse(&octets).unwrap();
            assert_eq!(view.traffic_class(), low);
            assert_eq!(view.flow_label_low(), value);
            assert_eq!(view.total_len(), 40 + usize::from(value));
            assert_eq!(view.next_header(), high);
            assert_eq!((view.source(), view.destination()), (SAMPLE.source, SAMPLE.destination));
        }
    }

    #[test]
    fn every_cut_and_every_version() {
        for version in 0..16 {
            let mut octets = SAMPLE.emit();
            octets[0] = version << 4;
            for cut in 0..=40 {
                let read = View::parse(&octets[..cut]).map(|_| ());
                let expected = match cut {
                    0..40 => Err(WireError::Truncated),
                    _ if version != 6 => Err(WireError::Malformed),
                    _ => Ok(()),
                };
                // A truncated header of another version may give either error.
                assert!(read == expected || (cut < 40 && read.is_err()), "version {version} cut {cut}");
            }
        }
    }

    fn chain(kinds: &[u8], last: u8) -> Vec<u8> {
        let mut payload = Vec::new();
        for (i, kind) in kinds.iter().enumerate() {
            let length = if *kind == AUTHENTICATION { 4 } else { 1 };
            payload.extend([kinds.get(i + 1).copied().unwrap_or(last), length, 0, 0]);
            payload.resize(payload.len() + extension_len(*kind, length) - 4, 0);
        }
        payload
    }

    #[test]
    fn finds_the_transport_behind_every_kind() {
        for kind in 0..=u8::MAX {
            let payload = chain(&[kind], 6);
            let found = upper(kind, &payload).unwrap();
            if is_extension(kind) {
                assert_eq!(
                    found,
                    Upper { protocol: 6, offset: payload.len(), fragment: None },
                    "kind {kind}"
                );
            } else {
                assert_eq!(found, Upper { protocol: kind, offset: 0, fragment: None }, "kind {kind}");
            }
        }
    }

    #[test]
    fn every_cut_of_a_chain() {
        let kinds = [HOP_BY_HOP, DESTINATION_OPTIONS, ROUTING, FRAGMENT, AUTHENTICATION, DESTINATION_OPTIONS];
        let payload = chain(&kinds, 17);
        for cut in 0..payload.len() {
            assert_eq!(upper(kinds[0], &payload[..cut]), Err(ChainError::Truncated), "cut {cut}");
        }
        assert_eq!(
            upper(kinds[0], &payload),
            Ok(Upper { protocol: 17, offset: payload.len(), fragment: None })
        );
    }

    #[test]
    fn the_chain_is_bounded() {
        let kinds = [DESTINATION_OPTIONS; MAX_EXTENSIONS + 1];
        assert!(upper(kinds[0], &chain(&kinds[1..], 6)).is_ok());
        assert_eq!(upper(kinds[0], &chain(&kinds, 6)), Err(ChainError::TooLong));
    }

    #[test]
    fn every_fragment_word() {
        for word in 0..=u16::MAX {
            let [high, low] = word.to_be_bytes();
            let read = upper(FRAGMENT, &[17, 0, high, low, 0, 0, 0, 0]).unwrap();
            let (offset, more) = (word >> 3, word & 1);
            let expected = (offset != 0 || more != 0).then_some(Fragment { later: offset != 0 });
            assert_eq!(read, Upper { protocol: 17, offset: 8, fragment: expected }, "{word:04x}");
        }
    }

    #[test]
    fn parts_of_a_packet_are_read_alike() {
        let first = [DESTINATION_OPTIONS, 0, 0, 1, 0, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0, 0];
        let later = [DESTINATION_OPTIONS, 0, 0, 8, 0, 0, 0, 0, 6, 6, 6, 6, 6, 6, 6, 6];
        let (first, later) = (upper(FRAGMENT, &first).unwrap(), upper(FRAGMENT, &later).unwrap());
        assert_eq!((first.protocol, first.offset), (later.protocol, later.offset));
    }
}
