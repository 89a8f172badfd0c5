//! Frame in, verdict out: the whole policy, as a pure function.
//!
//! [`Pipeline::process`] reads a frame and the pipeline and writes to `out`. It allocates nothing, takes no
//! lock, reads no clock and makes no system call. Equal pipelines give equal verdicts on equal frames.
//!
//! ```text
//! frame ─► link header ─► IP header ─┬─ TCP, UDP ──► bind ─► table ─► hash ─► row ─► hops ─► encapsulated
//!                                    ├─ ICMP error ─► the quoted flow, reversed ────────┘
//!                                    ├─ echo request ─► the addresses ──────────────────┘
//!                                    ├─ fragment ─► the addresses, if they suffice ─────┘
//!                                    └─ otherwise ─► pass
//! ```
//!
//! Rules without exception:
//!
//! - Only packets to a VIP are dropped or answered. Every other packet passes to the host, valid or not.
//! - An outgoing frame has the prebuilt link header of its next hop; VLAN tags of the client's frame are not
//!   copied. An answer returns on the link that the frame came from, tags included.
//! - The checksum and the options of an IPv4 header are checked before encapsulation. Nothing checks them
//!   inside the tunnel, and a receiver that delivers the packet through a raw socket would overwrite a wrong
//!   checksum with a right one.
//! - A packet from an address that no client can have (`source`) is dropped: a service would answer itself.
//! - TTL and hop limit stay unchanged: client and server see their real distance.
mod answer;
mod compile;
mod counters;
mod encapsulate;
mod family;
mod fragment;
mod icmp;
pub(crate) mod source;
mod underlay;
mod verdict;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use common::{bind::Protocol, flow::FlowKey};

use family::{Address, Tuple};

pub(crate) use compile::Head;
pub use compile::Pipeline;
pub use counters::Counters;
pub(crate) use underlay::backends;
pub use underlay::{BackendKey, Echo, NextHop, Underlay};
pub(crate) use verdict::reasons;
pub use verdict::{Answer, DropReason, Encapsulated, PassReason, Verdict};

use crate::wire::{
    ethernet::{self, Frame},
    ipv4, ipv6,
    ports::Ports,
    protocol,
};

/// A parsed IP packet with valid lengths.
#[derive(Debug, Clone, Copy)]
struct Packet<'a> {
    /// Link header of its frame.
    link: &'a [u8],
    /// Header and payload, without padding.
    bytes: &'a [u8],
    /// The IP version as a protocol number: 4 or 41.
    version: u8,
    traffic_class: u8,
    /// IPv4 identification, or the low half of the flow label; replaces the client's port for packets without
    /// ports.
    label: u16,
    /// Whether an ICMP error may be sent about it.
    answerable: bool,
}

impl Packet<'_> {
    /// Source and destination. For cold paths only; the hot path has them parsed already.
    #[cold]
    fn addresses(&self) -> (IpAddr, IpAddr) {
        match (ipv4::View::parse(self.bytes), ipv6::View::parse(self.bytes)) {
            (Ok(header), _) => (header.source().into(), header.destination().into()),
            (_, Ok(header)) => (header.source().into(), header.destination().into()),
            // Unreachable: the packet was parsed before.
            _ => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()),
        }
    }

    /// The flow of its addresses, without ports.
    #[cold]
    fn flow(&self) -> FlowKey {
        let (src_addr, dst_addr) = self.addresses();
        FlowKey { src_addr, dst_addr, ports: None }
    }

    #[cold]
    fn destination(&self) -> IpAddr {
        self.addresses().1
    }
}

impl Pipeline {
    /// Decides a frame. If the verdict has a length, the result is in `out[..len]`; the other octets of `out`
    /// stay unchanged. [`Pipeline::room`] returns the length that `out` needs.
    #[inline]
    pub fn process(&self, frame: &[u8], out: &mut [u8]) -> Verdict {
        let Ok(link) = Frame::parse(frame) else { return Verdict::Pass(PassReason::Malformed) };
        match link.ether_type {
            ethernet::TYPE_IPV4 => self.process_v4(&link, out),
            ethernet::TYPE_IPV6 => self.process_v6(&link, out),
            _ => Verdict::Pass(PassReason::NotIp),
        }
    }

    #[inline(always)]
    fn process_v4(&self, link: &Frame<'_>, out: &mut [u8]) -> Verdict {
        let Ok(header) = ipv4::View::parse(link.payload) else { return Verdict::Pass(PassReason::Malformed) };
        let Some((bytes, payload)) = split(link.payload, header.header_len(), header.total_len()) else {
            return self.cut_short(header.destination().into(), header.protocol());
        };
        let packet = Packet {
            link: link.header(),
            bytes,
            version: protocol::IPV4,
            traffic_class: header.traffic_class(),
            label: header.identification(),
            answerable: !header.is_later_fragment(),
        };
        if header.is_fragment() {
            return self.process_fragment(header.protocol(), &packet, Some(&header), out);
        }
        let addresses = (Ipv4Addr::from(header.source()), Ipv4Addr::from(header.destination()));
        self.process_transport(header.protocol(), payload, addresses, &packet, Some(&header), out)
    }

    #[inline(always)]
    fn process_v6(&self, link: &Frame<'_>, out: &mut [u8]) -> Verdict {
        let Ok(header) = ipv6::View::parse(link.payload) else { return Verdict::Pass(PassReason::Malformed) };
        let Some((bytes, payload)) = split(link.payload, ipv6::HEADER_LEN, header.total_len()) else {
            return self.cut_short(header.destination().into(), header.next_header());
        };
        let packet = Packet {
            link: link.header(),
            bytes,
            version: protocol::IPV6,
            traffic_class: header.traffic_class(),
            label: header.flow_label_low(),
            answerable: true,
        };
        if ipv6::is_extension(header.next_header()) {
            return self.process_extensions(&header, payload, packet, out);
        }
        let addresses = (Ipv6Addr::from(header.source()), Ipv6Addr::from(header.destination()));
        self.process_transport(header.next_header(), payload, addresses, &packet, None, out)
    }

    #[cold]
    fn process_extensions(
        &self,
        header: &ipv6::View<'_>,
        payload: &[u8],
        mut packet: Packet<'_>,
        out: &mut [u8],
    ) -> Verdict {
        let upper = match ipv6::upper(header.next_header(), payload) {
            Ok(upper) => upper,
            Err(ipv6::ChainError::Truncated) => {
                return self.vip_only(packet.destination(), DropReason::Truncated);
            }
            Err(ipv6::ChainError::TooLong) => {
                return self.vip_only(packet.destination(), DropReason::ExtensionChain);
            }
        };
        if let Some(fragment) = upper.fragment {
            packet.answerable = !fragment.later;
            return self.process_fragment(upper.protocol, &packet, None, out);
        }
        let transport = payload.get(upper.offset..).unwrap_or_default();
        let addresses = (Ipv6Addr::from(header.source()), Ipv6Addr::from(header.destination()));
        self.process_transport(upper.protocol, transport, addresses, &packet, None, out)
    }

    /// `header` is given for IPv4 only: its checksum is checked once a bind matches.
    ///
    /// Inlined into its callers, so that the address family is a constant in each.
    #[inline(always)]
    fn process_transport<A: Address>(
        &self,
        number: u8,
        transport: &[u8],
        addresses: (A, A),
        packet: &Packet<'_>,
        header: Option<&ipv4::View<'_>>,
        out: &mut [u8],
    ) -> Verdict {
        let Some(protocol) = Protocol::from_number(number) else {
            return self.process_other(number, transport, packet, header, out);
        };
        let Some(ports) = Ports::parse(transport) else {
            return self.vip_only(addresses.1.into(), DropReason::Truncated);
        };
        let Some(table) = addresses.1.lookup(self.binds(), protocol, ports.destination) else {
            return Verdict::Pass(PassReason::NoBind);
        };
        let flow = Tuple { addresses, ports: (ports.source, ports.destination) };
        self.forward(table, &flow, ports.source, packet, header, out)
    }

    #[cold]
    fn process_other(
        &self,
        number: u8,
        transport: &[u8],
        packet: &Packet<'_>,
        header: Option<&ipv4::View<'_>>,
        out: &mut [u8],
    ) -> Verdict {
        match (number, packet.version) {
            (protocol::ICMP, protocol::IPV4) | (protocol::ICMPV6, protocol::IPV6) => {
                self.process_icmp(transport, packet, header, out)
            }
            _ => Verdict::Pass(PassReason::OtherProtocol),
        }
    }

    /// The verdict on a packet that is shorter than its header says. Nothing after the addresses was read, so
    /// only they decide.
    #[cold]
    fn cut_short(&self, destination: IpAddr, number: u8) -> Verdict {
        let is_handled =
            Protocol::from_number(number).is_some() || matches!(number, protocol::ICMP | protocol::ICMPV6);
        if is_handled || ipv6::is_extension(number) {
            return self.vip_only(destination, DropReason::Truncated);
        }
        Verdict::Pass(PassReason::OtherProtocol)
    }

    /// Drops a packet to a VIP and passes any other.
    #[cold]
    fn vip_only(&self, destination: IpAddr, reason: DropReason) -> Verdict {
        match self.binds().vip(destination) {
            Some(_) => Verdict::Drop(reason),
            None => Verdict::Pass(PassReason::NoBind),
        }
    }
}

/// The packet without padding, and its payload. `None` if the packet is incomplete, or ends inside its
/// header.
#[inline]
fn split(bytes: &[u8], header_len: usize, total_len: usize) -> Option<(&[u8], &[u8])> {
    let packet = bytes.get(..total_len)?;
    Some((packet, packet.get(header_len..)?))
}
