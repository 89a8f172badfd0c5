//! The look-up of the best bind of a packet: one hash probe for each prefix length in use.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Bind, PortRange, Prefix, Protocol, mask};
use crate::hash::mix;

/// Two binds, by their position in the list that was given, that would tie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindTie {
    /// The earlier of the two.
    pub earlier: usize,
    /// The later of the two.
    pub later: usize,
}

/// All binds of all tables, for the one question that a packet asks.
///
/// A look-up costs one hash probe for each distinct prefix length in use, and a search among the port ranges of one
/// prefix; the number of binds does not matter.
#[derive(Clone, Debug, Default)]
pub struct BindIndex {
    v4: Family,
    v6: Family,
}

/// The binds of one address family. `lengths` are the prefix lengths in use, longest first.
#[derive(Clone, Debug, Default)]
struct Family {
    lengths: Vec<u8>,
    prefixes: HashMap<Key, Ports, BuildHasherDefault<KeyHasher>>,
    vips: HashMap<Key, u32, BuildHasherDefault<KeyHasher>>,
    named: Named,
}

/// The addresses that binds name in full, as a bit set over a hash of the address. Most addresses have a clear bit, so
/// that [`BindIndex::names`] costs most packets one multiplication and one load.
#[derive(Clone, Debug, Default)]
struct Named {
    /// A power of two of words, or none where no bind names an address.
    words: Box<[u64]>,
    /// Leaves as many high bits of the hash as number the bits of `words`.
    shift: u32,
}

/// Bits of [`Named`] for each address: at most 1 of 16 other addresses has a set bit.
const BITS_PER_NAME: usize = 16;

impl Named {
    fn new(addresses: &[u128]) -> Self {
        if addresses.is_empty() {
            return Self::default();
        }
        let bits = (addresses.len() * BITS_PER_NAME).next_power_of_two().max(1 << 10);
        let mut set = Self { words: vec![0; bits / 64].into(), shift: 64 - bits.trailing_zeros() };
        for address in addresses {
            let (word, bit) = set.place(fold(*address));
            if let Some(word) = set.words.get_mut(word) {
                *word |= bit;
            }
        }
        set
    }

    #[inline]
    fn may_hold(&self, folded: u64) -> bool {
        let (word, bit) = self.place(folded);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    /// The word of a folded address, and its bit there.
    #[inline]
    const fn place(&self, folded: u64) -> (usize, u64) {
        let at = folded.wrapping_mul(0x9e37_79b9_7f4a_7c15).unbounded_shr(self.shift);
        ((at >> 6) as usize, 1 << (at & 63))
    }
}

/// 128 bits as 64; an IPv4 address stays as it is.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "folds 128 bits into 64")]
const fn fold(address: u128) -> u64 {
    (address as u64) ^ ((address >> 64) as u64).rotate_left(32)
}

/// Prefix, length and protocol. The address is the integer of its family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    address: u128,
    /// Prefix length in the low octet, protocol number above it (0 in [`Family::vips`]).
    rest: u16,
}

impl std::hash::Hash for Key {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(fold(self.address) ^ (u64::from(self.rest) << 40));
    }
}

/// Keys come from a reviewed table and packets only look them up, so no client can make this map grow or collide:
/// one multiply-and-shift mix is enough.
#[derive(Clone, Copy, Debug, Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        for octet in bytes {
            self.0 = mix(self.0 ^ u64::from(*octet));
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = mix(word);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// The port ranges of one prefix and protocol, cut into disjoint spans in ascending order.
#[derive(Clone, Debug)]
struct Ports {
    spans: Vec<Span>,
    /// The one table of all the spans, if they agree.
    table: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    ports: PortRange,
    table: u32,
}

impl Ports {
    #[inline]
    fn lookup(&self, port: u16) -> Option<u32> {
        if let [only] = self.spans.as_slice() {
            return only.ports.contains(port).then_some(only.table);
        }
        let after = self.spans.partition_point(|span| span.ports.first <= port);
        let span = self.spans.get(after.checked_sub(1)?)?;
        span.ports.contains(port).then_some(span.table)
    }

    /// Cuts ranges, of which none tie, so that each port belongs to the narrowest range that holds it.
    fn new(ranges: &mut [Span]) -> Self {
        ranges.sort_by_key(|span| (span.ports.width(), span.ports.first));
        let mut spans: Vec<Span> = Vec::new();
        for range in ranges.iter() {
            let free = gaps(&spans, range.ports);
            spans.extend(free.into_iter().map(|ports| Span { ports, table: range.table }));
            spans.sort_by_key(|span| span.ports.first);
        }
        let table = spans.first().map(|span| span.table);
        let table = table.filter(|table| spans.iter().all(|span| span.table == *table));
        Self { spans, table }
    }
}

/// The parts of `ports` that no span covers; `spans` are disjoint and ascending.
fn gaps(spans: &[Span], ports: PortRange) -> Vec<PortRange> {
    let mut free = Vec::new();
    let mut from = u32::from(ports.first);
    for span in spans.iter().filter(|span| span.ports.overlaps(ports)) {
        if let Some(last) = span.ports.first.checked_sub(1) {
            free.extend(u16::try_from(from).ok().and_then(|first| PortRange::new(first, last)));
        }
        from = u32::from(span.ports.last) + 1;
    }
    free.extend(u16::try_from(from).ok().and_then(|first| PortRange::new(first, ports.last)));
    free
}

impl BindIndex {
    /// Indexes `binds`, each with the number of its table. Fails on the first two that tie.
    pub fn new(binds: &[(Bind, u32)]) -> Result<Self, BindTie> {
        find_tie(binds)?;
        let (v4, v6): (Vec<_>, Vec<_>) = binds.iter().partition(|(bind, _)| bind.prefix.address.is_ipv4());
        Ok(Self { v4: Family::new(&v4), v6: Family::new(&v6) })
    }

    /// The table for packets to this address, protocol and port.
    #[inline]
    pub fn lookup(&self, address: IpAddr, protocol: Protocol, port: u16) -> Option<u32> {
        match address {
            IpAddr::V4(v4) => self.lookup_v4(v4, protocol, port),
            IpAddr::V6(v6) => self.lookup_v6(v6, protocol, port),
        }
    }

    /// [`BindIndex::lookup`] for an IPv4 address.
    #[inline]
    pub fn lookup_v4(&self, address: Ipv4Addr, protocol: Protocol, port: u16) -> Option<u32> {
        let word = address.to_bits();
        self.v4.lookup(|bits| u128::from(word & high_bits(bits)), protocol, port)
    }

    /// [`BindIndex::lookup`] for an IPv6 address.
    #[inline]
    pub fn lookup_v6(&self, address: Ipv6Addr, protocol: Protocol, port: u16) -> Option<u32> {
        let word = address.to_bits();
        self.v6.lookup(|bits| word & high_bits_v6(bits), protocol, port)
    }

    /// The table for packets to this address that have no port, such as an echo request: that of the longest
    /// prefix; where several tables share it, the one that comes first in the table file.
    pub fn vip(&self, address: IpAddr) -> Option<u32> {
        let family = self.family(address);
        family.lengths.iter().find_map(|bits| family.vips.get(&Key::new(address, *bits, 0)).copied())
    }

    /// Does a bind name exactly this address, by a prefix of full length, whatever its protocol and ports?
    #[inline]
    pub fn names(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(v4) => self.names_v4(v4),
            IpAddr::V6(v6) => self.names_v6(v6),
        }
    }

    /// [`BindIndex::names`] for an IPv4 address.
    #[inline]
    pub fn names_v4(&self, address: Ipv4Addr) -> bool {
        self.v4.names(u128::from(address.to_bits()), 32)
    }

    /// [`BindIndex::names`] for an IPv6 address.
    #[inline]
    pub fn names_v6(&self, address: Ipv6Addr) -> bool {
        self.v6.names(address.to_bits(), 128)
    }

    /// The table for fragments to this address and protocol, whose ports cannot be known: only where all binds
    /// that hold the address for that protocol lead to one table.
    pub fn fragment(&self, address: IpAddr, protocol: Protocol) -> Fragments {
        let family = self.family(address);
        let mut answer = Fragments::NoBind;
        for bits in &family.lengths {
            let Some(ports) = family.prefixes.get(&Key::new(address, *bits, protocol.number())) else {
                continue;
            };
            answer = match (answer, ports.table) {
                (Fragments::NoBind, Some(table)) => Fragments::Table(table),
                (Fragments::Table(before), Some(table)) if before == table => answer,
                _ => return Fragments::Ambiguous,
            };
        }
        answer
    }

    fn family(&self, address: IpAddr) -> &Family {
        match address {
            IpAddr::V4(_) => &self.v4,
            IpAddr::V6(_) => &self.v6,
        }
    }
}

/// What [`BindIndex::fragment`] can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragments {
    /// No bind holds this address and protocol.
    NoBind,
    /// Whatever the port, this table.
    Table(u32),
    /// It depends on the port.
    Ambiguous,
}

impl Key {
    #[inline]
    fn new(address: IpAddr, bits: u8, protocol: u8) -> Self {
        let address = match mask(address, bits) {
            IpAddr::V4(v4) => u128::from(v4.to_bits()),
            IpAddr::V6(v6) => v6.to_bits(),
        };
        Self { address, rest: key_rest(bits, protocol) }
    }
}

#[inline]
const fn key_rest(bits: u8, protocol: u8) -> u16 {
    u16::from_le_bytes([bits, protocol])
}

#[inline]
fn high_bits(bits: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0)
}

#[inline]
fn high_bits_v6(bits: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0)
}

impl Family {
    fn new(binds: &[(Bind, u32)]) -> Self {
        let mut lengths: Vec<u8> = binds.iter().map(|(bind, _)| bind.prefix.bits).collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        lengths.dedup();
        let mut grouped: HashMap<Key, Vec<Span>, BuildHasherDefault<KeyHasher>> = HashMap::default();
        let mut vips = HashMap::default();
        for (bind, table) in binds {
            let Prefix { address, bits } = bind.prefix;
            let span = Span { ports: bind.ports, table: *table };
            grouped.entry(Key::new(address, bits, bind.protocol.number())).or_default().push(span);
            let vip = vips.entry(Key::new(address, bits, 0)).or_insert(*table);
            *vip = (*vip).min(*table);
        }
        let prefixes = grouped.into_iter().map(|(key, mut spans)| (key, Ports::new(&mut spans))).collect();
        let named: Vec<u128> = binds
            .iter()
            .filter(|(bind, _)| bind.prefix.is_host())
            .map(|(bind, _)| Key::new(bind.prefix.address, bind.prefix.bits, 0).address)
            .collect();
        Self { lengths, prefixes, vips, named: Named::new(&named) }
    }

    #[inline]
    fn names(&self, address: u128, bits: u8) -> bool {
        self.named.may_hold(fold(address)) && self.holds(address, bits)
    }

    #[cold]
    fn holds(&self, address: u128, bits: u8) -> bool {
        self.vips.contains_key(&Key { address, rest: key_rest(bits, 0) })
    }

    #[inline]
    fn lookup(&self, masked: impl Fn(u8) -> u128, protocol: Protocol, port: u16) -> Option<u32> {
        self.lengths.iter().find_map(|bits| {
            let key = Key { address: masked(*bits), rest: key_rest(*bits, protocol.number()) };
            self.prefixes.get(&key)?.lookup(port)
        })
    }
}

/// Looks for two binds that tie. Sorted by prefix, protocol, width and first port, two that tie are neighbours.
fn find_tie(binds: &[(Bind, u32)]) -> Result<(), BindTie> {
    let mut sorted: Vec<(usize, &Bind)> = binds.iter().map(|(bind, _)| bind).enumerate().collect();
    sorted.sort_by_key(|(at, bind)| (bind.prefix, bind.protocol, bind.ports.width(), bind.ports.first, *at));
    for pair in sorted.windows(2) {
        if let [(at, a), (other, b)] = pair
            && a.ties_with(b)
        {
            return Err(BindTie { earlier: *at.min(other), later: *at.max(other) });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::bind;
    use super::*;

    #[test]
    fn the_longest_prefix_wins_then_the_narrowest_range() {
        use Protocol::{Tcp, Udp};
        let binds = [
            (bind("10.0.0.0", 8, Tcp, 1, 65_535), 0),
            (bind("10.1.0.0", 16, Tcp, 80, 90), 1),
            (bind("10.1.0.0", 16, Tcp, 85, 85), 2),
            (bind("10.1.1.1", 32, Tcp, 443, 443), 3),
            (bind("10.1.1.1", 32, Udp, 443, 443), 4),
        ];
        let index = BindIndex::new(&binds).unwrap();
        let find = |address: &str, protocol, port| index.lookup(address.parse().unwrap(), protocol, port);
        assert_eq!(find("10.2.0.1", Tcp, 80), Some(0));
        assert_eq!(find("10.1.0.1", Tcp, 84), Some(1));
        assert_eq!(find("10.1.0.1", Tcp, 85), Some(2));
        assert_eq!(find("10.1.0.1", Tcp, 86), Some(1));
        assert_eq!(find("10.1.0.1", Tcp, 91), Some(0));
        assert_eq!(find("10.1.1.1", Tcp, 443), Some(3));
        assert_eq!(find("10.1.1.1", Udp, 443), Some(4));
        assert_eq!(find("10.1.1.1", Tcp, 80), Some(1), "a longer prefix without the port hides nothing");
        assert_eq!(find("10.1.1.1", Udp, 80), None);
        assert_eq!(find("11.1.1.1", Tcp, 80), None);
        assert_eq!(find("::", Tcp, 80), None);
    }

    #[test]
    fn a_range_up_to_the_last_port_matches_it() {
        let binds = [
            (bind("1.1.1.1", 32, Protocol::Tcp, 65_530, 65_535), 0),
            (bind("1.1.1.1", 32, Protocol::Tcp, 0, 0), 1),
        ];
        let index = BindIndex::new(&binds).unwrap();
        let find = |port| index.lookup("1.1.1.1".parse().unwrap(), Protocol::Tcp, port);
        assert_eq!(
            [find(0), find(1), find(65_529), find(65_530), find(65_535)],
            [Some(1), None, None, Some(0), Some(0)]
        );
    }

    #[test]
    fn ties_are_refused_and_named() {
        let a = bind("10.0.0.0", 8, Protocol::Tcp, 80, 89);
        let shifted = bind("10.0.0.0", 8, Protocol::Tcp, 85, 94);
        let narrower = bind("10.0.0.0", 8, Protocol::Tcp, 85, 93);
        assert!(BindIndex::new(&[(a, 0), (narrower, 1)]).is_ok());
        let tie = BindIndex::new(&[(narrower, 0), (shifted, 0), (a, 1)]).unwrap_err();
        assert_eq!(tie, BindTie { earlier: 1, later: 2 });
    }

    #[test]
    fn fragments_go_where_every_port_would_go() {
        use Protocol::{Tcp, Udp};
        let binds = [
            (bind("10.0.0.0", 24, Udp, 1, 10), 0),
            (bind("10.0.0.1", 32, Udp, 5, 5), 0),
            (bind("10.0.0.2", 32, Udp, 5, 5), 1),
            (bind("10.0.0.3", 32, Tcp, 5, 5), 1),
        ];
        let index = BindIndex::new(&binds).unwrap();
        let find = |address: &str, protocol| index.fragment(address.parse().unwrap(), protocol);
        assert_eq!(find("10.0.0.9", Udp), Fragments::Table(0));
        assert_eq!(find("10.0.0.1", Udp), Fragments::Table(0));
        assert_eq!(find("10.0.0.2", Udp), Fragments::Ambiguous);
        assert_eq!(find("10.0.0.3", Tcp), Fragments::Table(1));
        assert_eq!(find("10.0.0.9", Tcp), Fragments::NoBind);
        assert_eq!(index.vip("10.0.0.2".parse().unwrap()), Some(1));
        assert_eq!(index.vip("10.0.0.77".parse().unwrap()), Some(0));
        assert_eq!(index.vip("10.0.1.77".parse().unwrap()), None);
    }

    #[test]
    fn only_a_full_length_prefix_names_its_address() {
        use Protocol::{Tcp, Udp};
        let mut binds = vec![
            (bind("0.0.0.0", 0, Tcp, 1, 10), 0),
            (bind("10.0.0.0", 31, Udp, 1, 10), 0),
            (bind("2001:db8::", 127, Udp, 1, 10), 0),
            (bind("::", 0, Udp, 1, 10), 0),
        ];
        let none = BindIndex::new(&binds).unwrap();
        // As many as share bits of the set.
        for n in 0..3_000_u32 {
            binds.push((bind(&Ipv4Addr::from_bits(0xcb00_0000 + n * 2).to_string(), 32, Tcp, 1, 1), 0));
            let v6 = Ipv6Addr::from_bits(0x2001_0db9 << 96 | u128::from(n * 2));
            binds.push((bind(&v6.to_string(), 128, Udp, 1, 1), 0));
        }
        let index = BindIndex::new(&binds).unwrap();
        for n in 0..6_000_u32 {
            let v4 = IpAddr::from(Ipv4Addr::from_bits(0xcb00_0000 + n));
            let v6 = IpAddr::from(Ipv6Addr::from_bits(0x2001_0db9 << 96 | u128::from(n)));
            assert_eq!((index.names(v4), index.names(v6)), (n % 2 == 0, n % 2 == 0), "{v4} {v6}");
            assert!(!none.names(v4) && !none.names(v6));
        }
        for outside in ["10.0.0.0", "10.0.0.1", "0.0.0.0", "2001:db8::", "::", "::cb00:0"] {
            assert!(!index.names(outside.parse().unwrap()), "{outside}");
        }
    }

    /// Few prefixes, few ports: many overlaps.
    fn crowded() -> impl Strategy<Value = Vec<(Bind, u32)>> {
        let one = (0u8..8, 28u8..=32, any::<bool>(), 0u16..12, 0u16..6, 0u32..4).prop_map(
            |(host, bits, tcp, first, more, table)| {
                let address = mask(Ipv4Addr::new(10, 0, 0, host).into(), bits);
                let protocol = if tcp { Protocol::Tcp } else { Protocol::Udp };
                let ports = PortRange::new(first, first + more).unwrap();
                (Bind { prefix: Prefix::new(address, bits).unwrap(), protocol, ports }, table)
            },
        );
        prop::collection::vec(one, 0..24)
    }

    proptest! {
        #[test]
        fn lookup_equals_trying_every_bind(binds in crowded()) {
            let ties = (0..binds.len()).flat_map(|a| (0..a).map(move |b| (b, a)));
            let tied: Vec<_> = ties.filter(|(b, a)| binds[*a].0.ties_with(&binds[*b].0)).collect();
            let index = match BindIndex::new(&binds) {
                Ok(index) => index,
                Err(tie) => {
                    prop_assert!(tied.contains(&(tie.earlier, tie.later)));
                    return Ok(());
                }
            };
            prop_assert!(tied.is_empty());
            for (host, port) in (0..10u8).flat_map(|host| (0..20u16).map(move |port| (host, port))) {
                let address = IpAddr::from([10, 0, 0, host]);
                let best = binds
                    .iter()
                    .filter(|(bind, _)| bind.matches(address, Protocol::Tcp, port))
                    .max_by_key(|(bind, _)| (bind.prefix.bits, std::cmp::Reverse(bind.ports.width())));
                prop_assert_eq!(index.lookup(address, Protocol::Tcp, port), best.map(|(_, table)| *table));
            }
        }
    }
}
