//! Accepts, forwards or rejects a packet. Pure.
//!
//! The rules for a valid packet, in this order:
//!
//! 1. SYN without ACK: accept. A new connection belongs to the backend that the director chose.
//! 2. The kernel has a socket for the flow in any state but LISTEN: accept.
//! 3. A SYN of the flow was accepted here a moment ago and this ACK fits it: accept. The kernel answered with
//!    a SYN cookie and has no socket yet, but only this host's secret can check that cookie.
//! 4. The packet has no further hop: accept. The kernel answers RST, as it should for an unknown connection.
//! 5. The next hop is this host: accept.
//! 6. Otherwise: forward.
//!
//! An ICMP error follows the flow that it quotes (rules 2, 4, 5, 6). Echo requests, fragments and protocols
//! without ports are accepted. UDP is accepted unless `udp: socket` selects rules 2, 4, 5, 6 (see
//! [`Udp`](super::config::Udp)).

use std::net::IpAddr;

use super::inner::{Flow, Kind};
use crate::pipeline::reasons;

/// The verdict on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Deliver it to this host's kernel.
    Accept(Accept),
    /// Send it to this next hop.
    Forward(IpAddr),
    /// Discard it.
    Reject(Reject),
}

reasons! {
    /// Why a packet was accepted.
    Accept {
        /// It opens a connection.
        Syn = 0 "syn",
        /// The kernel has a socket for its flow.
        Socket = 1 "socket",
        /// It may complete a SYN cookie of this host.
        Cookie = 2 "cookie",
        /// The packet has no further hop.
        LastHop = 3 "last_hop",
        /// All remaining hops are this host.
        OwnHop = 4 "own_hop",
        /// A UDP datagram, under `udp: keep`.
        Udp = 5 "udp",
        /// An ICMP echo request.
        Echo = 6 "echo",
        /// A fragment, which the kernel reassembles.
        Fragment = 7 "fragment",
        /// Another protocol, or an ICMP message that quotes no flow.
        Other = 8 "other",
        /// `second_chance: off`.
        Off = 9 "off",
    }
}

reasons! {
    /// Why a packet was rejected.
    Reject {
        /// The sender is in none of the prefixes that may send it.
        Source = 0 "source",
        /// The datagram or the inner packet ends early.
        Truncated = 1 "truncated",
        /// GUE of another version.
        Version = 2 "version",
        /// A GUE control message.
        Control = 3 "control",
        /// A GUE flag is set.
        Flags = 4 "flags",
        /// `hlen` and `hop_count` disagree.
        Length = 5 "length",
        /// Unknown private data.
        PrivateType = 6 "private_type",
        /// More hops than `max_hops`.
        HopCount = 7 "hop_count",
        /// The inner packet is neither IPv4 nor IPv6.
        Protocol = 8 "protocol",
        /// The destination of the inner packet is no VIP.
        Destination = 9 "destination",
        /// `next_hop` is beyond the list, or the hop is in none of the prefixes `backends`.
        NextHop = 10 "next_hop",
        /// The outer header has a congestion mark that the inner packet cannot carry (RFC 6040 §4.2).
        Congestion = 11 "congestion",
        /// The source of the inner packet, or the client that an ICMP error is about, is an address that no
        /// client can have: see `ForbiddenSources` in [`clients`](super::clients).
        InnerSource = 12 "inner_source",
        /// The checksum of the inner IPv4 header is wrong.
        HeaderChecksum = 13 "header_checksum",
        /// The options of the inner IPv4 header cannot be read.
        Options = 14 "options",
        /// The inner packet is a datagram for this redirector's own socket: GUE in GUE.
        Tunnel = 15 "tunnel",
        /// The datagram arrived on the loopback interface, and its source is not an address of this host.
        Loopback = 16 "loopback",
    }
}

/// Result of a socket look-up in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketLookup {
    /// The flow has a socket in a state other than LISTEN.
    Found,
    /// The flow has no socket, or a listening one.
    NotFound,
}

/// What the decision depends on besides the packet.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Result of the look-up. Ignored for packets without a [`flow_to_look_up`].
    pub socket: SocketLookup,
    /// Whether the flow's SYN was accepted here and this segment can be the first after it.
    pub follows_syn: bool,
    /// The packet's next hop, if it has one.
    pub next: Option<IpAddr>,
    /// Whether all remaining hops are this host.
    pub next_is_own: bool,
}

/// The flow that must be looked up in the kernel before this packet is decided, if any.
pub fn flow_to_look_up(kind: &Kind, udp_sockets: bool) -> Option<Flow> {
    match *kind {
        Kind::Tcp(flow, segment) => (!segment.flags.opens()).then_some(flow),
        Kind::Udp(flow) => udp_sockets.then_some(flow),
        Kind::Error(flow) if flow.protocol == common::bind::Protocol::Udp => udp_sockets.then_some(flow),
        Kind::Error(flow) => Some(flow),
        Kind::Echo | Kind::Fragment | Kind::Other => None,
    }
}

/// Applies the rules above. `looked_up` is whether the packet has a [`flow_to_look_up`].
pub fn decide(kind: &Kind, looked_up: bool, facts: &Facts) -> Decision {
    if !looked_up {
        return Decision::Accept(match kind {
            Kind::Tcp(..) => Accept::Syn,
            Kind::Udp(_) | Kind::Error(_) => Accept::Udp,
            Kind::Echo => Accept::Echo,
            Kind::Fragment => Accept::Fragment,
            Kind::Other => Accept::Other,
        });
    }
    if facts.socket == SocketLookup::Found {
        return Decision::Accept(Accept::Socket);
    }
    if facts.follows_syn {
        return Decision::Accept(Accept::Cookie);
    }
    match facts.next {
        None => Decision::Accept(Accept::LastHop),
        Some(_) if facts.next_is_own => Decision::Accept(Accept::OwnHop),
        Some(next) => Decision::Forward(next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redirect::inner::Segment;
    use common::bind::Protocol;

    fn flow(protocol: Protocol) -> Flow {
        Flow { protocol, local: ([203, 0, 113, 10], 443).into(), remote: ([198, 51, 100, 7], 50_000).into() }
    }

    fn tcp(flags: u8) -> Kind {
        Kind::Tcp(flow(Protocol::Tcp), Segment::new(1, flags))
    }

    /// The rules again, as a list instead of branches, for all combinations of facts.
    #[test]
    fn the_first_rule_that_applies_decides() {
        let next: IpAddr = [10, 0, 0, 2].into();
        for bits in 0..32_u8 {
            let bit = |n: u8| bits >> n & 1 == 1;
            let (syn, known, follows_syn, has_hop, own) = (bit(0), bit(1), bit(2), bit(3), bit(4));
            let kind = tcp(if syn { 0x02 } else { 0x10 });
            let facts = Facts {
                socket: if known { SocketLookup::Found } else { SocketLookup::NotFound },
                follows_syn,
                next: has_hop.then_some(next),
                next_is_own: own,
            };
            let rules = [
                (syn, Decision::Accept(Accept::Syn)),
                (known, Decision::Accept(Accept::Socket)),
                (follows_syn, Decision::Accept(Accept::Cookie)),
                (!has_hop, Decision::Accept(Accept::LastHop)),
                (own, Decision::Accept(Accept::OwnHop)),
                (true, Decision::Forward(next)),
            ];
            let expected = rules.iter().find(|(applies, _)| *applies).unwrap().1;
            assert_eq!(
                decide(&kind, flow_to_look_up(&kind, false).is_some(), &facts),
                expected,
                "{facts:?} syn {syn}"
            );
        }
    }

    #[test]
    fn only_a_bare_syn_opens() {
        for flags in 0..=u8::MAX {
            let opens = flags & 0x02 != 0 && flags & 0x14 == 0;
            assert_eq!(flow_to_look_up(&tcp(flags), false).is_none(), opens, "{flags:#04x}");
        }
    }

    #[test]
    fn flows_that_are_looked_up() {
        let (tcp_flow, udp_flow) = (flow(Protocol::Tcp), flow(Protocol::Udp));
        for (kind, keep, socket) in [
            (Kind::Error(tcp_flow), Some(tcp_flow), Some(tcp_flow)),
            (Kind::Error(udp_flow), None, Some(udp_flow)),
            (Kind::Udp(udp_flow), None, Some(udp_flow)),
            (Kind::Echo, None, None),
            (Kind::Fragment, None, None),
            (Kind::Other, None, None),
        ] {
            assert_eq!(
                (flow_to_look_up(&kind, false), flow_to_look_up(&kind, true)),
                (keep, socket),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn packets_without_a_look_up_are_accepted_with_their_reason() {
        let facts = Facts {
            socket: SocketLookup::NotFound,
            follows_syn: false,
            next: Some([10, 0, 0, 2].into()),
            next_is_own: false,
        };
        for (kind, reason) in [
            (Kind::Udp(flow(Protocol::Udp)), Accept::Udp),
            (Kind::Echo, Accept::Echo),
            (Kind::Fragment, Accept::Fragment),
            (Kind::Other, Accept::Other),
        ] {
            assert_eq!(decide(&kind, false, &facts), Decision::Accept(reason));
        }
    }
}
