//! Fragments. Only the first fragment of a packet has its ports, fragments may arrive in any order, and a
//! director keeps no state between packets. So all fragments are forwarded by the addresses alone, provided
//! that the ports would lead to the same backend: the table hashes no port, and every bind of the VIP for
//! that protocol leads to the same table. Otherwise they are dropped and counted. Octets at the offset of the
//! ports are never read as ports in a fragment.
//!
//! The outer source port is computed with client port 0: all fragments of all packets between two hosts take
//! the same path.
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
        let Some(protocol) = Protocol::from_number(number) else {
            return self.process_unbound_fragment(number, packet);
        };
        match self.binds().fragment(packet.destination(), protocol) {
            Fragments::Table(table) if self.hashes_addresses(table) => {
                self.forward_rare(table, &packet.flow(), 0, packet, header, out)
            }
            Fragments::NoBind => Verdict::Pass(PassReason::NoBind),
            Fragments::Table(_) | Fragments::Ambiguous => Verdict::Drop(DropReason::Fragment),
        }
    }

    /// Drops fragments of ICMP to a VIP, because errors and echo requests cannot be distinguished, and
    /// fragments with extension headers, because only the first fragment has the whole chain.
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
