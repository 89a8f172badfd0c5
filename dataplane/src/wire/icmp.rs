//! ICMP (RFC 792) and ICMPv6 (RFC 4443), as far as a balancer needs them: the kind of a message, and the
//! packet that an error quotes.
//!
//! ```text
//! 0      1      2          4                8
//! │ type │ code │ checksum │ rest of header │ quoted packet, or data …
//! ```

use super::octets;

/// Length of the header before the quote or the data.
pub const HEADER_LEN: usize = 8;
/// Octets of the quoted transport header that every error contains (RFC 792).
pub const QUOTED_TRANSPORT_LEN: usize = 8;

const V4_ECHO_REPLY: u8 = 0;
const V4_UNREACHABLE: u8 = 3;
const V4_SOURCE_QUENCH: u8 = 4;
const V4_ECHO_REQUEST: u8 = 8;
const V4_TIME_EXCEEDED: u8 = 11;
const V4_PARAMETER_PROBLEM: u8 = 12;
/// "Fragmentation needed and DF set".
const V4_FRAGMENTATION_NEEDED: u8 = 4;

const V6_TOO_BIG: u8 = 2;
const V6_FIRST_INFORMATIONAL: u8 = 128;
const V6_ECHO_REQUEST: u8 = 128;
const V6_ECHO_REPLY: u8 = 129;

/// The kind of a message, as far as a balancer distinguishes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An error about a packet, which it quotes.
    Error,
    /// An echo request.
    EchoRequest,
    /// Any other message.
    Other,
}

/// The kind of an ICMP message. A redirect (type 5) is `Other`: it is for a host that sent the quoted packet
/// to the wrong router of its own link, and has no meaning at the end of a tunnel.
#[inline]
#[must_use]
pub fn kind_v4(message: &[u8]) -> Option<Kind> {
    Some(match *message.first()? {
        V4_UNREACHABLE | V4_SOURCE_QUENCH | V4_TIME_EXCEEDED | V4_PARAMETER_PROBLEM => Kind::Error,
        V4_ECHO_REQUEST => Kind::EchoRequest,
        _ => Kind::Other,
    })
}

/// The kind of an ICMPv6 message: all types below 128 are errors, known or not (RFC 4443 §2.1).
#[inline]
#[must_use]
pub fn kind_v6(message: &[u8]) -> Option<Kind> {
    Some(match *message.first()? {
        V6_ECHO_REQUEST => Kind::EchoRequest,
        kind if kind < V6_FIRST_INFORMATIONAL => Kind::Error,
        _ => Kind::Other,
    })
}

/// The part of a packet that an error quotes.
#[inline]
#[must_use]
pub fn quoted(message: &[u8]) -> Option<&[u8]> {
    message.get(HEADER_LEN..)
}

/// ICMP 3/4 without its checksum: "fragmentation needed", with the MTU that fits (RFC 1191 §4).
#[must_use]
pub fn fragmentation_needed(mtu: u16) -> [u8; HEADER_LEN] {
    let [high, low] = mtu.to_be_bytes();
    [V4_UNREACHABLE, V4_FRAGMENTATION_NEEDED, 0, 0, 0, 0, high, low]
}

/// ICMPv6 2 without its checksum: "packet too big", with the MTU that fits (RFC 4443 §3.2).
#[must_use]
pub fn packet_too_big(mtu: u32) -> [u8; HEADER_LEN] {
    let [a, b, c, d] = mtu.to_be_bytes();
    [V6_TOO_BIG, 0, 0, 0, a, b, c, d]
}

/// The header of the reply to an ICMP echo request, without its checksum.
#[must_use]
pub fn echo_reply_v4(request: &[u8]) -> Option<[u8; HEADER_LEN]> {
    let [a, b, c, d] = octets(request, 4)?;
    Some([V4_ECHO_REPLY, 0, 0, 0, a, b, c, d])
}

/// The header of the reply to an ICMPv6 echo request, without its checksum.
#[must_use]
pub fn echo_reply_v6(request: &[u8]) -> Option<[u8; HEADER_LEN]> {
    let [a, b, c, d] = octets(request, 4)?;
    Some([V6_ECHO_REPLY, 0, 0, 0, a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_its_kind() {
        for kind in 0..=u8::MAX {
            let v4 = match kind {
                3 | 4 | 11 | 12 => Kind::Error,
                8 => Kind::EchoRequest,
                _ => Kind::Other,
            };
            let v6 = match kind {
                0..=127 => Kind::Error,
                128 => Kind::EchoRequest,
                129.. => Kind::Other,
            };
            assert_eq!((kind_v4(&[kind]), kind_v6(&[kind])), (Some(v4), Some(v6)), "type {kind}");
        }
        assert_eq!((kind_v4(&[]), kind_v6(&[])), (None, None));
    }

    #[test]
    fn every_mtu() {
        for mtu in 0..=u16::MAX {
            let [high, low] = mtu.to_be_bytes();
            assert_eq!(fragmentation_needed(mtu), [3, 4, 0, 0, 0, 0, high, low]);
            assert_eq!(packet_too_big(u32::from(mtu)), [2, 0, 0, 0, 0, 0, high, low]);
        }
    }

    #[test]
    fn quotes_and_replies_need_a_complete_header() {
        let message = [8, 0, 1, 2, 3, 4, 5, 6, 7];
        for cut in 0..8 {
            assert_eq!(quoted(&message[..cut]), None);
            assert_eq!(echo_reply_v4(&message[..cut]), None);
            assert_eq!(echo_reply_v6(&message[..cut]), None);
        }
        assert_eq!(quoted(&message), Some(&[7][..]));
        assert_eq!(echo_reply_v4(&message), Some([0, 0, 0, 0, 3, 4, 5, 6]));
        assert_eq!(echo_reply_v6(&message), Some([129, 0, 0, 0, 3, 4, 5, 6]));
    }
}
