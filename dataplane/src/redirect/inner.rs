//! Reads the inner packet: its kind, and the flow of this host that it belongs to.
//!
//! A flow is named from this host's side: `local` is the VIP and its port, `remote` the client. An ICMP error
//! is about a packet that this service *sent*, so the quoted packet has the VIP as its source and its flow
//! needs no reversal. Nothing here panics, whatever the octets are.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use common::bind::Protocol;

use crate::wire::ports::Ports;
use crate::wire::{icmp, ipv4, ipv6, protocol, tcp, udp};

/// A transport flow between this host and a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// The service's address (a VIP) and port.
    pub local: SocketAddr,
    /// The client's address and port.
    pub remote: SocketAddr,
}

/// The kind of a packet, as far as the verdict depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A segment of this flow.
    Tcp(Flow, Segment),
    /// A datagram of this flow.
    Udp(Flow),
    /// An ICMP error about a packet that this service sent in this flow.
    Error(Flow),
    /// An echo request.
    Echo,
    /// A fragment. Only the first fragment has ports, so none is looked up; the kernel reassembles them.
    Fragment,
    /// Anything else; the kernel handles it.
    Other,
}

/// The fields of a TCP header that the verdict depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Sequence number.
    pub sequence: u32,
    /// Its flags.
    pub flags: tcp::Flags,
}

impl Segment {
    /// A segment with these flags (RFC 9293 §3.1, the low eight bits).
    pub const fn new(sequence: u32, flags: u8) -> Self {
        Self { sequence, flags: tcp::Flags(flags) }
    }
}

/// A packet whose lengths and IP header are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inner {
    /// Source address, as the packet claims.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Length in octets by its IP header; octets beyond that are padding.
    pub len: usize,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Whether it is an IPv4 packet with identification 0 that is a fragment or may become one.
    pub needs_identification: bool,
    /// Its kind.
    pub kind: Kind,
    /// Destination of the packet that an ICMP error quotes, of any protocol, if the VIP sent that packet.
    pub unreached: Option<IpAddr>,
}

/// Why an inner packet is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InnerError {
    /// It ends early, or its version is not the one that the GUE header announces.
    Truncated,
    /// The checksum of the IPv4 header is wrong.
    HeaderChecksum,
    /// The options of the IPv4 header cannot be read.
    Options,
}

impl Inner {
    /// Reads an IPv4 (`protocol` 4) or IPv6 (41) packet.
    pub fn parse(protocol: u8, octets: &[u8]) -> Result<Self, InnerError> {
        let ip = IpHeader::parse(octets).ok_or(InnerError::Truncated)?;
        if ip.source.is_ipv4() != (protocol == protocol::IPV4) {
            return Err(InnerError::Truncated);
        }
        let whole = octets.get(..ip.len).ok_or(InnerError::Truncated)?;
        let payload = whole.get(ip.header..).ok_or(InnerError::Truncated)?;
        let needs_identification = check_v4(protocol, whole)?;
        let fragment = ip.fragment.map(|_| Kind::Fragment);
        let unreached = if fragment.is_none() { unreached(&ip, payload) } else { None };
        let kind = fragment.or_else(|| kind(&ip, payload)).ok_or(InnerError::Truncated)?;
        let IpHeader { source, destination, len, traffic_class, .. } = ip;
        Ok(Self { source, destination, len, traffic_class, needs_identification, kind, unreached })
    }

    /// The addresses that must belong to other hosts: the sender (a client or a router), and the client that
    /// an ICMP error is about.
    pub fn remote_addresses(&self) -> impl Iterator<Item = IpAddr> {
        [Some(self.source), self.unreached].into_iter().flatten()
    }
}

/// Checks an IPv4 header, because a raw socket overwrites a wrong checksum with a right one and ignores
/// options. Returns whether the packet needs an identification.
fn check_v4(protocol: u8, packet: &[u8]) -> Result<bool, InnerError> {
    if protocol != protocol::IPV4 {
        return Ok(false);
    }
    let view = ipv4::View::parse(packet).map_err(|_| InnerError::Truncated)?;
    match (view.checksum_holds(), view.options_hold()) {
        (false, _) => Err(InnerError::HeaderChecksum),
        (true, false) => Err(InnerError::Options),
        (true, true) => Ok(view.identification() == 0 && !view.dont_fragment()),
    }
}

fn kind(ip: &IpHeader, payload: &[u8]) -> Option<Kind> {
    let message = |kind: Option<icmp::Kind>| {
        Some(match kind.filter(|_| payload.len() >= icmp::HEADER_LEN)? {
            icmp::Kind::EchoRequest => Kind::Echo,
            icmp::Kind::Error => quoted(ip, icmp::quoted(payload)?).map_or(Kind::Other, Kind::Error),
            icmp::Kind::Other => Kind::Other,
        })
    };
    match (ip.protocol, ip.source) {
        (protocol::TCP, _) => {
            let header = payload.first_chunk::<{ tcp::HEADER_LEN }>()?;
            Some(Kind::Tcp(ip.flow(Protocol::Tcp, header)?.reversed(), segment(header)))
        }
        (protocol::UDP, _) => {
            let header = payload.first_chunk::<{ udp::HEADER_LEN }>()?;
            Some(Kind::Udp(ip.flow(Protocol::Udp, header)?.reversed()))
        }
        (protocol::ICMP, IpAddr::V4(_)) => message(icmp::kind_v4(payload)),
        (protocol::ICMPV6, IpAddr::V6(_)) => message(icmp::kind_v6(payload)),
        _ => Some(Kind::Other),
    }
}

fn segment(header: &[u8; tcp::HEADER_LEN]) -> Segment {
    Segment::new(u32::from_be_bytes([header[4], header[5], header[6], header[7]]), header[13])
}

/// The flow of the packet that an ICMP error quotes. Eight octets after its IP header are enough. Its total
/// length is ignored, because routers shorten quotes.
fn quoted(ip: &IpHeader, quote: &[u8]) -> Option<Flow> {
    let quoted = IpHeader::parse(quote)?;
    // A later fragment has no ports. A packet that the VIP did not send is not about a flow of this host.
    if quoted.fragment == Some(FragmentPart::Later) || quoted.source != ip.destination {
        return None;
    }
    let protocol = Protocol::from_number(quoted.protocol)?;
    quoted.flow(protocol, quote.get(quoted.header..)?.get(..icmp::QUOTED_TRANSPORT_LEN)?)
}

/// The destination of the packet that an ICMP error quotes, if the VIP sent that packet. Quotes without ports
/// (a later fragment, another protocol) have one too.
fn unreached(ip: &IpHeader, payload: &[u8]) -> Option<IpAddr> {
    let kind = match (ip.protocol, ip.source) {
        (protocol::ICMP, IpAddr::V4(_)) => icmp::kind_v4(payload),
        (protocol::ICMPV6, IpAddr::V6(_)) => icmp::kind_v6(payload),
        _ => None,
    };
    let (source, destination) = ends(icmp::quoted(payload).filter(|_| kind == Some(icmp::Kind::Error))?)?;
    (source == ip.destination).then_some(destination)
}

/// Source and destination of a packet whose fixed header is complete.
fn ends(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    match packet.first()? >> 4 {
        4 => {
            let view = ipv4::View::parse(packet).ok()?;
            Some((Ipv4Addr::from(view.source()).into(), Ipv4Addr::from(view.destination()).into()))
        }
        6 => {
            let view = ipv6::View::parse(packet).ok()?;
            Some((Ipv6Addr::from(view.source()).into(), Ipv6Addr::from(view.destination()).into()))
        }
        _ => None,
    }
}

/// The fields of an IP header, including IPv6 extension headers.
struct IpHeader {
    source: IpAddr,
    destination: IpAddr,
    traffic_class: u8,
    /// Offset of the transport header, in octets.
    header: usize,
    /// Length of the packet in octets, by its header.
    len: usize,
    protocol: u8,
    fragment: Option<FragmentPart>,
}

/// Which part of a fragmented packet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FragmentPart {
    /// The fragment with the transport header.
    First,
    Later,
}

impl IpHeader {
    fn parse(octets: &[u8]) -> Option<Self> {
        match octets.first()? >> 4 {
            4 => Self::parse_v4(octets),
            6 => Self::parse_v6(octets),
            _ => None,
        }
    }

    fn parse_v4(octets: &[u8]) -> Option<Self> {
        let view = ipv4::View::parse(octets).ok()?;
        let part = if view.is_later_fragment() { FragmentPart::Later } else { FragmentPart::First };
        (view.header_len() <= view.total_len()).then(|| Self {
            source: Ipv4Addr::from(view.source()).into(),
            destination: Ipv4Addr::from(view.destination()).into(),
            traffic_class: view.traffic_class(),
            header: view.header_len(),
            len: view.total_len(),
            protocol: view.protocol(),
            fragment: view.is_fragment().then_some(part),
        })
    }

    fn parse_v6(octets: &[u8]) -> Option<Self> {
        let view = ipv6::View::parse(octets).ok()?;
        let upper = ipv6::upper(view.next_header(), octets.get(ipv6::HEADER_LEN..)?).ok()?;
        let part =
            |fragment: ipv6::Fragment| if fragment.later { FragmentPart::Later } else { FragmentPart::First };
        Some(Self {
            source: Ipv6Addr::from(view.source()).into(),
            destination: Ipv6Addr::from(view.destination()).into(),
            traffic_class: view.traffic_class(),
            header: ipv6::HEADER_LEN + upper.offset,
            len: view.total_len(),
            protocol: upper.protocol,
            fragment: upper.fragment.map(part),
        })
    }

    /// The flow as this packet's sender sees it.
    fn flow(&self, protocol: Protocol, transport: &[u8]) -> Option<Flow> {
        let ports = Ports::parse(transport)?;
        let local = SocketAddr::new(self.source, ports.source);
        let remote = SocketAddr::new(self.destination, ports.destination);
        Some(Flow { protocol, local, remote })
    }
}

impl Flow {
    const fn reversed(self) -> Self {
        Self { protocol: self.protocol, local: self.remote, remote: self.local }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use etherparse::{Icmpv4Header, Icmpv4Type, IpNumber, Ipv4Header, PacketBuilder};

    const CLIENT: [u8; 4] = [198, 51, 100, 7];
    const VIP: [u8; 4] = [203, 0, 113, 10];
    const CLIENT6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
    const VIP6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10];

    /// A SYN from port 50,000 to port 443.
    pub(crate) fn syn(from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
        let mut octets = Vec::new();
        PacketBuilder::ipv4(from, to, 64).tcp(50_000, 443, 7, 1_000).syn().write(&mut octets, &[]).unwrap();
        octets
    }

    /// Writes the checksum of an IPv4 header, as etherparse computes it.
    pub(crate) fn seal(packet: &mut [u8]) {
        let (header, _) = Ipv4Header::from_slice(packet).unwrap();
        packet[10..12].copy_from_slice(&header.calc_header_checksum().to_be_bytes());
    }

    fn flow(protocol: Protocol, v4: bool) -> Flow {
        let (vip, client): (IpAddr, IpAddr) =
            if v4 { (VIP.into(), CLIENT.into()) } else { (VIP6.into(), CLIENT6.into()) };
        Flow { protocol, local: (vip, 443).into(), remote: (client, 50_000).into() }
    }

    fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
        let mut octets = vec![0x60, 0, 0, 0];
        octets.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
        octets.extend([next, 64]);
        octets.extend(CLIENT6);
        octets.extend(VIP6);
        octets.extend(payload);
        octets
    }

    /// A TCP header with ACK set, sequence number 0x01020304.
    const ACK: [u8; 20] = [0xc3, 0x50, 1, 0xbb, 1, 2, 3, 4, 0, 0, 0, 0, 0x50, 0x10, 1, 0, 0, 0, 0, 0];

    #[test]
    fn flows_are_named_from_this_hosts_side() {
        let octets = syn(CLIENT, VIP);
        let inner = Inner::parse(4, &octets).unwrap();
        assert_eq!(inner.destination, IpAddr::from(VIP));
        assert_eq!(inner.kind, Kind::Tcp(flow(Protocol::Tcp, true), Segment::new(7, 2)));
        let inner = Inner::parse(41, &v6(6, &ACK)).unwrap();
        assert_eq!(inner.kind, Kind::Tcp(flow(Protocol::Tcp, false), Segment::new(0x0102_0304, 0x10)));
    }

    #[test]
    fn padding_is_no_part_of_the_packet() {
        let mut octets = syn(CLIENT, VIP);
        let len = octets.len();
        octets.extend([0; 6]);
        assert_eq!(Inner::parse(4, &octets).unwrap().len, len);
    }

    #[test]
    fn every_prefix_is_refused() {
        for (protocol, octets) in [(4, syn(CLIENT, VIP)), (41, v6(6, &ACK))] {
            for len in 0..octets.len() {
                assert_eq!(
                    Inner::parse(protocol, &octets[..len]),
                    Err(InnerError::Truncated),
                    "{len} octets"
                );
            }
        }
    }

    #[test]
    fn the_version_must_be_the_one_announced() {
        assert!(Inner::parse(41, &syn(CLIENT, VIP)).is_err());
        assert!(Inner::parse(4, &v6(6, &ACK)).is_err());
    }

    #[test]
    fn fragments_of_all_kinds() {
        let mut octets = syn(CLIENT, VIP);
        for (word, fragment) in [(0_u16, false), (0x4000, false), (0x2000, true), (1, true), (0x2001, true)] {
            octets[6..8].copy_from_slice(&word.to_be_bytes());
            seal(&mut octets);
            assert_eq!(Inner::parse(4, &octets).unwrap().kind == Kind::Fragment, fragment, "{word:#06x}");
        }
        let with_header = |word: u16| {
            let [high, low] = word.to_be_bytes();
            v6(44, &[&[6, 0, high, low, 0, 0, 0, 1], &ACK[..]].concat())
        };
        assert_eq!(Inner::parse(41, &with_header(1)).unwrap().kind, Kind::Fragment);
        assert_eq!(Inner::parse(41, &with_header(8)).unwrap().kind, Kind::Fragment);
        assert!(matches!(Inner::parse(41, &with_header(0)).unwrap().kind, Kind::Tcp(..)));
    }

    /// The service sends from the VIP; an error about such a packet quotes VIP and client.
    #[test]
    fn errors_follow_the_flow_that_they_quote() {
        let mut sent = Vec::new();
        PacketBuilder::ipv4(VIP, CLIENT, 64).tcp(443, 50_000, 1, 1).write(&mut sent, &[0; 100]).unwrap();
        // From a router on the path, with only eight octets of the TCP header, as in RFC 792.
        let error = |kind: Icmpv4Type, quote: &[u8]| {
            let icmp = Icmpv4Header::with_checksum(kind, quote);
            let payload = [icmp.to_bytes().as_slice(), quote].concat();
            let len = u16::try_from(payload.len()).unwrap();
            let mut ip = Ipv4Header::new(len, 60, IpNumber::ICMP, [192, 0, 2, 1], VIP).unwrap();
            ip.header_checksum = ip.calc_header_checksum();
            [ip.to_bytes().as_slice(), &payload].concat()
        };
        let too_big = Icmpv4Type::DestinationUnreachable(
            etherparse::icmpv4::DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: 1_400 },
        );
        let kind = |quote: &[u8]| Inner::parse(4, &error(too_big.clone(), quote)).unwrap().kind;
        assert_eq!(kind(&sent[..28]), Kind::Error(flow(Protocol::Tcp, true)));
        assert_eq!(kind(&sent), Kind::Error(flow(Protocol::Tcp, true)));
        assert_eq!(kind(&sent[..27]), Kind::Other, "no ports");
        assert_eq!(kind(&syn(CLIENT, VIP)), Kind::Other, "not sent by the VIP");
        sent[7] = 1; // A quoted header is not checked: routers change it.
        assert_eq!(kind(&sent), Kind::Other, "a later fragment");
        let unreached = |quote: &[u8]| Inner::parse(4, &error(too_big.clone(), quote)).unwrap().unreached;
        assert_eq!(unreached(&sent), Some(CLIENT.into()), "of a later fragment too");
        assert_eq!(unreached(&sent[..20]), Some(CLIENT.into()), "of a header alone too");
        assert_eq!(unreached(&syn(CLIENT, VIP)), None, "not sent by the VIP");
        let echo = Icmpv4Type::EchoRequest(etherparse::IcmpEchoHeader { id: 1, seq: 1 });
        assert_eq!(Inner::parse(4, &error(echo, b"ping")).unwrap().kind, Kind::Echo);
    }

    #[test]
    fn an_invalid_header_is_refused() {
        let good = syn(CLIENT, VIP);
        for bit in (0..20 * 8).filter(|bit| ![0, 2, 3].contains(&(bit / 8))) {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Inner::parse(4, &bad), Err(InnerError::HeaderChecksum), "bit {bit}");
        }
        for (options, expected) in [
            ([1, 1, 1, 0], Ok(())),
            ([7, 3, 4, 0], Ok(())),
            ([7, 5, 4, 0], Err(InnerError::Options)),
            ([7, 1, 0, 0], Err(InnerError::Options)),
        ] {
            let mut packet = [&good[..20], &options, &good[20..]].concat();
            packet[0] = 0x46;
            packet[3] += 4;
            seal(&mut packet);
            assert_eq!(Inner::parse(4, &packet).map(drop), expected, "{options:?}");
        }
    }

    #[test]
    fn the_identification_matters_where_a_packet_may_be_fragmented() {
        for (identification, word, expected) in [
            (0, 0, true),
            (0, 0x2000, true),
            (0, 185, true),
            (0, 0x4000, false),
            (1, 0, false),
            (0x100, 0, false),
        ] {
            let mut packet = syn(CLIENT, VIP);
            packet[4..6].copy_from_slice(&u16::to_be_bytes(identification));
            packet[6..8].copy_from_slice(&u16::to_be_bytes(word));
            seal(&mut packet);
            assert_eq!(
                Inner::parse(4, &packet).unwrap().needs_identification,
                expected,
                "{identification} {word:04x}"
            );
        }
        assert!(!Inner::parse(41, &v6(6, &ACK)).unwrap().needs_identification);
    }

    #[test]
    fn any_octets_are_survived() {
        use proptest::prelude::*;
        proptest!(|(protocol in prop_oneof![Just(4_u8), Just(41)], mut octets in prop::collection::vec(any::<u8>(), 0..200))| {
            if let (Some(first), true) = (octets.first_mut(), protocol == 4) { *first = 0x45; }
            if let Ok(inner) = Inner::parse(protocol, &octets) {
                prop_assert!(inner.len <= octets.len());
            }
        });
    }
}
