//! What a director says itself: that a packet is too big, and echo replies.
//!
//! "Too big" comes from the VIP, because the client's stack asks which connection of its own the quoted packet
//! belongs to, and because filters on the way let the VIP's packets through. Its header is our own: identification
//! and fragment word 0 (a copied DF or offset makes firewalls, and other balancers, drop it), TTL 64, never the
//! client's fields. It quotes as much as the RFCs want: 548 octets so that the answer has 576 (RFC 1812 §4.3.2.3),
//! or up to 1,280 in all for IPv6 (RFC 4443 §3.2). The packet exceeds an MTU that leaves room for a tunnel, so an
//! answer is hardly ever larger than what caused it.
//!
//! Never answered (RFC 1122 §3.2.2, RFC 4443 §2.4 e): ICMP errors, fragments but the first, frames sent to a
//! group, sources that are no single host. Nor are IPv6 packets where less than 1,280 octets fit (RFC 8201 §4): they
//! are dropped, and the director warns about such an underlay. Whoever sends the answer limits its rate; that needs a
//! clock, so it is not done here.
//!
//! An IPv4 packet without DF is answered too. It could be cut, but then it would meet the policy for fragments;
//! told the MTU, Linux and BSD lower it for the destination whatever the packet's DF was.

use std::net::IpAddr;

use super::{Answer, DropReason, Packet, PassReason, Pipeline, Verdict};
use crate::wire::{
    checksum::{Sum, ipv6_pseudo},
    ethernet, icmp, ipv4, ipv6, protocol,
};

/// Internetwork control, as routers mark ICMP errors (RFC 1812 §4.3.2.5).
const CONTROL: u8 = 0xc0;
/// Largest ICMP error over IPv4 (RFC 1812 §4.3.2.3).
const LARGEST_V4: usize = 576;
/// Largest ICMPv6 error (RFC 4443 §2.4 c).
const LARGEST_V6: usize = ipv6::LEAST_MTU as usize;

impl Pipeline {
    /// Drops a packet that exceeds the MTU by its overhead, with an answer where one may be sent.
    #[cold]
    pub(super) fn too_big(&self, packet: &Packet<'_>, overhead: usize, out: &mut [u8]) -> Verdict {
        let fits = u16::try_from(self.mtu().saturating_sub(overhead)).unwrap_or(u16::MAX);
        let answers = packet.answerable && is_unicast(packet) && may_report(packet, fits);
        let len = if answers { write_too_big(packet, fits, out) } else { None };
        len.map_or(Verdict::Drop(DropReason::TooBig), |len| Verdict::Answer { answer: Answer::TooBig, len })
    }

    pub(super) fn answer_echo(
        &self,
        message: &[u8],
        packet: &Packet<'_>,
        header: Option<&ipv4::View<'_>>,
        out: &mut [u8],
    ) -> Verdict {
        if header.is_some_and(|header| !header.checksum_holds()) {
            return Verdict::Drop(DropReason::HeaderChecksum);
        }
        if message.len() < icmp::HEADER_LEN {
            return Verdict::Drop(DropReason::Truncated);
        }
        if !is_unicast(packet) {
            return Verdict::Pass(PassReason::Echo);
        }
        match write_echo(message, packet, out) {
            Some(len) => Verdict::Answer { answer: Answer::Echo, len },
            None => Verdict::Drop(DropReason::NoRoom),
        }
    }
}

/// Whether link and IP source are such that an answer reaches one host.
fn is_unicast(packet: &Packet<'_>) -> bool {
    let group_frame = packet.link.first().is_none_or(|octet| octet & 1 != 0);
    let single = match packet.addresses().0 {
        IpAddr::V4(a) => !(a.is_unspecified() || a.is_multicast() || a.is_loopback() || a.octets()[0] >= 240),
        IpAddr::V6(a) => !(a.is_unspecified() || a.is_multicast() || a.is_loopback()),
    };
    single && !group_frame
}

/// Whether an answer may say that this MTU fits. IPv6 has no smaller one than 1,280 octets, and hosts ignore an answer
/// with less (RFC 8201 §4). An answer with 1,280 would be wrong: such a packet does not fit either.
fn may_report(packet: &Packet<'_>, mtu: u16) -> bool {
    packet.addresses().0.is_ipv4() || mtu >= ipv6::LEAST_MTU
}

fn write_too_big(packet: &Packet<'_>, mtu: u16, out: &mut [u8]) -> Option<u32> {
    let (largest, header_len, icmp_header) = match packet.addresses().0 {
        IpAddr::V4(_) => (LARGEST_V4, ipv4::HEADER_LEN, icmp::fragmentation_needed(mtu)),
        IpAddr::V6(_) => (LARGEST_V6, ipv6::HEADER_LEN, icmp::packet_too_big(mtu.into())),
    };
    let room = largest - header_len - icmp::HEADER_LEN;
    let quote = packet.bytes.get(..room).unwrap_or(packet.bytes);
    let checksum =
        icmp_sum(packet, icmp::HEADER_LEN + quote.len()).octets(&icmp_header).octets(quote).checksum();
    write(packet, CONTROL, with_checksum(icmp_header, checksum), quote, out)
}

fn write_echo(message: &[u8], packet: &Packet<'_>, out: &mut [u8]) -> Option<u32> {
    let (old, data) = message.split_first_chunk::<{ icmp::HEADER_LEN }>()?;
    let new = match packet.addresses().0 {
        IpAddr::V4(_) => icmp::echo_reply_v4(old),
        IpAddr::V6(_) => icmp::echo_reply_v6(old),
    }?;
    // Only the first word changes, and swapped addresses sum to the same; so a wrong checksum stays wrong (RFC 1624).
    let word = |bytes: &[u8; icmp::HEADER_LEN], at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let checksum = Sum::ZERO.word(!word(old, 2)).word(!word(old, 0)).word(word(&new, 0)).checksum();
    write(packet, packet.traffic_class, with_checksum(new, checksum), data, out)
}

fn icmp_sum(packet: &Packet<'_>, icmp_len: usize) -> Sum {
    match packet.addresses() {
        (IpAddr::V6(to), IpAddr::V6(from)) => {
            let len = u32::try_from(icmp_len).unwrap_or(u32::MAX);
            ipv6_pseudo(&from.octets(), &to.octets(), len, protocol::ICMPV6)
        }
        _ => Sum::ZERO,
    }
}

fn with_checksum(mut header: [u8; icmp::HEADER_LEN], checksum: u16) -> [u8; icmp::HEADER_LEN] {
    header[2..4].copy_from_slice(&checksum.to_be_bytes());
    header
}

/// Writes link header, IP header from the VIP to the client, `icmp_header` and `data`. Nothing if there is no room.
fn write(
    packet: &Packet<'_>,
    traffic_class: u8,
    icmp_header: [u8; icmp::HEADER_LEN],
    data: &[u8],
    out: &mut [u8],
) -> Option<u32> {
    let mut writer = Writer { out, len: 0 };
    writer.link(packet.link)?;
    let icmp_len = u16::try_from(icmp::HEADER_LEN + data.len()).ok()?;
    match packet.addresses() {
        (IpAddr::V4(to), IpAddr::V4(from)) => writer.put(
            &ipv4::Header {
                traffic_class,
                total_len: icmp_len.checked_add(20)?,
                identification: 0,
                dont_fragment: false,
                ttl: ipv4::DEFAULT_TTL,
                protocol: protocol::ICMP,
                source: from.octets(),
                destination: to.octets(),
            }
            .emit(),
        )?,
        (IpAddr::V6(to), IpAddr::V6(from)) => writer.put(
            &ipv6::Header {
                traffic_class,
                flow_label: 0,
                payload_len: icmp_len,
                next_header: protocol::ICMPV6,
                hop_limit: ipv6::DEFAULT_HOP_LIMIT,
                source: from.octets(),
                destination: to.octets(),
            }
            .emit(),
        )?,
        _ => return None,
    }
    writer.put(&icmp_header)?;
    writer.put(data)?;
    u32::try_from(writer.len).ok()
}

/// Appends to a buffer that may be too small.
#[derive(Debug)]
struct Writer<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.len.checked_add(bytes.len())?;
        self.out.get_mut(self.len..end)?.copy_from_slice(bytes);
        self.len = end;
        Some(())
    }

    /// The link header of a frame, sent back: the addresses change places, tags and type stay.
    fn link(&mut self, link: &[u8]) -> Option<()> {
        let (destination, rest) = link.split_at_checked(6)?;
        let (source, rest) = rest.split_at_checked(ethernet::HEADER_LEN - 8)?;
        self.put(source)?;
        self.put(destination)?;
        self.put(rest)
    }
}
