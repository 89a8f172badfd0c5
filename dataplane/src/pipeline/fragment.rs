//! Fragments. Only the first part of a packet has its ports, and parts may come in any order; a director keeps
//! nothing between packets. So all parts go where the addresses alone lead, if that is where the ports would have
//! led: the table hashes no port, and every bind of the VIP for that protocol leads to the same table. Else they
//! are dropped and counted. What lies where ports would be is never read as ports.
//!
//! The outer source port stands for a client port of 0: all parts of all packets between two hosts take one way.

use common::bind::{Fragments, Protocol};

use super::{DropReason, Packet, PassReason, Pipeline, Verdict};
use crate::wire::{ipv4, ipv6, protocol};

impl Pipeline {
    #[cold]
    pub(super) fn process_fragment(
        &self,
        number: u8,
        packet: &Packet<'_>,
        header: Option<&ipv4::View<'_>>,
        out: &mut [u8],
    ) -> Verdict {
        let Some(bound) = Protocol::from_number(number) else {
            return self.process_unbound_fragment(number, packet);
        };
        match self.binds().fragment(packet.destination(), bound) {
            Fragments::Table(table) if self.hashes_addresses(table) => {
                self.forward_rare(table, &packet.flow(), 0, packet, header, out)
            }
            Fragments::NoBind => Verdict::Pass(PassReason::NoBind),
            Fragments::Table(_) | Fragments::Ambiguous => Verdict::Drop(DropReason::Fragment),
        }
    }

    /// ICMP in parts cannot be told apart into errors and echo requests, nor a chain of extension headers followed
    /// that only the first part has.
    fn process_unbound_fragment(&self, number: u8, packet: &Packet<'_>) -> Verdict {
        if matches!(number, protocol::ICMP | protocol::ICMPV6) || ipv6::is_extension(number) {
            return self.vip_only(packet.destination(), DropReason::Fragment);
        }
        Verdict::Pass(PassReason::OtherProtocol)
    }

    pub(super) fn hashes_addresses(&self, table: u32) -> bool {
        self.path(table).is_some_and(|path| !path.fields.has_port())
    }
}
