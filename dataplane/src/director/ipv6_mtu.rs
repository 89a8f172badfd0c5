//! The warning about an underlay whose MTU is too small for IPv6 clients.
//!
//! IPv6 has no MTU below 1,280 octets (RFC 8200 §5). A client may send packets of that size and cannot be
//! asked for smaller ones, so the underlay must carry them together with the tunnel headers.

use common::table::{ForwardingTable, Table};
use common::tunnel::overhead;

use crate::wire::ipv6::LEAST_MTU;

/// The requirement of a table on the underlay.
#[derive(Debug, PartialEq, Eq)]
struct Need<'a> {
    table: &'a str,
    /// Largest number of octets that the tunnel adds.
    overhead: u32,
}

impl Need<'_> {
    fn mtu(&self) -> u32 {
        self.overhead.saturating_add(LEAST_MTU.into())
    }
}

/// The warning for the operator if IPv6 clients lose packets over an underlay with this MTU.
pub(crate) fn warning(forwarding: &ForwardingTable, mtu: u16) -> Option<String> {
    let needs = forwarding.tables().iter().filter_map(need);
    let most = needs.max_by_key(|need| need.overhead).filter(|need| need.mtu() > mtu.into())?;
    Some(format!(
        "the underlay's MTU is {mtu} octets, and IPv6 clients of table {} need {}: packets of {LEAST_MTU} octets, which \
         every IPv6 host may send, and up to {} octets of tunnel headers. IPv6 packets that do not fit are dropped \
         (too_big) without an answer, because IPv6 allows none below {LEAST_MTU} (RFC 8201): these clients lose packets. \
         Raise the MTU of the path to every backend to at least {}",
        most.table,
        most.mtu(),
        most.overhead,
        most.mtu(),
    ))
}

/// The requirement of a table; `None` without IPv6 clients or without backends.
fn need(table: &Table) -> Option<Need<'_>> {
    let serves_ipv6 = table.binds.iter().any(|bind| bind.prefix.address().is_ipv6());
    let mut candidates = table.backends.iter().filter(|backend| backend.is_candidate()).peekable();
    let has_candidates = candidates.peek().is_some();
    let wide = candidates.any(|backend| backend.address.is_ipv6());
    let twice = !table.alt_hash_fields.is_empty();
    let overhead = overhead(table.max_hops.into(), wide, twice);
    (serves_ipv6 && has_candidates).then_some(Need { table: &table.name, overhead })
}

#[cfg(test)]
mod tests {
    use common::backend::{Backend, State};
    use common::bind::{Bind, PortRange, Prefix, Protocol};
    use common::flow::HashFields;
    use common::hash::SipKey;
    use common::table::{Lists, Ranking, Seed};

    use super::*;

    fn table(vip: &str, backend: &str, max_hops: u8) -> Table {
        let ports = PortRange::single(443);
        let prefix = Prefix::host(vip.parse().unwrap());
        Table {
            name: "web".to_owned(),
            max_hops,
            ranking: Ranking::Hrw,
            seed: Seed([1; 16]),
            hash_key: SipKey::new([2; 16]),
            hash_fields: HashFields::DEFAULT,
            alt_hash_fields: HashFields::NONE,
            spread_zones: false,
            max_share: None,
            lineage: Lists::empty(65_536, max_hops - 1),
            backends: vec![Backend::new("a", backend.parse().unwrap())],
            binds: vec![Bind { prefix, protocol: Protocol::Tcp, ports }],
            hops: Lists::empty(65_536, max_hops),
        }
    }

    fn warns(table: Table, mtu: u16) -> bool {
        warning(&ForwardingTable::new(None, vec![table]).unwrap(), mtu).is_some()
    }

    /// The sums are: packet, outer IP, UDP 8 + GUE 4 + private data 4, and the hops after the first.
    #[test]
    fn one_octet_less_than_needed_warns() {
        for (backend, hops, needed) in [
            ("10.0.0.1", 2, 1_280 + 20 + 16 + 4),
            ("10.0.0.1", 4, 1_280 + 20 + 16 + 12),
            ("fd00::1", 2, 1_280 + 40 + 16 + 16),
            ("fd00::1", 4, 1_280 + 40 + 16 + 48),
        ] {
            assert!(warns(table("2001:db8::10", backend, hops), needed - 1), "{backend} {hops}");
            assert!(!warns(table("2001:db8::10", backend, hops), needed), "{backend} {hops}");
        }
        let twice = Table { alt_hash_fields: HashFields::SRC_ADDR, ..table("2001:db8::10", "10.0.0.1", 2) };
        assert!(warns(twice.clone(), 1_327) && !warns(twice, 1_328));
    }

    #[test]
    fn tables_without_ipv6_clients_or_backends_need_nothing() {
        assert!(!warns(table("203.0.113.10", "10.0.0.1", 4), 576));
        let mut gone = table("2001:db8::10", "10.0.0.1", 4);
        gone.backends[0].state = State::Inactive;
        assert!(!warns(gone, 576));
    }

    #[test]
    fn the_warning_has_the_numbers_and_the_remedy() {
        let forwarding = ForwardingTable::new(None, vec![table("2001:db8::10", "fd00::1", 2)]).unwrap();
        let text = warning(&forwarding, 1_300).unwrap();
        for part in ["MTU is 1300", "table web need 1352", "72 octets", "at least 1352", "lose packets"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
