//! rtnetlink messages: the few that next hops need, built and read octet by octet. No panic on any input.
//!
//! ```text
//! nlmsghdr  u32 len · u16 type · u16 flags · u32 seq · u32 port                      16 octets, padded to 4
//! rtmsg     u8 family · u8 dst_len · u8 src_len · u8 tos · u8 table · u8 protocol · u8 scope · u8 type · u32 flags
//! ndmsg     u8 family · u8 0 · u16 0 · i32 ifindex · u16 state · u8 flags · u8 type
//! rtattr    u16 len · u16 type · value                                               padded to 4
//! ```
//!
//! All in the byte order of the host. Sources: RFC 3549, rtnetlink(7), linux/rtnetlink.h, linux/neighbour.h.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use common::bind::Prefix;

pub(super) const RTM_NEWNEIGH: u16 = libc::RTM_NEWNEIGH;
const RTA_DST: u16 = libc::RTA_DST;
const RTA_SRC: u16 = libc::RTA_SRC;
const RTA_IIF: u16 = libc::RTA_IIF;
const RTA_OIF: u16 = libc::RTA_OIF;
const RTA_GATEWAY: u16 = libc::RTA_GATEWAY;
const RTA_PREFSRC: u16 = libc::RTA_PREFSRC;
const RTA_METRICS: u16 = libc::RTA_METRICS;
const RTA_VIA: u16 = libc::RTA_VIA;
/// In RTA_METRICS (linux/rtnetlink.h).
const RTAX_MTU: u16 = 2;
const NDA_DST: u16 = libc::NDA_DST;
const NDA_LLADDR: u16 = libc::NDA_LLADDR;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// States in which a neighbour's address may be used: permanent, noarp, reachable, and those in which the kernel
/// still tries the old address (stale, delay, probe).
const USABLE: u16 = libc::NUD_PERMANENT
    | libc::NUD_NOARP
    | libc::NUD_REACHABLE
    | libc::NUD_STALE
    | libc::NUD_DELAY
    | libc::NUD_PROBE;

/// A message from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message<'a> {
    pub(super) kind: u16,
    pub(super) sequence: u32,
    pub(super) body: &'a [u8],
}

/// The messages of one datagram; ends at the first that is cut.
pub(super) fn messages(mut datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let len = usize::try_from(u32_at(datagram, 0)?).ok()?;
        let message = Message {
            kind: u16_at(datagram, 4)?,
            sequence: u32_at(datagram, 8)?,
            body: datagram.get(16..len)?,
        };
        datagram = datagram.get(len.checked_next_multiple_of(4)?..).unwrap_or_default();
        Some(message)
    })
}

/// The attributes behind a message's fixed part; ends at the first that is cut.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(u16_at(bytes, 0)?);
        let value = bytes.get(4..len)?;
        // The two high bits are flags: nested, and network byte order.
        let kind = u16_at(bytes, 2)? & 0x3fff;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// What NLMSG_ERROR says: 0 is an acknowledgement, else a negative errno.
pub(super) fn error(message: &Message<'_>) -> Option<i32> {
    let is_error = i32::from(message.kind) == libc::NLMSG_ERROR;
    is_error.then(|| u32_at(message.body, 0).unwrap_or_default().cast_signed())
}

/// How the kernel would send to an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Route {
    /// RTN_…: unicast, local, …
    pub(super) kind: u8,
    pub(super) ifindex: Option<u32>,
    pub(super) gateway: Option<IpAddr>,
    pub(super) source: Option<IpAddr>,
    /// Octets; only if the route lowers it.
    pub(super) mtu: Option<u32>,
}

impl Route {
    pub(super) fn read(message: &Message<'_>) -> Option<Self> {
        if message.kind != libc::RTM_NEWROUTE {
            return None;
        }
        let (fixed, rest) = message.body.split_first_chunk::<12>()?;
        let mut route = Self { kind: fixed[7], ..Self::default() };
        for (kind, value) in attributes(rest) {
            match kind {
                RTA_OIF => route.ifindex = u32_at(value, 0),
                RTA_GATEWAY => route.gateway = address(value),
                // A gateway of the other family: u16 family, then its address.
                RTA_VIA => route.gateway = address(value.get(2..)?),
                RTA_PREFSRC => route.source = address(value),
                RTA_METRICS => {
                    route.mtu = attributes(value)
                        .find_map(|(kind, value)| (kind == RTAX_MTU).then(|| u32_at(value, 0)).flatten());
                }
                _ => {}
            }
        }
        Some(route)
    }
}

/// The addresses of this host that a route of its local table stands for.
pub(super) fn local_prefix(message: &Message<'_>) -> Option<Prefix> {
    let (fixed, rest) = message.body.split_first_chunk::<12>()?;
    let &[family, bits, _, _, table, _, _, kind, ..] = fixed;
    if message.kind != libc::RTM_NEWROUTE || table != libc::RT_TABLE_LOCAL || kind != libc::RTN_LOCAL {
        return None;
    }
    let any =
        if family == AF_INET { IpAddr::from(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    let to = attributes(rest).find_map(|(kind, value)| (kind == RTA_DST).then(|| address(value)).flatten());
    Prefix::new(to.unwrap_or(any), bits)
}

/// Whether a dump ends with this message.
pub(super) fn is_done(message: &Message<'_>) -> bool {
    i32::from(message.kind) == libc::NLMSG_DONE
}

/// What the kernel knows about a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Neighbour {
    pub(super) ifindex: u32,
    pub(super) address: IpAddr,
    /// Where frames for it go now; none while it is unknown or failed.
    pub(super) mac: Option<[u8; 6]>,
    /// The operator set it, or its link needs none: the kernel never asks for it.
    pub(super) fixed: bool,
}

impl Neighbour {
    /// Reads an answer or a notification, of a new state or of its removal.
    pub(super) fn read(message: &Message<'_>) -> Option<Self> {
        if message.kind != RTM_NEWNEIGH && message.kind != libc::RTM_DELNEIGH {
            return None;
        }
        let ifindex = u32_at(message.body, 4)?;
        let state = u16_at(message.body, 8)?;
        let (mut to, mut mac) = (None, None);
        for (kind, value) in attributes(message.body.get(12..)?) {
            match kind {
                NDA_DST => to = address(value),
                NDA_LLADDR => mac = value.try_into().ok(),
                _ => {}
            }
        }
        let usable = message.kind == RTM_NEWNEIGH && state & USABLE != 0;
        let fixed = state & (libc::NUD_PERMANENT | libc::NUD_NOARP) != 0;
        Some(Self { ifindex, address: to?, mac: mac.filter(|_| usable), fixed })
    }
}

/// Asks how an address is reached.
pub(super) fn route_request(to: IpAddr, sequence: u32) -> Vec<u8> {
    let mut fixed = [0; 12];
    fixed[0] = family(to);
    fixed[1] = if to.is_ipv4() { 32 } else { 128 };
    request(libc::RTM_GETROUTE, 0, sequence, fixed, &[(RTA_DST, &octets(to))])
}

/// Asks what would become of a packet that comes in by an interface.
pub(super) fn arrival_request(from: IpAddr, to: IpAddr, ifindex: u32, sequence: u32) -> Vec<u8> {
    let bits = if to.is_ipv4() { 32 } else { 128 };
    let mut fixed = [0; 12];
    fixed[..3].copy_from_slice(&[family(to), bits, bits]);
    let attributes =
        [(RTA_DST, &*octets(to)), (RTA_SRC, &*octets(from)), (RTA_IIF, &ifindex.to_ne_bytes()[..])];
    request(libc::RTM_GETROUTE, 0, sequence, fixed, &attributes)
}

/// Asks for all routes of the local table of a family.
pub(super) fn local_request(v4: bool, sequence: u32) -> Vec<u8> {
    let mut fixed = [0; 12];
    fixed[0] = if v4 { AF_INET } else { AF_INET6 };
    fixed[4] = libc::RT_TABLE_LOCAL;
    fixed[7] = libc::RTN_LOCAL;
    request(libc::RTM_GETROUTE, libc::NLM_F_DUMP, sequence, fixed, &[])
}

/// Asks for one neighbour.
pub(super) fn neighbour_request(to: IpAddr, ifindex: u32, sequence: u32) -> Vec<u8> {
    let fixed = neighbour_header(to, ifindex, 0);
    request(libc::RTM_GETNEIGH, 0, sequence, fixed, &[(NDA_DST, &octets(to))])
}

/// Asks the kernel to behave as if it had just sent a packet to a neighbour: it finds its MAC address, or checks
/// that a stale one still holds. Acknowledged. Needs CAP_NET_ADMIN. Not for one that is [`fixed`](Neighbour::fixed): the
/// kernel would take it for an ordinary one, ask, and without an answer forget it.
pub(super) fn use_request(to: IpAddr, ifindex: u32, sequence: u32) -> Vec<u8> {
    let flags = libc::NLM_F_CREATE | libc::NLM_F_ACK;
    let fixed = neighbour_header(to, ifindex, libc::NTF_USE);
    request(RTM_NEWNEIGH, flags, sequence, fixed, &[(NDA_DST, &octets(to))])
}

fn neighbour_header(to: IpAddr, ifindex: u32, flags: u8) -> [u8; 12] {
    let mut fixed = [0; 12];
    fixed[0] = family(to);
    fixed[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    fixed[10] = flags;
    fixed
}

fn request(
    kind: u16,
    flags: libc::c_int,
    sequence: u32,
    fixed: [u8; 12],
    attributes: &[(u16, &[u8])],
) -> Vec<u8> {
    let flags = u16::try_from(flags | libc::NLM_F_REQUEST).unwrap_or_default();
    let mut message = vec![0; 4];
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend(sequence.to_ne_bytes());
    message.extend([0; 4]);
    message.extend(fixed);
    for (kind, value) in attributes {
        let len = u16::try_from(4 + value.len()).unwrap_or_default();
        message.extend(len.to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(*value);
        message.resize(message.len().next_multiple_of(4), 0);
    }
    let len = u32::try_from(message.len()).unwrap_or_default();
    message[..4].copy_from_slice(&len.to_ne_bytes());
    message
}

fn family(of: IpAddr) -> u8 {
    if of.is_ipv4() { AF_INET } else { AF_INET6 }
}

fn octets(of: IpAddr) -> Vec<u8> {
    match of {
        IpAddr::V4(of) => of.octets().to_vec(),
        IpAddr::V6(of) => of.octets().to_vec(),
    }
}

/// An address whose family its length tells.
fn address(value: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(value).ok().map(IpAddr::from);
    v4.or_else(|| <[u8; 16]>::try_from(value).ok().map(IpAddr::from))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answer(kind: u16, fixed: [u8; 12], attributes: &[(u16, &[u8])]) -> Vec<u8> {
        request(kind, 0, 7, fixed, attributes)
    }

    fn route() -> Vec<u8> {
        let mut fixed = [0; 12];
        fixed[7] = libc::RTN_UNICAST;
        let mtu = [&8_u16.to_ne_bytes()[..], &RTAX_MTU.to_ne_bytes(), &1400_u32.to_ne_bytes()].concat();
        let attributes: [(u16, &[u8]); 5] = [
            (RTA_DST, &[10, 0, 0, 11]),
            (RTA_OIF, &5_u32.to_ne_bytes()),
            (RTA_GATEWAY, &[192, 0, 2, 1]),
            (RTA_PREFSRC, &[192, 0, 2, 9]),
            (RTA_METRICS, &mtu),
        ];
        answer(libc::RTM_NEWROUTE, fixed, &attributes)
    }

    fn neighbour(kind: u16, state: u16) -> Vec<u8> {
        let mut fixed = neighbour_header("192.0.2.1".parse().unwrap(), 5, 0);
        fixed[8..10].copy_from_slice(&state.to_ne_bytes());
        answer(kind, fixed, &[(NDA_DST, &[192, 0, 2, 1]), (NDA_LLADDR, &[2, 0, 0, 0, 0, 1])])
    }

    fn read_all(datagram: &[u8]) -> (Vec<Route>, Vec<Neighbour>) {
        let routes = messages(datagram).filter_map(|message| Route::read(&message));
        let neighbours = messages(datagram).filter_map(|message| Neighbour::read(&message));
        (routes.collect(), neighbours.collect())
    }

    #[test]
    fn a_route_is_read_whole() {
        let expected = Route {
            kind: libc::RTN_UNICAST,
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
        let datagram = answer(libc::RTM_NEWROUTE, [0; 12], &[(RTA_VIA, &via)]);
        assert_eq!(read_all(&datagram).0[0].gateway, Some("fe80::1".parse().unwrap()));
    }

    #[test]
    fn a_neighbour_is_usable_in_the_states_in_which_the_kernel_uses_it() {
        for (state, usable) in [(0x01, false), (0x02, true), (0x04, true), (0x08, true), (0x10, true)]
            .into_iter()
            .chain([(0x20, false), (0x40, true), (0x80, true), (0, false)])
        {
            let read = read_all(&neighbour(RTM_NEWNEIGH, state)).1[0];
            assert_eq!(read.mac, usable.then_some([2, 0, 0, 0, 0, 1]), "state {state:#x}");
            assert_eq!(read.fixed, matches!(state, 0x40 | 0x80), "state {state:#x}");
        }
        assert_eq!(read_all(&neighbour(libc::RTM_DELNEIGH, libc::NUD_REACHABLE)).1[0].mac, None);
    }

    #[test]
    fn every_cut_of_an_answer_is_read_without_a_panic() {
        let datagram = [route(), neighbour(RTM_NEWNEIGH, libc::NUD_REACHABLE)].concat();
        assert_eq!(messages(&datagram).count(), 2);
        for cut in 0..datagram.len() {
            assert!(messages(&datagram[..cut]).count() < 2, "cut at {cut}");
            read_all(&datagram[..cut]);
        }
    }

    #[test]
    fn requests_are_padded_and_tell_their_length() {
        for to in ["10.0.0.1", "2001:db8::1"] {
            let to: IpAddr = to.parse().unwrap();
            let requests = [
                route_request(to, 1),
                arrival_request(to, to, 2, 3),
                neighbour_request(to, 2, 3),
                use_request(to, 2, 3),
            ];
            for request in requests {
                assert_eq!(request.len() % 4, 0);
                assert_eq!(messages(&request).count(), 1);
            }
        }
    }

    proptest! {
        #[test]
        fn random_octets_are_read_without_a_panic(datagram in proptest::collection::vec(any::<u8>(), 0..256)) {
            read_all(&datagram);
        }

        #[test]
        fn a_changed_octet_is_read_without_a_panic(at in 0..200_usize, value: u8) {
            let mut datagram = [route(), neighbour(RTM_NEWNEIGH, libc::NUD_REACHABLE)].concat();
            let at = at % datagram.len();
            datagram[at] = value;
            // A length of less than a header would never advance: it must end.
            prop_assert!(messages(&datagram).take(1000).count() < 1000);
            read_all(&datagram);
        }
    }
}
