//! The answers that a director itself sends: "packet too big" and echo replies.
//!
//! "Too big" has the VIP as its source, because the client's stack searches its connection by the quoted
//! packet, and because filters on the path let the VIP's packets through. Its IP header has no field of the
//! client's packet: fragment word 0 (a copied DF or offset makes firewalls, and other balancers, drop it) and
//! TTL 64. The identification is the ICMP checksum: DF is 0, so the answer may be fragmented, and fragments
//! of two answers must not be reassembled into one packet (RFC 6864 §4), unless the answers are equal. The
//! quote is as long as the RFCs ask for: 548 octets so that the answer has 576 (RFC 1812 §4.3.2.3), or up to
//! 1,280 in all for IPv6 (RFC 4443 §3.2). The client's packet exceeds an MTU that leaves room for a tunnel,
//! so an answer is almost never larger than the packet that caused it.
//!
//! Never answered (RFC 1122 §3.2.2, RFC 4443 §2.4 e): ICMP errors, fragments except the first, frames sent to
//! a group, and sources that are not a single host; packets of the latter are dropped before (see
//! [`source`](super::source)). IPv6 packets are not answered either if fewer than 1,280 octets fit (RFC 8201
//! §4): they are dropped, and the director warns about such an underlay. The caller that sends the answer
//! limits the rate, because that needs a clock.
//!
//! An IPv4 packet without DF is answered too. The director could fragment it, but its fragments would then
//! meet the policy for fragments. On this answer, Linux and BSD lower the MTU for the destination whether or
//! not the packet had DF.
//!
//! An echo reply has the identification and the DF of the request. A request without DF has an identification
//! that its sender uses once for this VIP and ICMP (RFC 6864 §4), so the reply's identification is used once
//! for this client and ICMP. If it is 0, the sender did not choose one, and the reply has the ICMP checksum there.
use std::net::IpAddr;

use super::{Answer, DropReason, Packet, PassReason, Pipeline, Verdict};
use crate::wire::{
    checksum::{Sum, ipv6_pseudo, updated},
    ethernet, icmp, ipv4, ipv6, protocol,
};

/// Traffic class "internetwork control", which routers use for ICMP errors (RFC 1812 §4.3.2.5).
const CONTROL: u8 = 0xc0;
/// Length of the largest ICMP error over IPv4, in octets (RFC 1812 §4.3.2.3).
const LARGEST_V4: usize = 576;
/// Length of the largest ICMPv6 error, in octets (RFC 4443 §2.4 c).
const LARGEST_V6: usize = ipv6::LEAST_MTU as usize;

impl Pipeline {
    /// Drops a packet that exceeds the MTU together with `overhead`, and answers it if that is allowed.
    #[cold]
    pub(super) fn too_big(&self, packet: &Packet<'_>, overhead: u16, out: &mut [u8]) -> Verdict {
        let fits = self.underlay().mtu.saturating_sub(overhead);
        let answers = packet.answerable && !is_to_group(packet) && may_report(packet, fits);
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
        if let Some(reason) = self.unfit(&packet.flow(), header) {
            return Verdict::Drop(reason);
        }
        if message.len() < icmp::HEADER_LEN {
            return Verdict::Drop(DropReason::Truncated);
        }
        if is_to_group(packet) {
            return Verdict::Pass(PassReason::Echo);
        }
        match write_echo(message, packet, header, out) {
            Some(len) => Verdict::Answer { answer: Answer::Echo, len },
            None => Verdict::Drop(DropReason::NoRoom),
        }
    }
}

/// Whether the frame was sent to a group of hosts. Each of them would answer.
fn is_to_group(packet: &Packet<'_>) -> bool {
    packet.link.first().is_none_or(|octet| octet & 1 != 0)
}

/// Whether an answer may report this MTU. IPv6 has no MTU below 1,280 octets, and hosts ignore an answer that
/// reports less (RFC 8201 §4). An answer that reports 1,280 would be wrong: such a packet does not fit
/// either.
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
    let ip = IpFields { traffic_class: CONTROL, identification: checksum.max(1), dont_fragment: false };
    write(packet, ip, with_checksum(icmp_header, checksum), quote, out)
}

fn write_echo(
    message: &[u8],
    packet: &Packet<'_>,
    header: Option<&ipv4::View<'_>>,
    out: &mut [u8],
) -> Option<u32> {
    let (old, data) = message.split_first_chunk::<{ icmp::HEADER_LEN }>()?;
    let new = match packet.addresses().0 {
        IpAddr::V4(_) => icmp::echo_reply_v4(old),
        IpAddr::V6(_) => icmp::echo_reply_v6(old),
    }?;
    // Only the first word changes, and swapped addresses have the same sum. So a wrong checksum stays wrong.
    let word = |bytes: &[u8; icmp::HEADER_LEN], offset: usize| {
        u16::from_be_bytes([bytes[offset], bytes[offset + 1]])
    };
    // The pseudo header of ICMPv6 is never zero; the reply to an IPv4 request may be.
    let all_zero = || header.is_some() && new.iter().chain(data).all(|octet| *octet == 0);
    let checksum = updated(word(old, 2), word(old, 0), word(&new, 0), all_zero);
    let dont_fragment = header.is_some_and(ipv4::View::dont_fragment);
    let identification = if dont_fragment || packet.label > 0 { packet.label } else { checksum.max(1) };
    let ip = IpFields { traffic_class: packet.traffic_class, identification, dont_fragment };
    write(packet, ip, with_checksum(new, checksum), data, out)
}

/// Fields of an answer's IP header. The last two exist in IPv4 only.
#[derive(Debug, Clone, Copy)]
struct IpFields {
    traffic_class: u8,
    identification: u16,
    dont_fragment: bool,
}

fn icmp_sum(packet: &Packet<'_>, icmp_len: usize) -> Sum {
    match packet.addresses() {
        (IpAddr::V6(to), IpAddr::V6(from)) => {
            let len = u32::try_from(icmp_len).expect("invariant: a message fits in an IP packet");
            ipv6_pseudo(&from.octets(), &to.octets(), len, protocol::ICMPV6)
        }
        _ => Sum::ZERO,
    }
}

fn with_checksum(mut header: [u8; icmp::HEADER_LEN], checksum: u16) -> [u8; icmp::HEADER_LEN] {
    header[2..4].copy_from_slice(&checksum.to_be_bytes());
    header
}

/// Writes link header, IP header from the VIP to the client, `icmp_header` and `data`. `None` if there is no
/// room.
fn write(
    packet: &Packet<'_>,
    ip: IpFields,
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
                traffic_class: ip.traffic_class,
                total_len: icmp_len.checked_add(20)?,
                identification: ip.identification,
                dont_fragment: ip.dont_fragment,
                ttl: ipv4::DEFAULT_TTL,
                protocol: protocol::ICMP,
                source: from.octets(),
                destination: to.octets(),
            }
            .emit(),
        )?,
        (IpAddr::V6(to), IpAddr::V6(from)) => writer.put(
            &ipv6::Header {
                traffic_class: ip.traffic_class,
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

    /// Appends the link header of a frame for the way back: the addresses swapped, tags and type unchanged.
    fn link(&mut self, link: &[u8]) -> Option<()> {
        let (destination, rest) = link.split_at_checked(6)?;
        let (source, rest) = rest.split_at_checked(ethernet::HEADER_LEN - 8)?;
        self.put(source)?;
        self.put(destination)?;
        self.put(rest)
    }
}
