//! GLB Director's ranking: rendezvous hashing by SipHash-2-4 of the address, unweighted, lowest digest first.
//!
//! ```text
//! row_seed = H(row as u32, big-endian)      H = SipHash-2-4 under the table's seed
//! digest   = H(row_seed ‖ address octets)   compared as eight octets
//! ```

use super::NodeSet;
use super::simd::{self, Isa, LANES, Lanes};
use crate::sip::SipKey;
use alloc::vec::Vec;
use core::net::IpAddr;

/// Addresses laid out for ranking by digest.
#[derive(Clone, Debug)]
pub struct DigestSet {
    key: SipKey,
    addresses: Vec<IpAddr>,
    v4: Tails<1>,
    v6: Tails<3>,
    isa: Isa,
}

/// What follows the row's seed in a message, word by word, for the addresses of one family.
#[derive(Clone, Debug)]
struct Tails<const W: usize> {
    words: Vec<[u64; W]>,
    /// Position of each in the list that was given.
    positions: Vec<u32>,
}

impl DigestSet {
    /// Lays out `addresses` under a table's seed, the 16 octets of a SipHash key. Of equal digests the later address comes
    /// first, so give the addresses in ascending order of id.
    pub fn new(key: [u8; 16], addresses: &[IpAddr]) -> Self {
        let (mut v4, mut v6) = (Tails::empty(), Tails::empty());
        for (position, address) in (0..).zip(addresses) {
            match address {
                IpAddr::V4(address) => {
                    v4.push([u64::from(u32::from_le_bytes(address.octets())) | 12 << 56], position)
                }
                IpAddr::V6(address) => {
                    let octets = u128::from_le_bytes(address.octets());
                    #[expect(clippy::cast_possible_truncation, reason = "the two halves of 128 bits")]
                    v6.push([octets as u64, (octets >> 64) as u64, 24 << 56], position);
                }
            }
        }
        Self { key: SipKey::new(key), addresses: addresses.to_vec(), v4, v6, isa: Isa::detect() }
    }

    /// The same set scanned by other instructions than the widest: for tests and measurements. The results are equal.
    #[doc(hidden)]
    #[must_use]
    pub fn with_isa(mut self, isa: Isa) -> Self {
        self.isa = isa;
        self
    }

    /// The digest that ranks an address in a row, as a number whose order is that of its octets.
    pub fn digest(&self, row: u32, address: IpAddr) -> u64 {
        let mut message = [0; 24];
        let (seed, rest) = message.split_at_mut(8);
        seed.copy_from_slice(&self.key.hash(&row.to_be_bytes()).to_le_bytes());
        let length = match address {
            IpAddr::V4(address) => copy(rest, &address.octets()),
            IpAddr::V6(address) => copy(rest, &address.octets()),
        };
        self.key.hash(message.get(..8 + length).unwrap_or_default()).swap_bytes()
    }

    /// The first `k` addresses of the rows from `first_row` on. `first` holds `k` cells for each row; of each `k` cells as
    /// many as the result says hold indices in the list that was given, the cells after them hold no index. The last row
    /// may have fewer than `k` cells.
    pub fn top_many(&self, first_row: u32, k: usize, first: &mut [u32]) -> usize {
        if k == 0 {
            return 0;
        }
        for (first, start) in first.chunks_mut(LANES * k).zip((first_row..).step_by(LANES)) {
            match k {
                1 => self.top_of_lanes::<2>(start, k, first),
                2 => self.top_of_lanes::<3>(start, k, first),
                3 | 4 => self.top_of_lanes::<5>(start, k, first),
                5..=8 => self.top_of_lanes::<9>(start, k, first),
                _ => first.chunks_mut(k).zip(start..).for_each(|(first, row)| self.rank(row, first)),
            }
        }
        k.min(self.addresses.len())
    }

    fn top_of_lanes<const K: usize>(&self, start: u32, k: usize, first: &mut [u32]) {
        let rows = core::array::from_fn(|lane| start.wrapping_add(u32::try_from(lane).unwrap_or_default()));
        let states = simd::row_states(self.isa, self.key, &rows);
        let v4: [Lanes; K] = self.v4.least(self.isa, &states);
        let v6: [Lanes; K] = self.v6.least(self.isa, &states);
        for ((lane, row), first) in rows.iter().enumerate().zip(first.chunks_mut(k)) {
            if !self.unpack(lane, &v4, &v6, first) {
                self.rank(*row, first);
            }
        }
    }

    /// Merges both families' least; false if two digests are too close to tell.
    #[inline]
    fn unpack<const K: usize>(
        &self,
        lane: usize,
        v4: &[Lanes; K],
        v6: &[Lanes; K],
        first: &mut [u32],
    ) -> bool {
        let (v4, v6) = (self.v4.unpacked(lane, v4), self.v6.unpacked(lane, v6));
        if self.v6.words.is_empty() {
            return write(v4, first);
        }
        let (mut v4, mut v6) = (v4.peekable(), v6.peekable());
        let merged = core::iter::from_fn(|| match (v4.peek(), v6.peek()) {
            (Some(one), Some(other)) if other.0 < one.0 => v6.next(),
            (Some(_), _) => v4.next(),
            (None, _) => v6.next(),
        });
        write(merged, first)
    }

    /// The definition, for what the shorter way leaves open.
    #[cold]
    fn rank(&self, row: u32, first: &mut [u32]) {
        let digest =
            |(position, address): (u32, &IpAddr)| (self.digest(row, *address), core::cmp::Reverse(position));
        let mut order: Vec<_> = (0..).zip(&self.addresses).map(digest).collect();
        order.sort_unstable();
        let mut order = order.into_iter().map(|(_, position)| position.0);
        first.iter_mut().for_each(|cell| *cell = order.next().unwrap_or(NodeSet::NONE));
    }
}

/// Low bits of a digest that may be replaced by a slot. More addresses than this can number are ranked in full.
const DOUBT: u32 = 20;

impl<const W: usize> Tails<W> {
    const MASK: u64 = (1 << DOUBT) - 1;

    const fn empty() -> Self {
        Self { words: Vec::new(), positions: Vec::new() }
    }

    fn push(&mut self, words: [u64; W], position: u32) {
        self.words.push(words);
        self.positions.push(position);
    }

    fn least<const K: usize>(&self, isa: Isa, states: &[Lanes; 4]) -> [Lanes; K] {
        if self.words.is_empty() || self.words.len() > 1 << DOUBT {
            return [[0; LANES]; K];
        }
        simd::states_by_digest(isa, &self.words, Self::MASK, states)
    }

    /// The least digests of a lane with their positions.
    #[inline]
    fn unpacked<const K: usize>(&self, lane: usize, least: &[Lanes; K]) -> impl Iterator<Item = (u64, u32)> {
        let packed = least.iter().take(self.words.len()).filter_map(move |lanes| lanes.get(lane).copied());
        packed.map(|packed| {
            let slot = usize::try_from(packed & Self::MASK).unwrap_or(usize::MAX);
            // More addresses than slots: all are 0 here, come first and look alike, and the row is ranked in full.
            (packed, self.positions.get(slot).copied().unwrap_or(NodeSet::NONE))
        })
    }
}

/// Writes positions in the order of their digests; false if two of these are too close to tell.
#[inline]
fn write(mut least: impl Iterator<Item = (u64, u32)>, first: &mut [u32]) -> bool {
    let mut this = least.next();
    for cell in first {
        let following = least.next();
        let tie =
            this.zip(following).is_some_and(|(this, following)| this.0 >> DOUBT == following.0 >> DOUBT);
        if tie {
            return false;
        }
        *cell = this.map_or(NodeSet::NONE, |(_, position)| position);
        this = following;
    }
    true
}

fn copy(to: &mut [u8], octets: &[u8]) -> usize {
    to.iter_mut().zip(octets).for_each(|(to, octet)| *to = *octet);
    octets.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(v4: u32, v6: u16) -> Vec<IpAddr> {
        let v4 = (0..v4).map(|i| IpAddr::from((0x0a00_0001 + i).to_be_bytes()));
        let v6 = (0..v6).map(|i| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, i]));
        v6.chain(v4).collect()
    }

    #[test]
    fn every_family_and_instruction_set_ranks_like_a_sort_of_digests() {
        for (v4, v6) in [(0, 0), (1, 0), (0, 1), (10, 0), (0, 10), (3, 2), (40, 40)] {
            let addresses = addresses(v4, v6);
            let set = DigestSet::new([7; 16], &addresses);
            for k in 0..11 {
                let mut expected = vec![0; 70 * k];
                (0..).zip(expected.chunks_mut(k.max(1))).for_each(|(row, first)| set.rank(row + 5, first));
                for isa in Isa::available() {
                    let mut first = vec![9; 70 * k];
                    set.clone().with_isa(isa).top_many(5, k, &mut first);
                    assert_eq!(first, expected, "{} {v4} {v6} k = {k}", isa.name());
                }
            }
        }
    }

    /// Of one family more than slots can number, and one of the other.
    #[test]
    fn too_many_to_pack_are_ranked_in_full() {
        let addresses = addresses(1 << DOUBT | 1, 1);
        let set = DigestSet::new([7; 16], &addresses);
        let (mut first, mut expected) = ([9], [9]);
        set.top_many(5, 1, &mut first);
        set.rank(5, &mut expected);
        assert_eq!(first, expected);
    }

    /// The same address many times gives equal digests: the later position goes first.
    #[test]
    fn equal_digests_go_to_the_later() {
        let same = vec![IpAddr::from([10, 0, 0, 1]); 5];
        let set = DigestSet::new([1; 16], &same);
        let mut first = [0; 6];
        set.top_many(3, 6, &mut first);
        assert_eq!(first, [4, 3, 2, 1, 0, NodeSet::NONE]);
        let mut first = [0; 3];
        set.top_many(3, 3, &mut first);
        assert_eq!(first, [4, 3, 2]);
    }

    /// The definition by the plain hash, octet for octet.
    #[test]
    fn a_digest_is_two_hashes() {
        let key = SipKey::new(*b"0123456789abcdef");
        let set = DigestSet::new(*b"0123456789abcdef", &[]);
        let mut message = key.hash(&[0, 1, 2, 3]).to_le_bytes().to_vec();
        message.extend_from_slice(&[192, 0, 2, 9]);
        let expected = u64::from_be_bytes(key.hash(&message).to_le_bytes());
        assert_eq!(set.digest(0x0001_0203, IpAddr::from([192, 0, 2, 9])), expected);
    }
}
