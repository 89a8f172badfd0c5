//! rtnetlink messages: the requests and answers that next hops and local addresses need, by
//! `netlink-packet-route`. No panic on any input. Sources: RFC 3549, rtnetlink(7), linux/rtnetlink.h,
//! linux/neighbour.h.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use common::bind::Prefix;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourHeader, NeighbourMessage,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

/// States in which the kernel sends to the neighbour's address: permanent, noarp, reachable, and those in
/// which it still uses the old address (stale, delay, probe).
const USABLE: u16 = libc::NUD_PERMANENT
    | libc::NUD_NOARP
    | libc::NUD_REACHABLE
    | libc::NUD_STALE
    | libc::NUD_DELAY
    | libc::NUD_PROBE;

/// A message from the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// The number of the request that the message answers; 0 in a notification.
    pub(super) sequence: u32,
    /// `None`: the message cannot be decoded.
    payload: Option<NetlinkPayload<RouteNetlinkMessage>>,
}

/// The messages of a datagram; ends at the first truncated one.
pub(super) fn messages(mut datagram: &[u8]) -> impl Iterator<Item = Message> {
    std::iter::from_fn(move || {
        let header = NetlinkBuffer::new_checked(datagram).ok()?;
        let (len, sequence) = (usize::try_from(header.length()).ok()?, header.sequence_number());
        let payload = NetlinkMessage::deserialize(datagram.get(..len)?).ok().map(|message| message.payload);
        datagram = datagram.get(len.checked_next_multiple_of(4)?..).unwrap_or_default();
        Some(Message { sequence, payload })
    })
}

impl Message {
    /// The errno of a refusal, 0 of an acknowledgement; EBADMSG if the message cannot be decoded.
    pub(super) fn errno(&self) -> Option<i32> {
        match &self.payload {
            None => Some(libc::EBADMSG),
            Some(NetlinkPayload::Error(error)) => Some(error.raw_code().saturating_neg()),
            Some(_) => None,
        }
    }

    /// Whether a dump ends with this message.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.payload, Some(NetlinkPayload::Done(_)))
    }

    fn inner(&self) -> Option<&RouteNetlinkMessage> {
        match &self.payload {
            Some(NetlinkPayload::InnerMessage(inner)) => Some(inner),
            _ => None,
        }
    }
}

/// The kernel's route to an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) kind: RouteType,
    pub(super) ifindex: Option<u32>,
    pub(super) gateway: Option<IpAddr>,
    pub(super) source: Option<IpAddr>,
    /// In octets; `None` if the route does not lower it.
    pub(super) mtu: Option<u32>,
}

impl Route {
    pub(super) fn read(message: &Message) -> Option<Self> {
        let Some(RouteNetlinkMessage::NewRoute(found)) = message.inner() else { return None };
        let mut route = Self { kind: found.header.kind, ..Self::default() };
        for attribute in &found.attributes {
            match attribute {
                RouteAttribute::Oif(ifindex) => route.ifindex = Some(*ifindex),
                RouteAttribute::Gateway(gateway) => route.gateway = ip(gateway),
                // A gateway of the other family.
                RouteAttribute::Via(RouteVia::Inet(gateway)) => route.gateway = Some((*gateway).into()),
                RouteAttribute::Via(RouteVia::Inet6(gateway)) => route.gateway = Some((*gateway).into()),
                RouteAttribute::PrefSource(source) => route.source = ip(source),
                RouteAttribute::Metrics(metrics) => route.mtu = metrics.iter().find_map(mtu),
                _ => {}
            }
        }
        Some(route)
    }
}

fn mtu(metric: &RouteMetric) -> Option<u32> {
    match metric {
        RouteMetric::Mtu(octets) => Some(*octets),
        _ => None,
    }
}

/// The prefix of a route of the local table, and whether its addresses are this host's alone. A broadcast or
/// anycast address belongs to several hosts.
pub(super) fn local_prefix(message: &Message) -> Option<(Prefix, bool)> {
    let Some(RouteNetlinkMessage::NewRoute(RouteMessage { header, attributes, .. })) = message.inner() else {
        return None;
    };
    let is_own = match header.kind {
        RouteType::Local => true,
        RouteType::Broadcast | RouteType::Anycast => false,
        _ => return None,
    };
    if header.table != libc::RT_TABLE_LOCAL {
        return None;
    }
    let any = match header.address_family {
        AddressFamily::Inet => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        _ => Ipv6Addr::UNSPECIFIED.into(),
    };
    let destination = attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(address) => ip(address),
        _ => None,
    });
    Some((Prefix::new(destination.unwrap_or(any), header.destination_prefix_length)?, is_own))
}

/// The kernel's entry for a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Neighbour {
    pub(super) ifindex: u32,
    pub(super) address: IpAddr,
    /// Its link address; `None` while it is unknown or failed.
    pub(super) mac: Option<[u8; 6]>,
    /// Whether the operator set it, or its link needs no address: the kernel never sends a request for it.
    pub(super) fixed: bool,
}

impl Neighbour {
    /// Reads an answer, or a notification of a new state or a removal.
    pub(super) fn read(message: &Message) -> Option<Self> {
        let (neighbour, exists) = match message.inner()? {
            RouteNetlinkMessage::NewNeighbour(neighbour) => (neighbour, true),
            RouteNetlinkMessage::DelNeighbour(neighbour) => (neighbour, false),
            _ => return None,
        };
        let state = u16::from(neighbour.header.state);
        let (mut address, mut mac) = (None, None);
        for attribute in &neighbour.attributes {
            match attribute {
                NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => address = Some((*v4).into()),
                NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => address = Some((*v6).into()),
                NeighbourAttribute::LinkLayerAddress(octets) => mac = octets.as_slice().try_into().ok(),
                _ => {}
            }
        }
        let usable = exists && state & USABLE != 0;
        Some(Self {
            ifindex: neighbour.header.ifindex,
            address: address?,
            mac: mac.filter(|_| usable),
            fixed: state & (libc::NUD_PERMANENT | libc::NUD_NOARP) != 0,
        })
    }
}

/// Requests the route to an address.
pub(super) fn route_request(to: IpAddr, sequence: u32) -> Vec<u8> {
    let header = RouteHeader {
        address_family: family(to),
        destination_prefix_length: bits(to),
        ..RouteHeader::default()
    };
    get_route(header, vec![RouteAttribute::Destination(to.into())], 0, sequence)
}

/// Requests what the kernel would do with a packet that arrives on an interface.
pub(super) fn arrival_request(from: IpAddr, to: IpAddr, ifindex: u32, sequence: u32) -> Vec<u8> {
    let header = RouteHeader {
        address_family: family(to),
        destination_prefix_length: bits(to),
        source_prefix_length: bits(to),
        ..RouteHeader::default()
    };
    let attributes = vec![
        RouteAttribute::Destination(to.into()),
        RouteAttribute::Source(from.into()),
        RouteAttribute::Iif(ifindex),
    ];
    get_route(header, attributes, 0, sequence)
}

/// Requests all routes of the local table of a family.
pub(super) fn local_request(v4: bool, sequence: u32) -> Vec<u8> {
    let header = RouteHeader {
        address_family: if v4 { AddressFamily::Inet } else { AddressFamily::Inet6 },
        table: libc::RT_TABLE_LOCAL,
        ..RouteHeader::default()
    };
    get_route(header, Vec::new(), NLM_F_DUMP, sequence)
}

fn get_route(header: RouteHeader, attributes: Vec<RouteAttribute>, flags: u16, sequence: u32) -> Vec<u8> {
    let mut message = RouteMessage::default();
    message.header = header;
    message.attributes = attributes;
    encode(RouteNetlinkMessage::GetRoute(message), flags, sequence)
}

/// Requests a neighbour's entry.
pub(super) fn neighbour_request(to: IpAddr, ifindex: u32, sequence: u32) -> Vec<u8> {
    let message = neighbour_message(to, ifindex, NeighbourFlags::empty());
    encode(RouteNetlinkMessage::GetNeighbour(message), 0, sequence)
}

/// Makes the kernel behave as if it had just sent a packet to a neighbour: it looks for the MAC address, or
/// checks that a stale one still holds. Acknowledged. Needs CAP_NET_ADMIN. Not for a neighbour that is
/// [`fixed`](Neighbour::fixed): the kernel would treat it as an ordinary one, send a request, and forget it
/// without an answer.
pub(super) fn use_request(to: IpAddr, ifindex: u32, sequence: u32) -> Vec<u8> {
    let message = neighbour_message(to, ifindex, NeighbourFlags::Use);
    encode(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_ACK, sequence)
}

fn neighbour_message(to: IpAddr, ifindex: u32, flags: NeighbourFlags) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header = NeighbourHeader { family: family(to), ifindex, flags, ..NeighbourHeader::default() };
    let address = match to {
        IpAddr::V4(v4) => NeighbourAddress::Inet(v4),
        IpAddr::V6(v6) => NeighbourAddress::Inet6(v6),
    };
    message.attributes = vec![NeighbourAttribute::Destination(address)];
    message
}

fn encode(message: RouteNetlinkMessage, flags: u16, sequence: u32) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = flags | NLM_F_REQUEST;
    header.sequence_number = sequence;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
    message.finalize();
    let mut octets = vec![0; message.buffer_len()];
    message.serialize(&mut octets);
    octets
}

fn family(of: IpAddr) -> AddressFamily {
    if of.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn bits(of: IpAddr) -> u8 {
    if of.is_ipv4() { 32 } else { 128 }
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some((*v4).into()),
        RouteAddress::Inet6(v6) => Some((*v6).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RTA_DST: u16 = libc::RTA_DST;
    /// In RTA_METRICS.
    const RTAX_MTU: u16 = 2;

    /// A message octet by octet, after linux/netlink.h and linux/rtnetlink.h: nlmsghdr, a fixed part,
    /// attributes.
    fn raw(
        kind: u16,
        flags: libc::c_int,
        sequence: u32,
        fixed: [u8; 12],
        attributes: &[(u16, &[u8])],
    ) -> Vec<u8> {
        let flags = u16::try_from(flags | libc::NLM_F_REQUEST).unwrap();
        let mut message = vec![0; 4];
        message.extend(kind.to_ne_bytes());
        message.extend(flags.to_ne_bytes());
        message.extend(sequence.to_ne_bytes());
        message.extend([0; 4]);
        message.extend(fixed);
        for (kind, value) in attributes {
            let len = u16::try_from(4 + value.len()).unwrap();
            message.extend(len.to_ne_bytes());
            message.extend(kind.to_ne_bytes());
            message.extend(*value);
            message.resize(message.len().next_multiple_of(4), 0);
        }
        let len = u32::try_from(message.len()).unwrap();
        message[..4].copy_from_slice(&len.to_ne_bytes());
        message
    }

    fn answer(kind: u16, fixed: [u8; 12], attributes: &[(u16, &[u8])]) -> Vec<u8> {
        raw(kind, 0, 7, fixed, attributes)
    }

    fn route() -> Vec<u8> {
        let mut fixed = [0; 12];
        fixed[0] = 2; // AF_INET
        fixed[7] = libc::RTN_UNICAST;
        let mtu = [&8_u16.to_ne_bytes()[..], &RTAX_MTU.to_ne_bytes(), &1400_u32.to_ne_bytes()].concat();
        let attributes: [(u16, &[u8]); 5] = [
            (RTA_DST, &[10, 0, 0, 11]),
            (libc::RTA_OIF, &5_u32.to_ne_bytes()),
            (libc::RTA_GATEWAY, &[192, 0, 2, 1]),
            (libc::RTA_PREFSRC, &[192, 0, 2, 9]),
            (libc::RTA_METRICS, &mtu),
        ];
        answer(libc::RTM_NEWROUTE, fixed, &attributes)
    }

    fn neighbour(kind: u16, state: u16) -> Vec<u8> {
        let mut fixed = ndmsg(2, 5, 0);
        fixed[8..10].copy_from_slice(&state.to_ne_bytes());
        answer(kind, fixed, &[(libc::NDA_DST, &[192, 0, 2, 1]), (libc::NDA_LLADDR, &[2, 0, 0, 0, 0, 1])])
    }

    fn read_all(datagram: &[u8]) -> (Vec<Route>, Vec<Neighbour>) {
        let routes = messages(datagram).filter_map(|message| Route::read(&message));
        let neighbours = messages(datagram).filter_map(|message| Neighbour::read(&message));
        (routes.collect(), neighbours.collect())
    }

    #[test]
    fn every_field_of_a_route_is_read() {
        let expected = Route {
            kind: RouteType::Unicast,
            ifindex: Some(5),
            gateway: Some("192.0.2.1".parse().unwrap()),
            source: Some("192.0.2.9".parse().unwrap()),
            mtu: Some(1400),
        };
        assert_eq!(read_all(&route()).0, [expected]);
    }

    #[test]
    fn an_ipv4_route_may_have_an_ipv6_gateway() {
        let via = [&[10, 0][..], &[0xfe, 0x80], &[0; 13], &[1]].concat();
        let datagram = answer(libc::RTM_NEWROUTE, [0; 12], &[(libc::RTA_VIA, &via)]);
        assert_eq!(read_all(&datagram).0[0].gateway, Some("fe80::1".parse().unwrap()));
    }

    #[test]
    fn a_neighbour_is_usable_in_the_states_in_which_the_kernel_uses_it() {
        for (state, usable) in [(0x01, false), (0x02, true), (0x04, true), (0x08, true), (0x10, true)]
            .into_iter()
            .chain([(0x20, false), (0x40, true), (0x80, true), (0, false)])
        {
            let read = read_all(&neighbour(libc::RTM_NEWNEIGH, state)).1[0];
            assert_eq!(read.mac, usable.then_some([2, 0, 0, 0, 0, 1]), "state {state:#x}");
            assert_eq!(read.fixed, matches!(state, 0x40 | 0x80), "state {state:#x}");
        }
        assert_eq!(read_all(&neighbour(libc::RTM_DELNEIGH, libc::NUD_REACHABLE)).1[0].mac, None);
    }

    #[test]
    fn every_cut_of_an_answer_is_read_without_a_panic() {
        let datagram = [route(), neighbour(libc::RTM_NEWNEIGH, libc::NUD_REACHABLE)].concat();
        assert_eq!(messages(&datagram).count(), 2);
        for cut in 0..datagram.len() {
            assert!(messages(&datagram[..cut]).count() < 2, "cut at {cut}");
            read_all(&datagram[..cut]);
        }
    }

    /// u8 family · 3 × 0 · i32 ifindex · u16 state · u8 flags · u8 type
    fn ndmsg(family: u8, ifindex: u32, flags: u8) -> [u8; 12] {
        let [a, b, c, d] = ifindex.to_ne_bytes();
        [family, 0, 0, 0, a, b, c, d, 0, 0, flags, 0]
    }

    #[test]
    fn requests_are_what_the_headers_of_linux_say() {
        for (to, family, bits) in [("10.0.0.1", 2, 32), ("2001:db8::1", 10, 128)] {
            let to: IpAddr = to.parse().unwrap();
            let octets = match to {
                IpAddr::V4(v4) => v4.octets().to_vec(),
                IpAddr::V6(v6) => v6.octets().to_vec(),
            };
            // rtmsg: u8 family · dst_len · src_len · tos · table · protocol · scope · type · u32 flags
            let rtmsg = |from_bits, table, kind| [family, bits, from_bits, 0, table, 0, 0, kind, 0, 0, 0, 0];
            let get = |fixed, attributes: &[(u16, &[u8])]| raw(libc::RTM_GETROUTE, 0, 7, fixed, attributes);
            assert_eq!(route_request(to, 7), get(rtmsg(0, 0, 0), &[(RTA_DST, &octets)]));
            let [from, iif] = [(libc::RTA_SRC, &octets[..]), (libc::RTA_IIF, &9_u32.to_ne_bytes()[..])];
            let arrival = get(rtmsg(bits, 0, 0), &[(RTA_DST, &octets), from, iif]);
            assert_eq!(arrival_request(to, to, 9, 7), arrival);
            let mut all = rtmsg(0, libc::RT_TABLE_LOCAL, libc::RTN_UNSPEC);
            all[1] = 0;
            let dump = raw(libc::RTM_GETROUTE, libc::NLM_F_DUMP, 7, all, &[]);
            assert_eq!(local_request(to.is_ipv4(), 7), dump);
            let destination = [(libc::NDA_DST, &octets[..])];
            let neighbour = raw(libc::RTM_GETNEIGH, 0, 7, ndmsg(family, 9, 0), &destination);
            assert_eq!(neighbour_request(to, 9, 7), neighbour);
            let flags = libc::NLM_F_CREATE | libc::NLM_F_ACK;
            let used = raw(libc::RTM_NEWNEIGH, flags, 7, ndmsg(family, 9, libc::NTF_USE), &destination);
            assert_eq!(use_request(to, 9, 7), used);
        }
    }

    #[test]
    fn an_answer_that_cannot_be_decoded_is_an_error() {
        let short = answer(libc::RTM_NEWROUTE, [2; 12], &[(libc::RTA_OIF, &[5])]);
        let errors: Vec<_> = messages(&short).map(|message| (message.sequence, message.errno())).collect();
        assert_eq!(errors, [(7, Some(libc::EBADMSG))]);
        let refusal = [&(-libc::ENETUNREACH).to_ne_bytes()[..], &[0; 16]].concat();
        let mut datagram = raw(libc::NLMSG_ERROR.try_into().unwrap(), 0, 7, [0; 12], &[]);
        datagram.truncate(16);
        datagram.extend(refusal);
        let len = u32::try_from(datagram.len()).unwrap();
        datagram[..4].copy_from_slice(&len.to_ne_bytes());
        assert_eq!(messages(&datagram).next().unwrap().errno(), Some(libc::ENETUNREACH));
    }

    proptest! {
        #[test]
        fn random_octets_are_read_without_a_panic(datagram in proptest::collection::vec(any::<u8>(), 0..256)) {
            read_all(&datagram);
        }

        #[test]
        fn a_changed_octet_is_read_without_a_panic(at in 0..200_usize, value: u8) {
            let mut datagram = [route(), neighbour(libc::RTM_NEWNEIGH, libc::NUD_REACHABLE)].concat();
            let at = at % datagram.len();
            datagram[at] = value;
            // A length of less than a header would never advance: it must end.
            prop_assert!(messages(&datagram).take(1000).count() < 1000);
            read_all(&datagram);
        }
    }
}
