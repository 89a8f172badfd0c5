//! The new outer header of a forwarded packet: IP and UDP headers, and `next_hop` in GUE's private data. The
//! inner packet and the list of hops stay unchanged.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::wire::{gue, ipv4, ipv6, ports::Ports, protocol, udp};

/// Octets in front of each datagram: room for the IPv6 and UDP headers of a forwarded packet.
pub(super) const HEADROOM: usize = ipv6::HEADER_LEN + udp::HEADER_LEN;
/// Offset of `next_hop` in the GUE header.
const NEXT_HOP_OFFSET: usize = gue::HEADER_LEN + 2;

/// What the outer header of a forwarded packet is made from.
#[derive(Clone, Copy, Debug)]
pub(super) struct OuterHeader {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    /// The director's choice, kept so that the hosts' receive queues see the same flow.
    pub(super) source_port: u16,
    /// The inner packet's ECN (RFC 6040).
    pub(super) ecn: u8,
    /// The packet's new `next_hop`: the index after the hop that it is sent to.
    pub(super) next_hop: u8,
}

/// Writes the outer headers in front of the GUE header and sets its `next_hop`. Returns the number of octets
/// written. `message` has [`HEADROOM`] octets and then the GUE header. The header fields are those of a
/// director: DF, TTL 64, identification 0, DSCP 0, UDP checksum 0.
pub(super) fn write(message: &mut [u8], outer: &OuterHeader) -> Option<usize> {
    let udp_len = u16::try_from(message.len().checked_sub(HEADROOM)? + udp::HEADER_LEN).ok()?;
    let (headroom, gue) = message.split_first_chunk_mut::<HEADROOM>()?;
    let next_hop = gue.get_mut(NEXT_HOP_OFFSET)?;
    *next_hop = outer.next_hop;
    let ports = Ports { source: outer.source_port, destination: gue::PORT };
    let udp = udp::Header { ports, length: udp_len }.emit();
    headroom[ipv6::HEADER_LEN..].copy_from_slice(&udp);
    match (outer.source, outer.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let header = outer_v4(source, destination, outer.ecn, udp_len)?;
            headroom[ipv6::HEADER_LEN - ipv4::HEADER_LEN..ipv6::HEADER_LEN].copy_from_slice(&header);
            Some(ipv4::HEADER_LEN + udp::HEADER_LEN)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let header = outer_v6(source, destination, outer.ecn, udp_len);
            headroom[..ipv6::HEADER_LEN].copy_from_slice(&header);
            Some(HEADROOM)
        }
        _ => None,
    }
}

fn outer_v4(source: Ipv4Addr, to: Ipv4Addr, ecn: u8, udp_len: u16) -> Option<[u8; ipv4::HEADER_LEN]> {
    let header = ipv4::Header {
        traffic_class: ecn,
        total_len: udp_len.checked_add(20)?,
        identification: 0,
        dont_fragment: true,
        ttl: ipv4::DEFAULT_TTL,
        protocol: protocol::UDP,
        source: source.octets(),
        destination: to.octets(),
    };
    Some(header.emit())
}

fn outer_v6(source: Ipv6Addr, to: Ipv6Addr, ecn: u8, udp_len: u16) -> [u8; ipv6::HEADER_LEN] {
    let header = ipv6::Header {
        traffic_class: ecn,
        flow_label: 0,
        payload_len: udp_len,
        next_header: protocol::UDP,
        hop_limit: ipv6::DEFAULT_HOP_LIMIT,
        source: source.octets(),
        destination: to.octets(),
    };
    header.emit()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redirect::worker::tests::{A, VIP, datagram};
    use etherparse::{IpHeaders, NetSlice, SlicedPacket, TransportSlice};

    #[test]
    fn the_new_outer_header_is_complete_and_the_inner_packet_unchanged() {
        let datagram = datagram(0, &[A, [10, 0, 1, 2]], VIP);
        let mut message = vec![0xa5; HEADROOM];
        message.extend(&datagram);
        let (source, destination) = ("10.0.1.9".parse().unwrap(), "10.0.1.1".parse().unwrap());
        let outer = OuterHeader { source, destination, source_port: 0x8123, ecn: 2, next_hop: 1 };
        let used = write(&mut message, &outer).unwrap();
        let packet = SlicedPacket::from_ip(&message[HEADROOM - used..]).unwrap();
        let Some(NetSlice::Ipv4(ip)) = &packet.net else { panic!("no IPv4") };
        let (header, _) = IpHeaders::from_slice(&message[HEADROOM - used..]).unwrap();
        let header = header.ipv4().unwrap().0.clone();
        assert_eq!(header.header_checksum, header.calc_header_checksum());
        assert_eq!((header.source, header.destination), ([10, 0, 1, 9], A));
        assert_eq!((header.time_to_live, header.identification, header.dont_fragment), (64, 0, true));
        assert_eq!((ip.header().dcp().value(), ip.header().ecn().value()), (0, 2));
        let Some(TransportSlice::Udp(udp)) = &packet.transport else { panic!("no UDP") };
        assert_eq!((udp.source_port(), udp.destination_port(), udp.checksum()), (0x8123, 19_523, 0));
        let mut expected = datagram;
        expected[NEXT_HOP_OFFSET] = 1;
        assert_eq!(udp.payload(), expected);
    }

    #[test]
    fn an_ipv6_outer_header_is_written_and_mixed_families_are_not() {
        let mut message = vec![0xa5; HEADROOM];
        message.extend(datagram(0, &[A], VIP));
        let v6: IpAddr = "2001:db8::1".parse().unwrap();
        let v4: IpAddr = "10.0.1.9".parse().unwrap();
        let outer = |source, destination| OuterHeader {
            source,
            destination,
            source_port: 0xffff,
            ecn: 1,
            next_hop: 1,
        };
        assert_eq!(write(&mut message.clone(), &outer(v4, v6)), None);
        assert_eq!(write(&mut message, &outer(v6, v6)), Some(48));
        let packet = SlicedPacket::from_ip(&message).unwrap();
        let Some(NetSlice::Ipv6(ip)) = &packet.net else { panic!("no IPv6") };
        assert_eq!((ip.header().hop_limit(), ip.header().traffic_class()), (64, 1));
        let Some(TransportSlice::Udp(udp)) = &packet.transport else { panic!("no UDP") };
        assert_eq!(udp.payload()[NEXT_HOP_OFFSET], 1);
    }
}
