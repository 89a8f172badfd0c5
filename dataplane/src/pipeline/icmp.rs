//! ICMP to a VIP: errors follow the flow that they quote, echo requests the addresses.
//!
//! A router on the path sends an error to the VIP that sent the packet. The error quotes at least the IP
//! header and eight octets. Reversed, the quoted addresses and ports are the flow as the client sends it:
//! same hash, same hops, same outer source port. So the error reaches the host of the connection.

use common::{
    bind::{Fragments, Protocol},
    flow::FlowKey,
};

use super::{DropReason, Echo, Packet, PassReason, Pipeline, Verdict};
use crate::wire::{
    icmp::{self, Kind},
    ipv4, ipv6,
    ports::Ports,
    protocol,
};

/// The packet that an error quotes.
#[derive(Debug, Clone, Copy)]
struct Quote {
    /// The flow as the client sends it: its source is the quoted packet's destination.
    flow: FlowKey,
    protocol: Protocol,
}

impl Pipeline {
    pub(super) fn process_icmp(
        &self,
        message: &[u8],
        packet: &Packet<'_>,
        header: Option<&ipv4::View<'_>>,
        out: &mut [u8],
    ) -> Verdict {
        let Some(table) = self.binds().vip(packet.destination()) else {
            return Verdict::Pass(PassReason::NoBind);
        };
        let kind =
            if packet.version == protocol::IPV4 { icmp::kind_v4(message) } else { icmp::kind_v6(message) };
        match kind {
            Some(Kind::Error) => self.process_error(message, packet, header, out),
            Some(Kind::EchoRequest) => self.process_echo(table, message, packet, header, out),
            Some(Kind::Other) => Verdict::Pass(PassReason::IcmpOther),
            None => Verdict::Drop(DropReason::Truncated),
        }
    }

    fn process_echo(
        &self,
        table: u32,
        message: &[u8],
        packet: &Packet<'_>,
        header: Option<&ipv4::View<'_>>,
        out: &mut [u8],
    ) -> Verdict {
        match self.echo() {
            Echo::Pass => Verdict::Pass(PassReason::Echo),
            Echo::Answer => self.answer_echo(message, packet, header, out),
            Echo::Forward => self.forward_rare(table, &packet.flow(), packet.label, packet, header, out),
        }
    }

    fn process_error(
        &self,
        message: &[u8],
        packet: &Packet<'_>,
        header: Option<&ipv4::View<'_>>,
        out: &mut [u8],
    ) -> Verdict {
        let unmatched = Verdict::Pass(PassReason::IcmpUnmatched);
        let quoted = icmp::quoted(message).unwrap_or(&[]);
        let quote = if packet.version == protocol::IPV4 { quote_v4(quoted) } else { quote_v6(quoted) };
        let Some(quote) = quote else { return unmatched };
        // An error goes to the sender of the quoted packet; with another destination it is about a foreign
        // flow.
        if quote.flow.dst_addr != packet.destination() {
            return unmatched;
        }
        let Some(table) = self.table_of(&quote) else { return unmatched };
        // Checks the router's address; the client's address is checked with the flow.
        if let Some(reason) = self.unfit(&packet.flow(), header) {
            return Verdict::Drop(reason);
        }
        let client_port = quote.flow.ports.map_or(0, |(client, _)| client);
        let about_error = Packet { answerable: false, ..*packet };
        self.forward_rare(table, &quote.flow, client_port, &about_error, header, out)
    }

    fn table_of(&self, quote: &Quote) -> Option<u32> {
        match quote.flow.ports {
            Some((_, port)) => self.binds().lookup(quote.flow.dst_addr, quote.protocol, port),
            None => match self.binds().fragment(quote.flow.dst_addr, quote.protocol) {
                Fragments::Table(table) if self.hashes_addresses(table) => Some(table),
                _ => None,
            },
        }
    }
}

fn quote_v4(quoted: &[u8]) -> Option<Quote> {
    let header = ipv4::View::parse(quoted).ok()?;
    let protocol = Protocol::from_number(header.protocol())?;
    let transport = quoted.get(header.header_len()..)?;
    let ports = quoted_ports(transport, header.is_later_fragment())?;
    let flow = FlowKey { src_addr: header.destination().into(), dst_addr: header.source().into(), ports };
    Some(Quote { flow, protocol })
}

fn quote_v6(quoted: &[u8]) -> Option<Quote> {
    let header = ipv6::View::parse(quoted).ok()?;
    let payload = quoted.get(ipv6::HEADER_LEN..)?;
    let upper = ipv6::upper(header.next_header(), payload).ok()?;
    let protocol = Protocol::from_number(upper.protocol)?;
    let transport = payload.get(upper.offset..)?;
    let ports = quoted_ports(transport, upper.fragment.is_some_and(|fragment| fragment.later))?;
    let flow = FlowKey { src_addr: header.destination().into(), dst_addr: header.source().into(), ports };
    Some(Quote { flow, protocol })
}

/// The ports as the client sends them. `Some(None)` for a later fragment, which has none; `None` if the quote
/// is too short.
#[allow(clippy::option_option, reason = "no ports and no quote are different answers")]
fn quoted_ports(transport: &[u8], later_fragment: bool) -> Option<Option<(u16, u16)>> {
    if transport.len() < icmp::QUOTED_TRANSPORT_LEN {
        return None;
    }
    if later_fragment {
        return Some(None);
    }
    let client = Ports::parse(transport)?.reversed();
    Some(Some((client.source, client.destination)))
}
