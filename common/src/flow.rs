//! Which fields of a packet choose its row.
//!
//! The flow hash is SipHash-2-4, with the table's key, over the enabled ones of
//!
//! ```text
//! source address ‖ destination address ‖ source port ‖ destination port
//! ```
//!
//! in that order and as they lie on the wire (4 or 16 octets an address, 2 a port, network order). The row is the low
//! bits of the hash. A packet without ports (an echo request, a fragment) leaves them out; if that leaves nothing,
//! both addresses are taken, so that such a packet always has a row.

use crate::hash::SipKey;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Octets of the largest key: two IPv6 addresses and two ports.
const MAX_KEY: usize = 36;

/// A set of packet fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct HashFields(u8);

impl HashFields {
    /// No field: for `alt_hash_fields`, no second look-up.
    pub const NONE: Self = Self(0);
    /// The client's address.
    pub const SRC_ADDR: Self = Self(1);
    /// The VIP.
    pub const DST_ADDR: Self = Self(2);
    /// The client's port.
    pub const SRC_PORT: Self = Self(4);
    /// The VIP's port.
    pub const DST_PORT: Self = Self(8);
    /// What is hashed unless the configuration says otherwise: client address and port.
    pub const DEFAULT: Self = Self(1 | 4);

    const NAMES: [(Self, &str); 4] = [
        (Self::SRC_ADDR, "src_addr"),
        (Self::DST_ADDR, "dst_addr"),
        (Self::SRC_PORT, "src_port"),
        (Self::DST_PORT, "dst_port"),
    ];

    /// The set with these bits (1 source address, 2 destination address, 4 source port, 8 destination port), if
    /// there are no others.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits < 16 { Some(Self(bits)) } else { None }
    }

    /// The bits, as in the table file.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The field of that name in configurations.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, known)| *known == name).map(|(field, _)| *field)
    }

    /// The fields of both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Are all of `other`'s fields in this set?
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Is no field in it?
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Does it hold a port? Such a set cannot place fragments.
    pub const fn has_port(self) -> bool {
        self.0 & (Self::SRC_PORT.0 | Self::DST_PORT.0) != 0
    }

    /// The fields that a packet without ports has: the addresses of this set, or both if there are none.
    #[must_use]
    pub const fn without_ports(self) -> Self {
        match self.0 & (Self::SRC_ADDR.0 | Self::DST_ADDR.0) {
            0 => Self(Self::SRC_ADDR.0 | Self::DST_ADDR.0),
            addresses => Self(addresses),
        }
    }

    /// Names of the fields, in the order in which they are hashed.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(field, _)| self.contains(*field)).map(|(_, name)| name)
    }
}

impl fmt::Display for HashFields {
    /// `[src_addr, src_port]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.names().collect();
        write!(f, "[{}]", names.join(", "))
    }
}

impl fmt::Debug for HashFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The fields of one packet, seen from the client: its source is the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// The client.
    pub src_addr: IpAddr,
    /// The VIP.
    pub dst_addr: IpAddr,
    /// The client's port and the VIP's, where the packet has any.
    pub ports: Option<(u16, u16)>,
}

/// The octets that are hashed: those of `input.as_slice()`.
#[derive(Clone, Copy, Debug)]
pub struct FlowInput {
    octets: [u8; MAX_KEY],
    len: usize,
}

impl FlowInput {
    /// The octets in hash order.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        self.octets.get(..self.len).unwrap_or_default()
    }

    #[inline]
    fn push<const N: usize>(&mut self, field: [u8; N]) {
        if let Some(free) = self.octets.get_mut(self.len..).and_then(|free| free.first_chunk_mut::<N>()) {
            *free = field;
            self.len += N;
        }
    }

    #[inline]
    fn push_address(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(v4) => self.push(v4.octets()),
            IpAddr::V6(v6) => self.push(v6.octets()),
        }
    }
}

impl FlowKey {
    /// The octets of `fields`, in hash order.
    #[inline]
    pub fn input(&self, fields: HashFields) -> FlowInput {
        let fields = if self.ports.is_some() { fields } else { fields.without_ports() };
        let mut input = FlowInput { octets: [0; MAX_KEY], len: 0 };
        if fields.contains(HashFields::SRC_ADDR) {
            input.push_address(self.src_addr);
        }
        if fields.contains(HashFields::DST_ADDR) {
            input.push_address(self.dst_addr);
        }
        if let Some((src, dst)) = self.ports {
            if fields.contains(HashFields::SRC_PORT) {
                input.push(src.to_be_bytes());
            }
            if fields.contains(HashFields::DST_PORT) {
                input.push(dst.to_be_bytes());
            }
        }
        input
    }

    /// Hashes `fields` of this packet with a table's key: [`FlowKey::input`], but put together in registers. A
    /// buffer that is written in octets and read in words stalls most processors.
    #[inline]
    pub fn hash(&self, key: SipKey, fields: HashFields) -> FlowHash {
        match (self.src_addr, self.dst_addr) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => hash_v4((src, dst), self.ports, key, fields),
            (IpAddr::V6(src), IpAddr::V6(dst)) => hash_v6((src, dst), self.ports, key, fields),
            _ => FlowHash(key.hash(self.input(fields).as_slice())),
        }
    }
}

/// [`FlowKey::hash`] of a flow that is known to be IPv4.
///
/// Always inlined: in the packet path the fields and the key are at hand, and a call costs 15 instructions.
#[inline(always)]
pub fn hash_v4(
    (src, dst): (Ipv4Addr, Ipv4Addr),
    ports: Option<(u16, u16)>,
    key: SipKey,
    fields: HashFields,
) -> FlowHash {
    let fields = if ports.is_some() { fields } else { fields.without_ports() };
    let (ports, ports_len) = ports_word(ports, fields);
    let src = fields.contains(HashFields::SRC_ADDR).then(|| u32::from_le_bytes(src.octets()));
    let dst = fields.contains(HashFields::DST_ADDR).then(|| u32::from_le_bytes(dst.octets()));
    hash_words_v4(key, src, dst, ports, ports_len)
}

/// [`FlowKey::hash`] of a flow that is known to be IPv6.
///
/// Always inlined: in the packet path the fields and the key are at hand, and a call costs 15 instructions.
#[inline(always)]
pub fn hash_v6(
    (src, dst): (Ipv6Addr, Ipv6Addr),
    ports: Option<(u16, u16)>,
    key: SipKey,
    fields: HashFields,
) -> FlowHash {
    let fields = if ports.is_some() { fields } else { fields.without_ports() };
    let (ports, ports_len) = ports_word(ports, fields);
    let src = fields.contains(HashFields::SRC_ADDR).then(|| words(src));
    let dst = fields.contains(HashFields::DST_ADDR).then(|| words(dst));
    hash_words_v6(key, src, dst, ports, ports_len)
}

/// The enabled ports in the low octets of a word, and how many octets they have.
#[inline(always)]
fn ports_word(ports: Option<(u16, u16)>, fields: HashFields) -> (u64, u64) {
    let Some((src, dst)) = ports else { return (0, 0) };
    let (src, dst) = (u64::from(src.swap_bytes()), u64::from(dst.swap_bytes()));
    match (fields.contains(HashFields::SRC_PORT), fields.contains(HashFields::DST_PORT)) {
        (false, false) => (0, 0),
        (true, false) => (src, 2),
        (false, true) => (dst, 2),
        (true, true) => (src | dst << 16, 4),
    }
}

/// The octets of an address as two little-endian words.
#[inline]
fn words(address: Ipv6Addr) -> [u64; 2] {
    let both = u128::from_le_bytes(address.octets());
    #[expect(clippy::cast_possible_truncation, reason = "the two halves of 128 bits")]
    [both as u64, (both >> 64) as u64]
}

#[inline(always)]
fn hash_words_v4(key: SipKey, src: Option<u32>, dst: Option<u32>, ports: u64, ports_len: u64) -> FlowHash {
    let hash = match (src, dst) {
        (Some(src), Some(dst)) => {
            key.hash_words(&[u64::from(src) | u64::from(dst) << 32], ports | (8 + ports_len) << 56)
        }
        // One address and both ports fill a word to its end, and the last word holds the length alone.
        (Some(one), None) | (None, Some(one)) if ports_len == 4 => {
            key.hash_words(&[u64::from(one) | ports << 32], 8 << 56)
        }
        (Some(one), None) | (None, Some(one)) => {
            key.hash_words(&[], u64::from(one) | ports << 32 | (4 + ports_len) << 56)
        }
        (None, None) => key.hash_words(&[], ports | ports_len << 56),
    };
    FlowHash(hash)
}

#[inline(always)]
fn hash_words_v6(
    key: SipKey,
    src: Option<[u64; 2]>,
    dst: Option<[u64; 2]>,
    ports: u64,
    ports_len: u64,
) -> FlowHash {
    let hash = match (src, dst) {
        (Some([a, b]), Some([c, d])) => key.hash_words(&[a, b, c, d], ports | (32 + ports_len) << 56),
        (Some(one), None) | (None, Some(one)) => key.hash_words(&one, ports | (16 + ports_len) << 56),
        (None, None) => key.hash_words(&[], ports | ports_len << 56),
    };
    FlowHash(hash)
}

/// The hash of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowHash(pub u64);

impl FlowHash {
    /// The row of a table with `rows` rows, a power of two.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the row is the low bits of the hash")]
    pub const fn row(self, rows: u32) -> u32 {
        self.0 as u32 & rows.wrapping_sub(1)
    }

    /// UDP source port of the outer header: `0x8000 | ((hash ^ client_port) & 0x7fff)`. It spreads flows over receive
    /// queues, and differs for two flows of one client even where only addresses are hashed.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "fifteen low bits are wanted")]
    pub const fn outer_source_port(self, client_port: u16) -> u16 {
        0x8000 | ((self.0 as u16 ^ client_port) & 0x7fff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(src: &str, port: u16, dst: &str) -> FlowKey {
        FlowKey { src_addr: src.parse().unwrap(), dst_addr: dst.parse().unwrap(), ports: Some((port, 80)) }
    }

    #[test]
    fn input_is_laid_out_as_on_the_wire() {
        let flow = flow("10.11.12.13", 45_678, "1.1.1.1");
        let all = HashFields::from_bits(15).unwrap();
        assert_eq!(flow.input(all).as_slice(), [10, 11, 12, 13, 1, 1, 1, 1, 0xb2, 0x6e, 0, 80]);
        assert_eq!(flow.input(HashFields::DEFAULT).as_slice(), [10, 11, 12, 13, 0xb2, 0x6e]);
        assert_eq!(flow.input(HashFields::DST_PORT).as_slice(), [0, 80]);
    }

    #[test]
    fn without_ports_the_addresses_remain() {
        let echo = FlowKey { ports: None, ..flow("10.0.0.1", 0, "10.0.0.2") };
        assert_eq!(echo.input(HashFields::DEFAULT).as_slice(), [10, 0, 0, 1]);
        assert_eq!(echo.input(HashFields::DST_ADDR).as_slice(), [10, 0, 0, 2]);
        assert_eq!(echo.input(HashFields::SRC_PORT).as_slice(), [10, 0, 0, 1, 10, 0, 0, 2]);
    }

    #[test]
    fn the_largest_key_fits() {
        let all = HashFields::from_bits(15).unwrap();
        assert_eq!(flow("2001:db8::1", 1, "2001:db8::2").input(all).as_slice().len(), MAX_KEY);
    }

    #[test]
    fn the_row_is_the_low_bits_and_the_port_the_low_fifteen() {
        let hash = FlowHash(0x0089_72f1_657a_5cbd);
        assert_eq!(hash.row(1 << 16), 0x5cbd);
        assert_eq!(hash.row(1 << 22), 0x3a_5cbd);
        assert_eq!(hash.outer_source_port(45_678), 0xeed3);
    }

    #[test]
    fn every_set_of_fields_reads_back_by_name() {
        for bits in 0..16 {
            let fields = HashFields::from_bits(bits).unwrap();
            let again =
                fields.names().filter_map(HashFields::from_name).fold(HashFields::NONE, HashFields::with);
            assert_eq!(again, fields);
        }
        assert_eq!(HashFields::from_bits(16), None);
        assert_eq!(HashFields::DEFAULT.to_string(), "[src_addr, src_port]");
    }

    #[test]
    fn the_hash_is_that_of_the_input() {
        let key = SipKey::new([0x5c; 16]);
        for (src, dst) in
            [("10.11.12.13", "1.2.3.4"), ("2001:db8:1:2:3:4:5:6", "fe80::7:8"), ("10.1.2.3", "::5")]
        {
            for ports in [None, Some((0x1234, 0xabcd)), Some((0, 0))] {
                let flow = FlowKey { src_addr: src.parse().unwrap(), dst_addr: dst.parse().unwrap(), ports };
                for fields in (0..16).filter_map(HashFields::from_bits) {
                    let expected = FlowHash(key.hash(flow.input(fields).as_slice()));
                    assert_eq!(flow.hash(key, fields), expected, "{flow:?} {fields}");
                }
            }
        }
    }
}
