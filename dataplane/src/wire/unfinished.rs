//! Unfinished transport checksums (CHECKSUM_PARTIAL), which a sender left to its network card; and how to
//! finish them.
//!
//! A packet from this host, from another namespace of it or from a virtual machine may have no transport
//! checksum yet: the field contains the sum of the pseudo header, and the card is expected to add the sum of
//! the segment. Without a card on the path, as on a veth, the kernel keeps a mark with the packet instead.
//! Encapsulation loses the mark, and the server would drop the packet. So the checksum must be finished
//! before.
//!
//! How an unfinished checksum is recognised:
//!
//! - A packet socket reports it, with the two numbers of a [`Partial`].
//! - Inside a tunnel there is no mark. There the field is compared with the sum of the pseudo header
//!   ([`find`]). A finished checksum equals that sum by chance, once in 65,536 packets, and then finishing
//!   changes nothing: let P be the sum of the pseudo header and D that of the segment without the field. The
//!   right checksum is ~(P + D). With P in the field the segment sums to P + D, and [`finish`] writes ~(P +
//!   D).
//!
//! Sources: RFC 1071; Documentation/networking/checksum-offloads.rst.

use super::checksum::{Sum, ipv6_pseudo};
use super::{ipv4, ipv6, protocol};

/// Where the sum starts in the packet or frame, and where its field is after that start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// Offset in octets from the start of the packet or frame.
    pub start: usize,
    /// Offset in octets from `start`.
    pub field: usize,
}

/// Finds the unfinished checksum of an IP packet without padding: its TCP or UDP checksum field contains the
/// sum of the pseudo header. That sum is never 0, so a UDP packet without checksum does not count as
/// unfinished. Nor do fragments: their sender's kernel finishes the checksum before it fragments the packet.
#[must_use]
pub fn find(packet: &[u8]) -> Option<Partial> {
    let (number, start, pseudo) = match packet.first()? >> 4 {
        4 => transport_v4(packet)?,
        6 => transport_v6(packet)?,
        _ => return None,
    };
    let field = match number {
        protocol::TCP => TCP_FIELD,
        protocol::UDP => UDP_FIELD,
        _ => return None,
    };
    let found = packet.get(start + field..)?.first_chunk()?;
    (u16::from_be_bytes(*found) == pseudo.fold()).then_some(Partial { start, field })
}

/// Sums from `start` to the end and writes the complement to the field. Does nothing if the offsets are
/// outside the packet.
///
/// A checksum of zero is written as 0xffff, which is the same number (RFC 1071), and for UDP the only valid
/// form (RFC 768: zero means "none").
pub fn finish(frame: &mut [u8], partial: Partial) {
    let Some(covered) = frame.get_mut(partial.start..) else { return };
    let sum = match Sum::ZERO.octets(covered).checksum() {
        0 => 0xffff,
        sum => sum,
    };
    if let Some(field) = covered.get_mut(partial.field..).and_then(|rest| rest.first_chunk_mut()) {
        *field = sum.to_be_bytes();
    }
}

const TCP_FIELD: usize = 16;
const UDP_FIELD: usize = 6;

/// Protocol, offset of the transport header, and sum of the pseudo header (RFC 9293 §3.1).
fn transport_v4(packet: &[u8]) -> Option<(u8, usize, Sum)> {
    let header = ipv4::View::parse(packet).ok().filter(|header| !header.is_fragment())?;
    let (number, start) = (header.protocol(), header.header_len());
    let len = u32::try_from(packet.len().checked_sub(start)?).ok()?;
    let addresses = Sum::ZERO.octets(&header.source()).octets(&header.destination());
    Some((number, start, addresses.double(len).word(u16::from(number))))
}

/// The same for IPv6, after its extension headers.
fn transport_v6(packet: &[u8]) -> Option<(u8, usize, Sum)> {
    let header = ipv6::View::parse(packet).ok()?;
    let upper = ipv6::upper(header.next_header(), packet.get(ipv6::HEADER_LEN..)?).ok()?;
    let start = ipv6::HEADER_LEN + upper.offset;
    let len = u32::try_from(packet.len().checked_sub(start)?).ok()?;
    let pseudo = ipv6_pseudo(&header.source(), &header.destination(), len, upper.protocol);
    upper.fragment.is_none().then_some((upper.protocol, start, pseudo))
}

#[cfg(test)]
mod tests {
    use etherparse::{Ipv4Options, PacketBuilder};

    use super::*;

    const CLIENT: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 7];
    const VIP: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10];

    /// RFC 1071 §4.1, word by word with an end-around carry each time.
    fn reference(parts: &[&[u8]]) -> u16 {
        let mut sum: u16 = 0;
        for pair in parts.iter().flat_map(|part| part.chunks(2)) {
            let word = u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]);
            let (wrapped, carry) = sum.overflowing_add(word);
            sum = wrapped + u16::from(carry);
        }
        sum
    }

    /// A packet as etherparse writes it, with the right checksum; and the offsets of its transport header and
    /// field.
    fn whole(v4: bool, tcp: bool, payload: &[u8]) -> (Vec<u8>, Partial) {
        let ip = if v4 {
            PacketBuilder::ipv4([192, 0, 2, 1], [203, 0, 113, 10], 64)
        } else {
            PacketBuilder::ipv6(CLIENT, VIP, 64)
        };
        let mut octets = Vec::new();
        if tcp {
            ip.tcp(4000, 443, 7, 100).write(&mut octets, payload).unwrap();
        } else {
            ip.udp(4000, 53).write(&mut octets, payload).unwrap();
        }
        (octets, Partial { start: if v4 { 20 } else { 40 }, field: if tcp { 16 } else { 6 } })
    }

    /// The same packet as its sender's kernel leaves it: the field contains the sum of the pseudo header.
    fn unfinished(whole: &[u8], partial: Partial) -> Vec<u8> {
        let addresses = if partial.start == 20 { &whole[12..20] } else { &whole[8..40] };
        let len = u16::try_from(whole.len() - partial.start).unwrap().to_be_bytes();
        let number = [0, if partial.field == 16 { 6 } else { 17 }];
        let mut frame = whole.to_vec();
        let offset = partial.start + partial.field;
        frame[offset..offset + 2].copy_from_slice(&reference(&[addresses, &len, &number]).to_be_bytes());
        frame
    }

    fn kinds() -> impl Iterator<Item = (bool, bool)> {
        [(true, true), (true, false), (false, true), (false, false)].into_iter()
    }

    #[test]
    fn finished_equals_what_an_independent_builder_writes() {
        for (v4, tcp) in kinds() {
            for len in 0..200_u8 {
                let payload: Vec<u8> = (0..len).map(|octet| octet.wrapping_mul(151)).collect();
                let (whole, partial) = whole(v4, tcp, &payload);
                let mut packet = unfinished(&whole, partial);
                assert_eq!(find(&packet), Some(partial), "{v4} {tcp} {len}");
                finish(&mut packet, partial);
                assert_eq!(packet, whole, "{v4} {tcp}, {len} octets of payload");
                assert_eq!(find(&whole), None, "{v4} {tcp} {len}: finished");
            }
        }
    }

    /// Of all payloads that differ in one word, a single one makes the right checksum equal the sum of the
    /// pseudo header.
    #[test]
    fn a_right_checksum_that_looks_unfinished_stays_as_it_is() {
        for (v4, tcp) in kinds() {
            let (mut packet, partial) = whole(v4, tcp, &[0; 2]);
            let pseudo = unfinished(&packet, partial);
            let offset = partial.start + partial.field;
            let wanted = u16::from_be_bytes([pseudo[offset], pseudo[offset + 1]]);
            // Checksum + payload is constant in one's complement, and the payload is 0 now.
            let now = u16::from_be_bytes([packet[offset], packet[offset + 1]]);
            let payload = reference(&[&now.to_be_bytes(), &(!wanted).to_be_bytes()]);
            packet = whole(v4, tcp, &payload.to_be_bytes()).0;
            assert_eq!(packet[offset..offset + 2], wanted.to_be_bytes(), "{v4} {tcp}: built to be equal");
            assert_eq!(find(&packet), Some(partial));
            let mut finished = packet.clone();
            finish(&mut finished, partial);
            assert_eq!(finished, packet, "{v4} {tcp}");
        }
    }

    #[test]
    fn udp_without_checksum_and_fragments_are_not_unfinished() {
        for v4 in [true, false] {
            let (mut packet, partial) = whole(v4, false, b"x");
            packet[partial.start + 6..partial.start + 8].fill(0);
            assert_eq!(find(&packet), None);
        }
        let (packet, partial) = whole(true, true, b"x");
        let mut fragment = unfinished(&packet, partial);
        for word in [0x2000_u16, 1, 0x1fff] {
            fragment[6..8].copy_from_slice(&word.to_be_bytes());
            assert_eq!(find(&fragment), None, "{word:04x}");
        }
        let atomic = [&fragment_header(false)[..], &packet[20..]].concat();
        assert_eq!(find(&v6(44, &atomic)).map(|found| found.start), None, "the checksum is that of IPv4");
        assert_eq!(find(&v6(44, &[&fragment_header(true)[..], &unfinished_segment()].concat())), None);
    }

    fn fragment_header(more: bool) -> [u8; 8] {
        [6, 0, 0, u8::from(more), 0, 0, 0, 1]
    }

    fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
        let len = u16::try_from(payload.len()).unwrap().to_be_bytes();
        [&[0x60, 0, 0, 0, len[0], len[1], next, 64][..], &CLIENT, &VIP, payload].concat()
    }

    /// 20 octets of TCP over IPv6, unfinished.
    fn unfinished_segment() -> Vec<u8> {
        let (whole, partial) = whole(false, true, b"");
        unfinished(&whole, partial)[40..].to_vec()
    }

    /// The pseudo header includes neither options nor extension headers.
    #[test]
    fn options_and_extension_headers_are_looked_through() {
        let mut whole = Vec::new();
        let header = etherparse::Ipv4Header {
            options: Ipv4Options::try_from(&[1; 8][..]).unwrap(),
            ..etherparse::Ipv4Header::new(
                0,
                64,
                etherparse::IpNumber::TCP,
                CLIENT[..4].try_into().unwrap(),
                [1, 2, 3, 4],
            )
            .unwrap()
        };
        PacketBuilder::ip(etherparse::IpHeaders::Ipv4(header, etherparse::Ipv4Extensions::default()))
            .tcp(1, 2, 3, 4)
            .write(&mut whole, b"abc")
            .unwrap();
        let pseudo = reference(&[&whole[12..20], &[0, 23, 0, 6]]);
        let mut packet = whole.clone();
        packet[44..46].copy_from_slice(&pseudo.to_be_bytes());
        let partial = Partial { start: 28, field: 16 };
        assert_eq!(find(&packet), Some(partial));
        finish(&mut packet, partial);
        assert_eq!(packet, whole);
        let extended = v6(60, &[&[6, 0, 1, 4, 0, 0, 0, 0][..], &unfinished_segment()].concat());
        assert_eq!(find(&extended), Some(Partial { start: 48, field: 16 }));
    }

    #[test]
    fn a_packet_cut_anywhere_is_not_unfinished_and_changes_nothing() {
        for (v4, tcp) in kinds() {
            let (whole, partial) = whole(v4, tcp, b"payload");
            let packet = unfinished(&whole, partial);
            for len in 0..packet.len() {
                // The length is part of the pseudo header.
                assert_eq!(find(&packet[..len]), None, "{v4} {tcp} cut at {len}");
            }
        }
    }

    #[test]
    fn a_sum_of_zero_is_written_as_all_ones() {
        let mut frame = [0xff; 4];
        finish(&mut frame, Partial { start: 0, field: 2 });
        assert_eq!(frame, [0xff; 4]);
    }

    #[test]
    fn numbers_that_point_outside_change_nothing() {
        let (frame, _) = whole(true, false, b"x");
        for (start, field) in
            [(frame.len() + 1, 0), (frame.len(), 0), (0, frame.len()), (0, usize::MAX), (20, 8)]
        {
            let mut changed = frame.clone();
            finish(&mut changed, Partial { start, field });
            assert_eq!(changed, frame, "start {start}, field {field}");
        }
    }
}
