//! Ethernet II with up to two VLAN tags (IEEE 802.3, 802.1Q, 802.1ad).
//!
//! ```text
//! 0            6            12     14
//! │ destination │ source     │ type │ payload …
//! │ destination │ source     │ 8100 │ tag │ type │ payload …
//! │ destination │ source     │ 88a8 │ tag │ 8100 │ tag │ type │ payload …
//! ```

use std::{fmt, str::FromStr};

use etherparse::{Ethernet2HeaderSlice, SingleVlanHeaderSlice};

use super::WireError;

/// Length of the header without tags, in octets.
pub const HEADER_LEN: usize = 14;
/// Length of a tag, in octets.
pub const TAG_LEN: usize = 4;
/// Largest number of tags that the parser follows; a frame with more is left to the host.
pub const MAX_TAGS: usize = 2;

/// IPv4.
pub const TYPE_IPV4: u16 = 0x0800;
/// IPv6.
pub const TYPE_IPV6: u16 = 0x86dd;
/// 802.1Q.
pub const TYPE_VLAN: u16 = 0x8100;
/// 802.1ad.
pub const TYPE_SERVICE_VLAN: u16 = 0x88a8;
/// The QinQ type in use before the standard.
pub const TYPE_OLD_QINQ: u16 = 0x9100;

/// A link-layer address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not six pairs of hexadecimal digits with colons between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected six pairs of hexadecimal digits, like 02:00:5e:10:00:01")]
pub struct BadMac;

impl FromStr for Mac {
    type Err = BadMac;

    fn from_str(text: &str) -> Result<Self, BadMac> {
        let mut mac = [0; 6];
        let mut pairs = text.split(':');
        for octet in &mut mac {
            let pair = pairs.next().filter(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()));
            *octet = u8::from_str_radix(pair.ok_or(BadMac)?, 16).map_err(|_| BadMac)?;
        }
        if pairs.next().is_some() { Err(BadMac) } else { Ok(Self(mac)) }
    }
}

/// A frame with a parsed link-layer header.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    header: &'a [u8],
    /// The type after the tags.
    pub ether_type: u16,
    /// The octets after the header, padding included.
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Reads the header and at most [`MAX_TAGS`] tags; a third tag is returned as `ether_type`.
    ///
    /// # Errors
    /// `Truncated` if the frame ends inside the header or a tag.
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Result<Self, WireError> {
        let header = Ethernet2HeaderSlice::from_slice(frame).map_err(|_| WireError::Truncated)?;
        let ether_type = header.ether_type().0;
        if is_tag(ether_type) {
            return Self::parse_tags(frame, ether_type);
        }
        Self::split(frame, HEADER_LEN, ether_type)
    }

    #[cold]
    fn parse_tags(frame: &'a [u8], mut ether_type: u16) -> Result<Self, WireError> {
        let mut offset = HEADER_LEN;
        for _ in 0..MAX_TAGS {
            if !is_tag(ether_type) {
                break;
            }
            let tag = SingleVlanHeaderSlice::from_slice(frame.get(offset..).unwrap_or(&[]));
            ether_type = tag.map_err(|_| WireError::Truncated)?.ether_type().0;
            offset += TAG_LEN;
        }
        Self::split(frame, offset, ether_type)
    }

    #[inline]
    fn split(frame: &'a [u8], offset: usize, ether_type: u16) -> Result<Self, WireError> {
        let (header, payload) = frame.split_at_checked(offset).ok_or(WireError::Truncated)?;
        Ok(Self { header, ether_type, payload })
    }

    /// The header with its tags and the final type.
    #[inline]
    #[must_use]
    pub fn header(&self) -> &'a [u8] {
        self.header
    }

    /// Destination address.
    #[must_use]
    pub fn destination(&self) -> Mac {
        Mac(super::octets(self.header, 0).expect("invariant: a header has 14 octets or more"))
    }

    /// Source address.
    #[must_use]
    pub fn source(&self) -> Mac {
        Mac(super::octets(self.header, 6).expect("invariant: a header has 14 octets or more"))
    }
}

#[inline]
const fn is_tag(ether_type: u16) -> bool {
    matches!(ether_type, TYPE_VLAN | TYPE_SERVICE_VLAN | TYPE_OLD_QINQ)
}

/// A header without tags, for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Destination address.
    pub destination: Mac,
    /// Source address.
    pub source: Mac,
    /// Type of the payload.
    pub ether_type: u16,
}

impl Header {
    /// The header's octets.
    #[must_use]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        out[..6].copy_from_slice(&self.destination.0);
        out[6..12].copy_from_slice(&self.source.0);
        out[12..].copy_from_slice(&self.ether_type.to_be_bytes());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const FROM: Mac = Mac([2, 0, 0, 0, 0, 2]);

    fn tagged(types: &[u16]) -> Vec<u8> {
        let mut frame = [TO.0, FROM.0].concat();
        for (i, ether_type) in types.iter().enumerate() {
            frame.extend(ether_type.to_be_bytes());
            if i + 1 < types.len() {
                frame.extend([0x20, 0x64]);
            }
        }
        frame
    }

    #[test]
    fn every_type_round_trips() {
        for ether_type in 0..=u16::MAX {
            let header = Header { destination: TO, source: FROM, ether_type };
            let mut frame = header.emit().to_vec();
            frame.extend([0; 4]);
            if !is_tag(ether_type) {
                let read = Frame::parse(&frame).unwrap();
                assert_eq!((read.destination(), read.source(), read.ether_type), (TO, FROM, ether_type));
                assert_eq!(read.header(), header.emit());
            }
        }
    }

    #[test]
    fn looks_through_two_tags_and_no_more() {
        for tag in [TYPE_VLAN, TYPE_SERVICE_VLAN, TYPE_OLD_QINQ] {
            for (types, read, len) in [
                (vec![tag, TYPE_IPV4], TYPE_IPV4, 18),
                (vec![tag, TYPE_VLAN, TYPE_IPV6], TYPE_IPV6, 22),
                (vec![tag, TYPE_VLAN, TYPE_VLAN, TYPE_IPV4], TYPE_VLAN, 22),
            ] {
                let frame = tagged(&types);
                let parsed = Frame::parse(&frame).unwrap();
                assert_eq!((parsed.ether_type, parsed.header().len()), (read, len), "{types:x?}");
                for cut in 0..len {
                    assert_eq!(
                        Frame::parse(&frame[..cut]).unwrap_err(),
                        WireError::Truncated,
                        "{types:x?} cut {cut}"
                    );
                }
            }
        }
    }

    #[test]
    fn mac_reads_what_it_writes_and_nothing_else() {
        let mac: Mac = "3a:89:7c:7B:5d:1f".parse().unwrap();
        assert_eq!(mac.to_string(), "3a:89:7c:7b:5d:1f");
        for bad in [
            "",
            "3a:89:7c:7b:5d",
            "3a:89:7c:7b:5d:1f:00",
            "3a-89-7c-7b-5d-1f",
            "+a:89:7c:7b:5d:1f",
            "3:89:7c:7b:5d:1f",
        ] {
            assert_eq!(bad.parse::<Mac>(), Err(BadMac), "{bad}");
        }
    }
}
