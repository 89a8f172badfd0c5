//! The layout of binds for the kernel program. A look-up reads one slot of an array, at most two, for any
//! number of binds. `bpf/bind.h` is the reader.
//!
//! **Slots.** Each prefix and protocol has two possible slots by its hash and is stored in one of them (Pagh
//! and Rodler, *Cuckoo hashing*, 2001). The array is at most a quarter full, so almost all keys are in their
//! first slot. If a key is not, its first slot is marked: a reader that finds another key there then checks
//! the second slot. The hash is not secret: binds come from a reviewed file, and packets only look them up.
//! The seed is the first number with which all keys can be placed, so equal binds give equal layouts.
//! **Ports.** A single port range is stored with the prefix. Several ranges are written over each other, the
//! widest first, to an array of 65,536 ports in pages of 256. Equal pages and directories are stored once.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use common::bind::{Bind, PortRange};

use super::XdpError;
use super::abi::{BIND_MORE, BIND_PAGED, NAMED_BITS, NONE, Named, Octets};

const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
const SEEDS: u64 = 64;
const PAGE: usize = 256;
/// Largest number of entries of the array of pages: 256 MiB.
const MAX_PORTS: usize = 1 << 26;

/// The three arrays and the constants that a reader needs.
#[derive(Debug)]
pub(super) struct Binds {
    pub(super) seed: u64,
    pub(super) lengths_v4: Vec<u8>,
    pub(super) lengths_v6: Vec<u8>,
    pub(super) slots_v4: u32,
    pub(super) slots_v6: u32,
    pub(super) named_v4: Box<Named>,
    pub(super) named_v6: Box<Named>,
    pub(super) v4: Vec<u8>,
    pub(super) v6: Vec<u8>,
    pub(super) ports: Vec<u8>,
}

/// A prefix and protocol of a family; the address is an integer of the family's width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    address: u128,
    rank: u8,
    protocol: u8,
}

#[derive(Clone, Copy, Debug)]
struct Target {
    flags: u8,
    ports: PortRange,
    target: u32,
}

/// The binds of an address family.
#[derive(Debug, Default)]
struct Family {
    lengths: Vec<u8>,
    targets: BTreeMap<Key, Target>,
}

impl Binds {
    pub(super) fn new(binds: &[(Bind, u32)]) -> Result<Self, XdpError> {
        let mut pages = Pages::default();
        let (v4, v6): (Vec<_>, Vec<_>) = binds.iter().partition(|(bind, _)| bind.prefix.address().is_ipv4());
        let (v4, v6) = (Family::new(&v4, &mut pages), Family::new(&v6, &mut pages));
        if pages.cells.len() > MAX_PORTS {
            let found = pages.cells.len() as u64;
            return Err(XdpError::TooMany { what: "port pages", most: MAX_PORTS as u64, found });
        }
        let arrangement =
            (0..SEEDS).find_map(|seed| Some((seed, place(&v4, hash_v4, seed)?, place(&v6, hash_v6, seed)?)));
        let (seed, placed_v4, placed_v6) = arrangement.ok_or(XdpError::Binds)?;
        Ok(Self {
            seed,
            slots_v4: count(&placed_v4),
            slots_v6: count(&placed_v6),
            named_v4: v4.named(32),
            named_v6: v6.named(128),
            v4: placed_v4.iter().fold(Octets::default(), |to, slot| slot.write_v4(to)).into_inner(),
            v6: placed_v6.iter().fold(Octets::default(), |to, slot| slot.write_v6(to)).into_inner(),
            ports: pages.cells.iter().flat_map(|cell| cell.to_le_bytes()).collect(),
            lengths_v4: v4.lengths,
            lengths_v6: v6.lengths,
        })
    }
}

fn count(slots: &[Slot]) -> u32 {
    u32::try_from(slots.len()).expect("invariant: at most four times 65,536 binds, rounded up")
}

impl Family {
    fn new(binds: &[&(Bind, u32)], pages: &mut Pages) -> Self {
        let mut lengths: Vec<u8> = binds.iter().map(|(bind, _)| bind.prefix.bits()).collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        lengths.dedup();
        let mut ranges: BTreeMap<Key, Vec<(PortRange, u32)>> = BTreeMap::new();
        for (bind, table) in binds {
            let rank = lengths.iter().position(|bits| *bits == bind.prefix.bits());
            let rank = rank.expect("invariant: `lengths` has the length of every bind");
            let key = Key {
                address: integer(bind.prefix.address()),
                rank: u8::try_from(rank).expect("invariant: at most 129 prefix lengths"),
                protocol: bind.protocol.number(),
            };
            ranges.entry(key).or_default().push((bind.ports, *table));
        }
        let targets = ranges.into_iter().map(|(key, mut ranges)| (key, pages.target(&mut ranges))).collect();
        Self { lengths, targets }
    }

    /// A bit for the hash of each address that a prefix of full length names. Such a prefix has rank 0.
    fn named(&self, width: u8) -> Box<Named> {
        let mut named = Box::new([0; _]);
        if self.lengths.first() == Some(&width) {
            for key in self.targets.keys().filter(|key| key.rank == 0) {
                mark(&mut named, key.address);
            }
        }
        named
    }
}

fn mark(named: &mut Named, address: u128) {
    let (high, low) = halves(address);
    let bit = (low ^ high.rotate_left(32)).wrapping_mul(SPREAD) >> (64 - NAMED_BITS);
    let word = (bit >> 6) as usize;
    named[word] |= 1 << (bit & 63);
}

fn integer(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_bits().into(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// Directories and pages of ports; equal ones are stored once.
#[derive(Debug, Default)]
struct Pages {
    cells: Vec<u32>,
    known: HashMap<Vec<u32>, u32>,
}

impl Pages {
    fn target(&mut self, ranges: &mut [(PortRange, u32)]) -> Target {
        ranges.sort_by_key(|(ports, _)| std::cmp::Reverse(ports.width()));
        let [(widest, table), others @ ..] = &*ranges else { unreachable!("a key has a range") };
        if others.is_empty() {
            return Target { flags: 0, ports: *widest, target: *table };
        }
        let first = others.iter().fold(widest.first(), |first, (ports, _)| first.min(ports.first()));
        let last = others.iter().fold(widest.last(), |last, (ports, _)| last.max(ports.last()));
        let mut painted = vec![NONE; 1 << 16];
        for (ports, table) in ranges.iter() {
            painted[usize::from(ports.first())..=usize::from(ports.last())].fill(*table);
        }
        let directory = painted.chunks_exact(PAGE).map(|page| self.index_of(page.to_vec())).collect();
        let target = self.index_of(directory);
        let ports = PortRange::new(first, last).expect("invariant: the least port is not over the greatest");
        Target { flags: BIND_PAGED, ports, target }
    }

    /// The index of a page, which is stored if it is new.
    fn index_of(&mut self, page: Vec<u32>) -> u32 {
        if let Some(index) = self.known.get(&page) {
            return *index;
        }
        // More pages than `MAX_PORTS` are refused afterwards.
        let index = u32::try_from(self.cells.len() / PAGE).expect("invariant: 65,536 binds have fewer pages");
        self.cells.extend(&page);
        self.known.insert(page, index);
        index
    }
}

/// A slot, possibly empty. An empty slot has protocol 0, which matches nothing.
#[derive(Clone, Copy, Debug)]
struct Slot {
    content: Option<(Key, Target)>,
    more: bool,
}

impl Slot {
    fn write_v4(&self, mut to: Octets) -> Octets {
        let address = self.content.map_or(0, |(key, _)| key.address);
        to.u32(u32::try_from(address).expect("invariant: an IPv4 address"));
        self.write_common(&mut to);
        to
    }

    fn write_v6(&self, mut to: Octets) -> Octets {
        let (high, low) = halves(self.content.map_or(0, |(key, _)| key.address));
        to.u64(high);
        to.u64(low);
        self.write_common(&mut to);
        to.u32(0);
        to
    }

    fn write_common(&self, to: &mut Octets) {
        let more = if self.more { BIND_MORE } else { 0 };
        let Some((key, target)) = self.content else {
            to.put([0, 0, more, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            return;
        };
        to.put([key.protocol, key.rank, target.flags | more, 0]);
        to.u16(target.ports.first());
        to.u16(target.ports.last());
        to.u32(target.target);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the two halves of 128 bits")]
const fn halves(address: u128) -> (u64, u64) {
    ((address >> 64) as u64, address as u64)
}

fn meta(key: &Key) -> u64 {
    (u64::from(key.rank) << 8 | u64::from(key.protocol)) << 32
}

fn hash_v4(key: &Key, seed: u64) -> u64 {
    let (_, address) = halves(key.address);
    ((address | meta(key)) ^ seed).wrapping_mul(SPREAD)
}

fn hash_v6(key: &Key, seed: u64) -> u64 {
    let (high, low) = halves(key.address);
    let folded = (low ^ seed).wrapping_mul(SPREAD);
    let word = (folded ^ folded >> 32).wrapping_add(high).wrapping_add(meta(key));
    (word ^ seed).wrapping_mul(SPREAD)
}

/// Both slots of a key in an array of `slots` slots, a power of two.
fn slots_of(hash: u64, slots: usize) -> [usize; 2] {
    [(hash >> 40) as usize & (slots - 1), (hash >> 20) as usize & (slots - 1)]
}

/// Places every key in one of its slots; `None` if that fails with this seed.
fn place(family: &Family, hash: fn(&Key, u64) -> u64, seed: u64) -> Option<Vec<Slot>> {
    let count = (family.targets.len() * 4).next_power_of_two();
    let mut slots = vec![Slot { content: None, more: false }; count];
    for (key, target) in &family.targets {
        insert(&mut slots, (*key, *target), |key| slots_of(hash(key, seed), count))?;
    }
    for key in family.targets.keys() {
        let [first, _] = slots_of(hash(key, seed), count);
        let slot = slots.get_mut(first)?;
        slot.more |= slot.content.is_none_or(|(other, _)| other != *key);
    }
    Some(slots)
}

/// Places a key in a free slot of its two. If both are occupied it takes the first, and that slot's key moves
/// to its other slot.
fn insert(slots: &mut [Slot], mut new: (Key, Target), of: impl Fn(&Key) -> [usize; 2]) -> Option<()> {
    let mut avoid = usize::MAX;
    for _ in 0..100 {
        let [first, second] = of(&new.0);
        let is_free = |index: usize| slots.get(index).is_some_and(|slot| slot.content.is_none());
        let index = match () {
            () if is_free(first) => first,
            () if is_free(second) => second,
            () if first == avoid => second,
            () => first,
        };
        match slots.get_mut(index)?.content.replace(new) {
            None => return Some(()),
            Some(evicted) => (new, avoid) = (evicted, index),
        }
    }
    None
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "random numbers are cut to what is wanted")]
mod tests {
    use super::*;
    use crate::drivers::xdp::abi::{high_bits_v4, high_bits_v6};
    use common::bind::{BindIndex, Prefix, Protocol};
    use common::hash::mix;

    fn u32_at(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    fn u64_at(bytes: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
    }

    /// The reader of `bpf/bind.h`, written again in Rust.
    fn find(binds: &Binds, address: IpAddr, protocol: Protocol, port: u16) -> Option<u32> {
        let (lengths, slots, array, stride) = match address {
            IpAddr::V4(_) => (&binds.lengths_v4, binds.slots_v4, &binds.v4, 16),
            IpAddr::V6(_) => (&binds.lengths_v6, binds.slots_v6, &binds.v6, 32),
        };
        lengths.iter().enumerate().find_map(|(rank, bits)| {
            let mask = match address {
                IpAddr::V4(_) => high_bits_v4(*bits).into(),
                IpAddr::V6(_) => high_bits_v6(*bits),
            };
            let key = Key { address: integer(address) & mask, rank: rank as u8, protocol: protocol.number() };
            let hash = if address.is_ipv4() { hash_v4 } else { hash_v6 }(&key, binds.seed);
            let [first, second] = slots_of(hash, slots as usize);
            let matches = |at: usize| {
                let slot = &array[at * stride..][..stride];
                let same = match address {
                    IpAddr::V4(_) => u128::from(u32_at(slot, 0)) == key.address,
                    IpAddr::V6(_) => (u64_at(slot, 0), u64_at(slot, 8)) == halves(key.address),
                };
                let common = &slot[stride / 4 * if stride == 16 { 1 } else { 2 }..];
                (same && common[0] == key.protocol && common[1] == key.rank, common.to_vec())
            };
            let (mut found, mut slot) = matches(first);
            if !found && slot[2] & BIND_MORE != 0 {
                (found, slot) = matches(second);
            }
            let from = u16::from_le_bytes([slot[4], slot[5]]);
            let to = u16::from_le_bytes([slot[6], slot[7]]);
            if !found || port < from || port > to {
                return None;
            }
            let target = u32_at(&slot, 8);
            if slot[2] & BIND_PAGED == 0 {
                return Some(target);
            }
            let page = u32_at(&binds.ports, (target as usize * PAGE + usize::from(port >> 8)) * 4);
            let table = u32_at(&binds.ports, (page as usize * PAGE + usize::from(port & 255)) * 4);
            (table != NONE).then_some(table)
        })
    }

    fn bind(prefix: &str, bits: u8, protocol: Protocol, first: u16, last: u16) -> Bind {
        Bind {
            prefix: Prefix::new(prefix.parse().unwrap(), bits).unwrap(),
            protocol,
            ports: PortRange::new(first, last).unwrap(),
        }
    }

    /// Random binds that do not tie, few addresses so that they nest and overlap.
    fn random(count: u64, seed: u64) -> Vec<(Bind, u32)> {
        let mut binds: Vec<(Bind, u32)> = Vec::new();
        for number in 0..count {
            let word = mix(seed << 32 | number);
            let address = if word & 1 == 0 {
                IpAddr::from([10, 0, (word >> 8) as u8 & 3, (word >> 16) as u8])
            } else {
                IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, (word >> 8) as u16 & 3, (word >> 16) as u16 & 255])
            };
            let width = if address.is_ipv4() { 32 } else { 128 };
            let bits = width - [0, 0, 0, 4, 8, 10][(word >> 40) as usize % 6];
            let masked: IpAddr = match address {
                IpAddr::V4(v4) => IpAddr::from((v4.to_bits() & high_bits_v4(bits)).to_be_bytes()),
                IpAddr::V6(v6) => IpAddr::from((v6.to_bits() & high_bits_v6(bits)).to_be_bytes()),
            };
            let first = (word >> 44) as u16 % 600;
            let last = [first, first.saturating_add((word >> 54) as u16), u16::MAX][word as usize / 2 % 3];
            let protocol = if word >> 5 & 1 == 0 { Protocol::Tcp } else { Protocol::Udp };
            let new = bind(&masked.to_string(), bits, protocol, first, last);
            if binds.iter().all(|(other, _)| !other.ties_with(&new)) {
                binds.push((new, number as u32));
            }
        }
        binds
    }

    #[test]
    fn finds_what_the_index_finds() {
        for seed in 0..20 {
            let binds = random(seed * seed, seed);
            let (index, laid_out) = (BindIndex::new(&binds).unwrap(), Binds::new(&binds).unwrap());
            for probe in 0..2_000 {
                let word = mix(probe ^ 0xfeed);
                let address: IpAddr = if word & 1 == 0 {
                    IpAddr::from([10, 0, (word >> 8) as u8 & 3, (word >> 16) as u8])
                } else {
                    IpAddr::from([
                        0x2001,
                        0xdb8,
                        0,
                        0,
                        0,
                        0,
                        (word >> 8) as u16 & 3,
                        (word >> 16) as u16 & 255,
                    ])
                };
                let protocol = if word >> 5 & 1 == 0 { Protocol::Tcp } else { Protocol::Udp };
                let port = (word >> 44) as u16 % 1_700;
                let wanted = index.lookup(address, protocol, port);
                assert_eq!(find(&laid_out, address, protocol, port), wanted, "{seed}: {address} {port}");
            }
        }
    }

    #[test]
    fn the_last_port_belongs_to_its_range() {
        let binds = [
            (bind("10.0.0.1", 32, Protocol::Tcp, 1, 65_535), 0),
            (bind("10.0.0.1", 32, Protocol::Tcp, 65_535, 65_535), 1),
            (bind("10.0.0.2", 32, Protocol::Tcp, 65_535, 65_535), 2),
        ];
        let laid_out = Binds::new(&binds).unwrap();
        let find = |last: u8, port| find(&laid_out, IpAddr::from([10, 0, 0, last]), Protocol::Tcp, port);
        assert_eq!([find(1, 65_534), find(1, 65_535), find(1, 0)], [Some(0), Some(1), None]);
        assert_eq!([find(2, 65_535), find(2, 65_534)], [Some(2), None]);
    }

    #[test]
    fn sixty_thousand_addresses_are_placed() {
        let binds: Vec<_> = (0..65_536u32)
            .map(|n| {
                let address = if n % 2 == 0 {
                    format!("10.{}.{}.{}", n >> 16, n >> 8 & 255, n & 255)
                } else {
                    format!("2001:db8::{n:x}")
                };
                let bits = if n % 2 == 0 { 32 } else { 128 };
                (bind(&address, bits, Protocol::Tcp, 443, 443), n)
            })
            .collect();
        let laid_out = Binds::new(&binds).unwrap();
        for (bind, table) in binds.iter().step_by(97) {
            assert_eq!(find(&laid_out, bind.prefix.address(), Protocol::Tcp, 443), Some(*table));
            assert_eq!(find(&laid_out, bind.prefix.address(), Protocol::Udp, 443), None);
        }
    }
}
