//! Keep it, pass it on, or refuse it. Pure.
//!
//! For a packet that may be here at all, in this order:
//!
//! 1. SYN without ACK: keep. New connections belong to whom the director chose.
//! 2. The kernel has a socket for the flow in any state but LISTEN: keep.
//! 3. The flow's SYN was kept here a moment ago and this ACK fits it: keep. The kernel answered with a SYN cookie
//!    and has no socket yet, but only this host's secret can read that cookie.
//! 4. No hop is left: keep. The kernel answers RST, as it should to what nobody knows.
//! 5. The next hop is this host: keep.
//! 6. Pass it on.
//!
//! An ICMP error follows the flow that it quotes (rules 2, 4, 5, 6). Echo requests, fragments and protocols without
//! ports are kept. UDP is kept unless `udp: socket` asks for rules 2, 4, 5, 6 (see [`Udp`](super::config::Udp)).

use std::net::IpAddr;

use super::inner::{Flow, Kind};
use crate::pipeline::reasons;

/// What is done with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// To this host's kernel.
    Keep(Keep),
    /// To the next hop, which is this.
    Forward(IpAddr),
    /// To nobody.
    Refuse(Refuse),
}

reasons! {
    /// Why a packet was kept.
    Keep {
        /// It opens a connection.
        Syn = 0 "syn",
        /// The kernel knows its flow.
        Socket = 1 "socket",
        /// It may complete a SYN cookie of this host.
        Cookie = 2 "cookie",
        /// Nobody is left to ask.
        LastHop = 3 "last_hop",
        /// All hops left are this host.
        OwnHop = 4 "own_hop",
        /// Datagrams are kept.
        Udp = 5 "udp",
        /// An ICMP echo request.
        Echo = 6 "echo",
        /// A fragment, which the kernel puts together.
        Fragment = 7 "fragment",
        /// Another protocol, or an ICMP message about no flow.
        Other = 8 "other",
        /// `second_chance: off`.
        Off = 9 "off",
    }
}

reasons! {
    /// Why a packet was refused.
    Refuse {
        /// The sender is in none of the prefixes that may send it.
        Source = 0 "source",
        /// The datagram or the packet inside ends early.
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
        /// Neither IPv4 nor IPv6 inside.
        Protocol = 8 "protocol",
        /// The packet inside is not for a VIP.
        Destination = 9 "destination",
        /// `next_hop` lies beyond the list, or the hop that it names is not one of `backends`.
        NextHop = 10 "next_hop",
        /// Congestion was marked on the way, and the packet inside cannot say so (RFC 6040 §4.2).
        Congestion = 11 "congestion",
        /// The source of the packet inside, or the client that an ICMP error is about, is an address that no client can
        /// have: see [`NoClients`](super::clients::NoClients).
        InnerSource = 12 "inner_source",
        /// The checksum of the inner IPv4 header is wrong.
        HeaderChecksum = 13 "header_checksum",
        /// The options of the inner IPv4 header cannot be read.
        Options = 14 "options",
        /// The packet inside is a datagram for this redirector's own socket: GUE in GUE.
        Tunnel = 15 "tunnel",
        /// The datagram came by the loopback interface, and its source is no address of this host.
        Loopback = 16 "loopback",
    }
}

/// What the kernel says about a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It has a socket in any state but LISTEN.
    Yes,
    /// It has none, or one that listens.
    No,
}

/// The facts that a decision is made of, beside the packet.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Does the kernel know the flow? Of no interest where [`asks`] gave none.
    pub known: Known,
    /// Did the flow's SYN come by here, and can this segment be the first after it?
    pub follows_syn: bool,
    /// The next hop, if one is left.
    pub next: Option<IpAddr>,
    /// Are all that are left this host?
    pub next_is_own: bool,
}

/// The flow that the kernel must be asked about before this packet is decided, if any.
pub fn asks(kind: &Kind, udp_sockets: bool) -> Option<Flow> {
    match *kind {
        Kind::Tcp(flow, segment) => (!segment.opens()).then_some(flow),
        Kind::Udp(flow) => udp_sockets.then_some(flow),
        Kind::Error(flow) if flow.protocol == common::bind::Protocol::Udp => udp_sockets.then_some(flow),
        Kind::Error(flow) => Some(flow),
        Kind::Echo | Kind::Fragment | Kind::Other => None,
    }
}

/// The rules above, for a packet that [`asks`] about a flow if `asked`.
pub fn decide(kind: &Kind, asked: bool, facts: &Facts) -> Decision {
    if !asked {
        return Decision::Keep(match kind {
            Kind::Tcp(..) => Keep::Syn,
            Kind::Udp(_) | Kind::Error(_) => Keep::Udp,
            Kind::Echo => Keep::Echo,
            Kind::Fragment => Keep::Fragment,
            Kind::Other => Keep::Other,
        });
    }
    if facts.known == Known::Yes {
        return Decision::Keep(Keep::Socket);
    }
    if facts.follows_syn {
        return Decision::Keep(Keep::Cookie);
    }
    match facts.next {
        None => Decision::Keep(Keep::LastHop),
        Some(_) if facts.next_is_own => Decision::Keep(Keep::OwnHop),
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

    /// The rules once more, by counting and not by branching: the first that applies, of all combinations of facts.
    #[test]
    fn the_first_rule_that_applies_decides() {
        let next: IpAddr = [10, 0, 0, 2].into();
        for bits in 0..32_u8 {
            let bit = |n: u8| bits >> n & 1 == 1;
            let (syn, known, follows_syn, left, own) = (bit(0), bit(1), bit(2), bit(3), bit(4));
            let kind = tcp(if syn { 0x02 } else { 0x10 });
            let facts = Facts {
                known: if known { Known::Yes } else { Known::No },
                follows_syn,
                next: left.then_some(next),
                next_is_own: own,
            };
            let rules = [
                (syn, Decision::Keep(Keep::Syn)),
                (known, Decision::Keep(Keep::Socket)),
                (follows_syn, Decision::Keep(Keep::Cookie)),
                (!left, Decision::Keep(Keep::LastHop)),
                (own, Decision::Keep(Keep::OwnHop)),
                (true, Decision::Forward(next)),
            ];
            let expected = rules.iter().find(|(applies, _)| *applies).unwrap().1;
            assert_eq!(decide(&kind, asks(&kind, false).is_some(), &facts), expected, "{facts:?} syn {syn}");
        }
    }

    #[test]
    fn only_a_bare_syn_opens() {
        for flags in 0..=u8::MAX {
            let opens = flags & 0x02 != 0 && flags & 0x14 == 0;
            assert_eq!(asks(&tcp(flags), false).is_none(), opens, "{flags:#04x}");
        }
    }

    #[test]
    fn what_the_kernel_is_asked_about() {
        let (tcp_flow, udp_flow) = (flow(Protocol::Tcp), flow(Protocol::Udp));
        for (kind, keep, socket) in [
            (Kind::Error(tcp_flow), Some(tcp_flow), Some(tcp_flow)),
            (Kind::Error(udp_flow), None, Some(udp_flow)),
            (Kind::Udp(udp_flow), None, Some(udp_flow)),
            (Kind::Echo, None, None),
            (Kind::Fragment, None, None),
            (Kind::Other, None, None),
        ] {
            assert_eq!((asks(&kind, false), asks(&kind, true)), (keep, socket), "{kind:?}");
        }
    }

    #[test]
    fn what_nobody_asks_about_is_kept_by_its_name() {
        let facts = Facts {
            known: Known::No,
            follows_syn: false,
            next: Some([10, 0, 0, 2].into()),
            next_is_own: false,
        };
        for (kind, reason) in [
            (Kind::Udp(flow(Protocol::Udp)), Keep::Udp),
            (Kind::Echo, Keep::Echo),
            (Kind::Fragment, Keep::Fragment),
            (Kind::Other, Keep::Other),
        ] {
            assert_eq!(decide(&kind, false, &facts), Decision::Keep(reason));
        }
    }
}
