//! Source addresses that no client of this host can have: those that no client has anywhere
//! (`pipeline::source`), this host's own addresses, the broadcast and anycast addresses of its networks, and
//! VIPs that the configuration names as single addresses.
//!
//! The kernel refuses most of these where they arrive on a wire ("martians"), but not all (an IPv6 packet
//! from an own address passes), and none that it receives through a raw socket. A UDP service that receives a
//! packet from its own address answers itself without end.

use std::collections::HashSet;
use std::net::IpAddr;

use common::bind::Prefix;

use crate::host::route::LocalAddresses;
use crate::pipeline::source::is_client;

/// The addresses of this host, as its local routing table lists them. Includes 127.0.0.0/8 and whole prefixes
/// (`ip route add local`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostAddresses {
    hosts: HashSet<IpAddr>,
    prefixes: Vec<Prefix>,
    /// Broadcast and anycast addresses: of this host and others.
    shared: HashSet<IpAddr>,
}

impl HostAddresses {
    /// Whether `address` is an address of this host.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.hosts.contains(&address) || self.prefixes.iter().any(|prefix| prefix.contains(address))
    }

    /// This host's addresses and prefixes, in no particular order.
    pub fn prefixes(&self) -> impl Iterator<Item = Prefix> {
        self.hosts.iter().copied().map(Prefix::host).chain(self.prefixes.iter().copied())
    }

    /// This host's addresses and prefixes, and its broadcast and anycast addresses.
    pub fn forbidden(&self) -> impl Iterator<Item = Prefix> {
        self.prefixes().chain(self.shared.iter().copied().map(Prefix::host))
    }
}

impl From<LocalAddresses> for HostAddresses {
    fn from(all: LocalAddresses) -> Self {
        let shared =
            all.shared.into_iter().filter(|prefix| prefix.is_host()).map(|prefix| prefix.address()).collect();
        Self { shared, ..all.own.into_iter().collect() }
    }
}

impl FromIterator<Prefix> for HostAddresses {
    fn from_iter<T: IntoIterator<Item = Prefix>>(prefixes: T) -> Self {
        let mut own = Self::default();
        for prefix in prefixes {
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

/// Decides whether a source address can be a client's; see the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct ForbiddenSources<'a> {
    pub(super) own: &'a HostAddresses,
    pub(super) vips: &'a [Prefix],
}

impl ForbiddenSources<'_> {
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        let is_vip = |vip: &Prefix| vip.is_host() && vip.address() == address;
        !is_client(address)
            || self.own.contains(address)
            || self.own.shared.contains(&address)
            || self.vips.iter().any(is_vip)
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
    fn own_addresses_and_single_vips_are_not_clients() {
        let local = ["10.0.1.1/32", "127.0.0.0/8", "198.18.0.0/24", "2001:db8::1/128", "fd00:1::/64"];
        let own: HostAddresses = local.map(prefix).into_iter().collect();
        let vips = ["203.0.113.10/32", "203.0.114.0/24", "2001:db8::10/128", "2001:db8:5::/48"].map(prefix);
        let forbidden = ForbiddenSources { own: &own, vips: &vips };
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
            assert!(forbidden.contains(address.parse().unwrap()), "{address}");
        }
        for address in ["10.0.1.2", "198.18.1.0", "203.0.113.11", "203.0.114.1", "2001:db8::2", "fd00:2::7"] {
            assert!(!forbidden.contains(address.parse().unwrap()), "{address}");
        }
        assert_eq!(own.prefixes().collect::<HostAddresses>(), own);
    }

    #[test]
    fn broadcast_and_anycast_addresses_are_no_clients_and_not_this_hosts() {
        let own = vec![prefix("10.0.1.1/32")];
        let own = HostAddresses::from(LocalAddresses {
            own,
            shared: vec![prefix("10.0.1.255/32"), prefix("fd00::/128")],
        });
        for shared in ["10.0.1.255", "fd00::"].map(|text| text.parse().unwrap()) {
            assert!(
                ForbiddenSources { own: &own, vips: &[] }.contains(shared) && !own.contains(shared),
                "{shared}"
            );
            assert!(own.forbidden().any(|prefix| prefix.contains(shared)), "{shared}");
            assert!(!own.prefixes().any(|prefix| prefix.contains(shared)), "{shared}");
        }
    }
}
