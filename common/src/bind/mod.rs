//! Which packets belong to a table: address prefix, protocol and port range, and the search for the best of them.
//!
//! Of all binds that match a packet the longest prefix wins, then the narrowest port range. Two binds that would
//! tie are refused when a configuration or a table file is read ([`BindIndex::new`]), so the order in which binds
//! are listed never matters.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use self::index::{BindIndex, BindTie, Fragments};

mod index;

/// A transport protocol that can be bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// RFC 9293.
    Tcp,
    /// RFC 768.
    Udp,
}

impl Protocol {
    /// Number in the IPv4 protocol and IPv6 next header fields.
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }

    /// The protocol with that number, if it can be bound.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            6 => Some(Self::Tcp),
            17 => Some(Self::Udp),
            _ => None,
        }
    }

    /// The word in configurations and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An address prefix without host bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    bits: u8,
}

impl Prefix {
    /// `address/bits`; none if `bits` is too large for the family or `address` has bits set beyond it.
    pub fn new(address: IpAddr, bits: u8) -> Option<Self> {
        (bits <= width(address) && mask(address, bits) == address).then_some(Self { address, bits })
    }

    /// The prefix that holds just this address.
    pub const fn host(address: IpAddr) -> Self {
        Self { address, bits: width(address) }
    }

    /// The first address.
    pub const fn address(self) -> IpAddr {
        self.address
    }

    /// Length in bits.
    pub const fn bits(self) -> u8 {
        self.bits
    }

    /// Does it hold one address only?
    pub const fn is_host(self) -> bool {
        self.bits == width(self.address)
    }

    /// Does it hold `address`? Never one of the other family.
    pub fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && mask(address, self.bits) == self.address
    }
}

impl fmt::Display for Prefix {
    /// `203.0.113.0/28`, or the bare address where it is the only one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_host() {
            return self.address.fmt(f);
        }
        write!(f, "{}/{}", self.address, self.bits)
    }
}

const fn width(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// `address` with all but its first `bits` bits cleared.
#[inline]
fn mask(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let keep = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
            Ipv4Addr::from_bits(v4.to_bits() & keep).into()
        }
        IpAddr::V6(v6) => {
            let keep = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
            Ipv6Addr::from_bits(v6.to_bits() & keep).into()
        }
    }
}

/// Ports `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// None where `first` comes after `last`.
    pub fn new(first: u16, last: u16) -> Option<Self> {
        (first <= last).then_some(Self { first, last })
    }

    /// The range of one port.
    pub const fn single(port: u16) -> Self {
        Self { first: port, last: port }
    }

    /// The lowest port.
    pub const fn first(self) -> u16 {
        self.first
    }

    /// The highest port.
    pub const fn last(self) -> u16 {
        self.last
    }

    /// Number of ports: 1…65,536.
    pub fn width(self) -> u32 {
        u32::from(self.last) - u32::from(self.first) + 1
    }

    /// Is `port` one of them?
    pub const fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }

    fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            return self.first.fmt(f);
        }
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// Packets to this prefix, protocol and port range belong to one table.
///
/// The derived order is the canonical order of binds in a table file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bind {
    /// Destination addresses.
    pub prefix: Prefix,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Destination ports.
    pub ports: PortRange,
}

impl Bind {
    /// Does a packet to this address, protocol and port match?
    pub fn matches(&self, address: IpAddr, protocol: Protocol, port: u16) -> bool {
        self.protocol == protocol && self.ports.contains(port) && self.prefix.contains(address)
    }

    /// Would neither bind win over the other for some packet?
    pub fn ties_with(&self, other: &Self) -> bool {
        self.prefix == other.prefix
            && self.protocol == other.protocol
            && self.ports.width() == other.ports.width()
            && self.ports.overlaps(other.ports)
    }
}

impl fmt::Display for Bind {
    /// `tcp 203.0.113.10:443`, `udp 203.0.113.0/28:5000-5010`, `tcp [2001:db8::10]:1-65535`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.prefix.address {
            IpAddr::V4(_) => write!(f, "{} {}:{}", self.protocol, self.prefix, self.ports),
            IpAddr::V6(_) => write!(f, "{} [{}]:{}", self.protocol, self.prefix, self.ports),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn bind(prefix: &str, bits: u8, protocol: Protocol, first: u16, last: u16) -> Bind {
        Bind {
            prefix: Prefix::new(prefix.parse().unwrap(), bits).unwrap(),
            protocol,
            ports: PortRange::new(first, last).unwrap(),
        }
    }

    #[test]
    fn host_bits_and_reversed_ranges_do_not_exist() {
        assert_eq!(Prefix::new("10.0.0.1".parse().unwrap(), 24), None);
        assert_eq!(Prefix::new("10.0.0.1".parse().unwrap(), 33), None);
        assert_eq!(Prefix::new("2001:db8::1".parse().unwrap(), 64), None);
        assert!(Prefix::new("0.0.0.0".parse().unwrap(), 0).is_some());
        assert!(Prefix::new("::".parse().unwrap(), 0).is_some());
        assert_eq!(PortRange::new(2, 1), None);
        assert_eq!(PortRange::new(0, 65_535).unwrap().width(), 65_536);
    }

    #[test]
    fn display_reads_like_an_address() {
        use Protocol::{Tcp, Udp};
        assert_eq!(bind("203.0.113.10", 32, Tcp, 443, 443).to_string(), "tcp 203.0.113.10:443");
        assert_eq!(bind("203.0.113.0", 28, Udp, 5000, 5010).to_string(), "udp 203.0.113.0/28:5000-5010");
        assert_eq!(bind("2001:db8::10", 128, Tcp, 1, 65_535).to_string(), "tcp [2001:db8::10]:1-65535");
    }
}
