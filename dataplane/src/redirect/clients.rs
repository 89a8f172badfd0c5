//! Addresses that no client of this host can have: those that no client has anywhere (`pipeline::source`), this host's own,
//! and VIPs that are named in full.
//!
//! The kernel refuses most of these where they come in by a wire ("martians"), but not all (an IPv6 packet from an own
//! address passes), and none of what is handed to it through a raw socket. A UDP service that gets a packet from itself
//! answers itself, without end.

use std::collections::HashSet;
use std::net::IpAddr;

use common::bind::Prefix;

use crate::pipeline::source::is_client;

/// The addresses of this host: what its local routing table holds, 127.0.0.0/8 and whole prefixes (`ip route add local`)
/// included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    hosts: HashSet<IpAddr>,
    prefixes: Vec<Prefix>,
}

impl Own {
    /// Is `address` this host's?
    pub fn contains(&self, address: IpAddr) -> bool {
        self.hosts.contains(&address) || self.prefixes.iter().any(|prefix| prefix.contains(address))
    }

    /// All of it, in no order.
    pub fn prefixes(&self) -> impl Iterator<Item = Prefix> {
        self.hosts.iter().copied().map(Prefix::host).chain(self.prefixes.iter().copied())
    }
}

impl FromIterator<Prefix> for Own {
    fn from_iter<T: IntoIterator<Item = Prefix>>(all: T) -> Self {
        let mut own = Self::default();
        for prefix in all {
            if prefix.is_host() {
                own.hosts.insert(prefix.address());
            } else if !own.prefixes.contains(&prefix) {
                own.prefixes.push(prefix);
            }
        }
        own.prefixes.sort_unstable();
        own
    }
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoClients<'a> {
    pub(super) own: &'a Own,
    pub(super) vips: &'a [Prefix],
}

impl NoClients<'_> {
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        let is_vip = |vip: &Prefix| vip.is_host() && vip.address() == address;
        !is_client(address) || self.own.contains(address) || self.vips.iter().any(is_vip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        let (address, bits) = text.split_once('/').unwrap();
        Prefix::new(address.parse().unwrap(), bits.parse().unwrap()).unwrap()
    }

    #[test]
    fn own_addresses_and_named_vips_are_no_clients() {
        let local = ["10.0.1.1/32", "127.0.0.0/8", "198.18.0.0/24", "2001:db8::1/128", "fd00:1::/64"];
        let own: Own = local.map(prefix).into_iter().collect();
        let vips = ["203.0.113.10/32", "203.0.114.0/24", "2001:db8::10/128", "2001:db8:5::/48"].map(prefix);
        let no_clients = NoClients { own: &own, vips: &vips };
        for address in [
            "10.0.1.1",
            "198.18.0.77",
            "203.0.113.10",
            "2001:db8::1",
            "2001:db8::10",
            "fd00:1::7",
            "127.9.9.9",
            "0.1.2.3",
            "::ffff:198.51.100.7",
        ] {
            assert!(no_clients.contains(address.parse().unwrap()), "{address}");
        }
        for address in ["10.0.1.2", "198.18.1.0", "203.0.113.11", "203.0.114.1", "2001:db8::2", "fd00:2::7"] {
            assert!(!no_clients.contains(address.parse().unwrap()), "{address}");
        }
        assert_eq!(own.prefixes().collect::<Own>(), own);
    }
}
