//! Addresses that no client can have. A packet to a VIP from such an address is forged or misrouted.
//!
//! | range | reason | source |
//! |---|---|---|
//! | 0.0.0.0/8, `::` | "this host", before it has an address | RFC 1122 §3.2.1.3 a, RFC 4291 §2.5.2 |
//! | 127.0.0.0/8, `::1` | loopback, never on a link | RFC 1122 §3.2.1.3 g, RFC 4291 §2.5.3 |
//! | 224.0.0.0/4, ff00::/8 | groups, never a source | RFC 1122 §3.2.1.3, RFC 4291 §2.7 |
//! | 240.0.0.0/4 | reserved, and 255.255.255.255 | RFC 1112 §4 |
//! | ::ffff:0:0/96 | an IPv4 address in an IPv6 socket, never on a link | RFC 4291 §2.5.5.2 |
//!
//! The reply to such a packet goes to the service itself, to a whole network, or to no host. Callers add
//! further addresses: the director the addresses of VIPs, the redirector the addresses of its host. Private
//! and link-local addresses pass: clients and routers have them. A router that reports an error has an
//! address of its own, so the same list applies to it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether a client can have this IPv4 address.
#[inline]
pub(crate) const fn is_client_v4(address: Ipv4Addr) -> bool {
    let [first, ..] = address.octets();
    // 1 to 223, except 127.
    first.wrapping_sub(1) < 223 && first != 127
}

/// Whether a client can have this IPv6 address.
#[inline]
pub(crate) const fn is_client_v6(address: Ipv6Addr) -> bool {
    let word = address.to_bits();
    // `::` and `::1` are 0 and 1; a mapped IPv4 address has the prefix 0xffff in bits 32 and up.
    word >> 120 != 0xff && word > 1 && word >> 32 != 0xffff
}

/// Whether a client can have this address.
pub(crate) const fn is_client(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_client_v4(v4),
        IpAddr::V6(v6) => is_client_v6(v6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn possible(text: &str) -> bool {
        is_client(text.parse().unwrap())
    }

    #[test]
    fn the_edges_of_every_range() {
        for no_client in [
            "0.0.0.0",
            "0.255.255.255",
            "127.0.0.0",
            "127.255.255.255",
            "224.0.0.0",
            "239.255.255.255",
            "240.0.0.0",
            "255.255.255.255",
            "::",
            "::1",
            "ff00::",
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "::ffff:0.0.0.0",
            "::ffff:198.51.100.7",
            "::ffff:255.255.255.255",
        ] {
            assert!(!possible(no_client), "{no_client}");
        }
        for client in [
            "1.0.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "223.255.255.255",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.0.1",
            "169.254.1.1",
            "100.64.0.1",
            "::2",
            "::fffe:ffff:ffff",
            "::1:0:0:0",
            "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "fe80::1",
            "fd00::1",
            "64:ff9b::c633:6407",
            "2001:db8::7",
        ] {
            assert!(possible(client), "{client}");
        }
    }

    /// Compares with the standard library's classification of each first octet.
    #[test]
    fn every_first_octet() {
        for first in 0..=u8::MAX {
            let address = Ipv4Addr::new(first, 1, 2, 3);
            let refused = first == 0 || first >= 240 || address.is_loopback() || address.is_multicast();
            assert_eq!(is_client_v4(address), !refused, "{address}");
        }
    }
}
