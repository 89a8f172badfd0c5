//! Octets on the wire, one header per file: layout, parse, emit, tests. This module does not interpret them.
//!
//! Contract: nothing in this module panics, allocates or loops without a limit, for any input. A view has its
//! whole header inside its slice. The caller compares lengths *written in* a header with the octets present,
//! because the policy for a wrong length differs from caller to caller.
//!
//! Headers are read through etherparse's per-header slices, one after the other, and written by small structs
//! that return an array, so that every octet of a header is written. All lengths are in octets; all numbers
//! are in host order unless a name says otherwise.

pub mod checksum;
pub mod ethernet;
pub mod gue;
pub mod icmp;
pub mod ipv4;
pub mod ipv6;
pub mod ports;
pub mod tcp;
pub mod udp;
pub mod unfinished;

/// Why a header cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireError {
    /// The slice ends before the header does.
    Truncated,
    /// A field that determines the layout, a version or a length, has an invalid value.
    Malformed,
}

/// IP protocol numbers in use (IANA "Protocol Numbers").
pub mod protocol {
    /// ICMP for IPv4.
    pub const ICMP: u8 = 1;
    /// IPv4 in a tunnel.
    pub const IPV4: u8 = 4;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// IPv6 in a tunnel.
    pub const IPV6: u8 = 41;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
}

/// Reads `N` octets at `offset`, if the slice has them.
#[inline]
fn octets<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk::<N>().copied()
}
