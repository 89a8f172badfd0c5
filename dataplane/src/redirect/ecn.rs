//! Copies a congestion mark from the outer header to the inner packet (RFC 6040 §4.2). Without that, a sender
//! would never learn of congestion inside the tunnel and never slow down.
//!
//! | inner ╲ outer | Not-ECT | ECT(0) | ECT(1) | CE |
//! |---|---|---|---|---|
//! | Not-ECT | Not-ECT | Not-ECT | Not-ECT | drop |
//! | ECT(0) | ECT(0) | ECT(0) | ECT(1) | CE |
//! | ECT(1) | ECT(1) | ECT(1) | ECT(1) | CE |
//! | CE | CE | CE | CE | CE |
//!
//! A forwarded packet gets the mark too, and its new outer header copies it from the packet, as decapsulation
//! followed by encapsulation would do.

use crate::wire::checksum::updated;

/// The ECN field is the low two bits of the traffic class; its values (RFC 3168).
const MASK: u8 = 0b11;
const NOT_ECT: u8 = 0b00;
const ECT_0: u8 = 0b10;
const ECT_1: u8 = 0b01;
const CE: u8 = 0b11;

/// The traffic class of the inner packet after decapsulation. `None` if the packet must be dropped, because
/// it is Not-ECT and cannot carry the mark.
pub(super) const fn decapsulated(outer: u8, inner: u8) -> Option<u8> {
    let ecn = match (outer & MASK, inner & MASK) {
        (CE, NOT_ECT) => return None,
        (CE, _) => CE,
        (ECT_1, ECT_0) => ECT_1,
        (_, inner) => inner,
    };
    Some(inner & !MASK | ecn)
}

/// Writes the traffic class of an IPv4 or IPv6 packet. Updates the IPv4 checksum; a right checksum stays
/// right (RFC 1624, equation 3).
pub(super) fn write(packet: &mut [u8], traffic_class: u8) {
    match packet {
        [first, second, ..] if *first >> 4 == 6 => {
            *first = *first & 0xf0 | traffic_class >> 4;
            *second = *second & 0x0f | traffic_class << 4;
        }
        [first, second, after @ ..] => {
            let word = |second: u8| u16::from_be_bytes([*first, second]);
            let (old, new) = (word(*second), word(traffic_class));
            *second = traffic_class;
            // The checksum is at octet 10 of the header.
            if let Some(checksum) = after.get_mut(8..10).and_then(|octets| octets.first_chunk_mut::<2>()) {
                *checksum = updated(u16::from_be_bytes(*checksum), old, new, || false).to_be_bytes();
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{IpHeaders, Ipv4Header, Ipv6Header};

    /// RFC 6040, figure 4, as text.
    #[test]
    fn every_pair_matches_the_rfc() {
        let figure = "
            inner    Not-ECT  ECT(0)   ECT(1)   CE
            Not-ECT  Not-ECT  Not-ECT  Not-ECT  drop
            ECT(0)   ECT(0)   ECT(0)   ECT(1)   CE
            ECT(1)   ECT(1)   ECT(1)   ECT(1)   CE
            CE       CE       CE       CE       CE";
        let value = |word: &str| ["Not-ECT", "ECT(1)", "ECT(0)", "CE"].iter().position(|name| *name == word);
        let value = |word: &str| value(word).map(|index| u8::try_from(index).unwrap());
        let mut lines = figure.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
        let outers = lines.next().unwrap();
        let mut pairs = 0;
        for line in lines {
            for (outer, result) in outers.iter().zip(&line).skip(1) {
                for dscp in 0..64 {
                    let expected = value(result).map(|ecn| dscp << 2 | ecn);
                    let (outer, inner) = (value(outer).unwrap(), value(line[0]).unwrap());
                    assert_eq!(decapsulated(dscp << 2 ^ 0x54 | outer, dscp << 2 | inner), expected);
                }
                pairs += 1;
            }
        }
        assert_eq!(pairs, 16);
    }

    #[test]
    fn every_traffic_class_is_written_and_nothing_else() {
        for (from, to) in (0..=255).flat_map(|from| (0..=255).map(move |to| (from, to))) {
            let (old, new) = (v4(from), v4(to));
            let mut packet = old.clone();
            write(&mut packet, to);
            assert_eq!(packet, new, "{from:#x} {to:#x}");
            let (mut packet, new) = (v6(from), v6(to));
            write(&mut packet, to);
            assert_eq!(packet, new, "{from:#x} {to:#x}");
        }
        for len in 0..20 {
            write(&mut v4(1)[..len], 0xff);
        }
    }

    /// A header with every field set. etherparse computes the checksum from scratch.
    fn v4(traffic_class: u8) -> Vec<u8> {
        let mut header = Ipv4Header::new(0, 0x55, 6.into(), [0xff; 4], [203, 0, 113, 10]).unwrap();
        header.dscp = (traffic_class >> 2).try_into().unwrap();
        header.ecn = (traffic_class & 3).try_into().unwrap();
        header.identification = 0xfffe;
        header.header_checksum = header.calc_header_checksum();
        header.to_bytes().to_vec()
    }

    fn v6(traffic_class: u8) -> Vec<u8> {
        let header = Ipv6Header {
            traffic_class,
            flow_label: 0xf_ffff.try_into().unwrap(),
            payload_length: 0xffff,
            hop_limit: 0xff,
            ..Ipv6Header::default()
        };
        let mut octets = Vec::new();
        IpHeaders::Ipv6(header, etherparse::Ipv6Extensions::default()).write(&mut octets).unwrap();
        octets
    }
}
