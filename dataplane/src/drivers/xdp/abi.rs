//! The Rust side of `bpf/abi.h`: structures as octets. Each is written field by field with its padding, so
//! that no uninitialised memory leaks. The header asserts the sizes.

use common::hash::SipKey;

/// Size of `struct config` in octets.
pub(crate) const CONFIG: usize = 3_256;
/// Size of `struct bind_v4` in octets.
pub(crate) const BIND_V4: usize = 16;
/// Size of `struct bind_v6` in octets.
pub(crate) const BIND_V6: usize = 32;
/// Size of `struct page` in octets.
pub(crate) const PAGE: usize = 1_024;
/// Size of `struct table` in octets.
pub(crate) const TABLE: usize = 32;
/// Size of `struct row` in octets.
pub(crate) const ROW: usize = 8;
/// Size of `struct hop` in octets.
pub(crate) const HOP: usize = 64;

/// Largest number of backends of a row.
pub(crate) const MAX_HOPS: usize = 4;
/// `NONE`: no table.
pub(crate) const NONE: u32 = u32::MAX;
/// `NO_BACKEND`: fills the unused cells of a row.
pub(crate) const NO_BACKEND: u16 = u16::MAX;
/// `BIND_MORE`: a key that has this slot as its first is stored in its second.
pub(crate) const BIND_MORE: u8 = 1;
/// `BIND_PAGED`: the target is a directory.
pub(crate) const BIND_PAGED: u8 = 2;
/// `WAY_LINK`.
pub(crate) const WAY_LINK: u16 = 1;

/// `NAMED_BITS`: bits of the hash of an address that a bind names.
pub(crate) const NAMED_BITS: u32 = 12;
/// A set of such hashes, with one bit each.
pub(crate) type Named = [u64; 1 << (NAMED_BITS - 6)];

const _: () = assert!(cfg!(target_endian = "little"), "the programs are built for little-endian machines");

/// Appends fields one after the other. Has no `Debug`, because a table's key may be among them.
#[derive(Default)]
pub(crate) struct Octets(Vec<u8>);

impl Octets {
    pub(crate) fn with_capacity(len: usize) -> Self {
        Self(Vec::with_capacity(len))
    }

    pub(crate) fn put<const N: usize>(&mut self, field: [u8; N]) {
        self.0.extend_from_slice(&field);
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.put([value]);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.put(value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.put(value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.put(value.to_le_bytes());
    }

    pub(crate) fn into_inner(self) -> Vec<u8> {
        self.0
    }
}

/// `struct config`.
#[derive(Debug)]
pub(crate) struct Config<'a> {
    pub(crate) seed: u64,
    pub(crate) mtu: u16,
    /// Prefix lengths in use, longest first.
    pub(crate) lengths_v4: &'a [u8],
    pub(crate) lengths_v6: &'a [u8],
    pub(crate) slots_v4: u32,
    pub(crate) slots_v6: u32,
    pub(crate) named_v4: &'a Named,
    pub(crate) named_v6: &'a Named,
}

impl Config<'_> {
    pub(crate) fn octets(&self) -> Vec<u8> {
        let count =
            |lengths: &[u8]| u32::try_from(lengths.len()).expect("invariant: at most 129 prefix lengths");
        let mut to = Octets::with_capacity(CONFIG);
        to.u64(self.seed);
        to.u32(self.mtu.into());
        to.u32(count(self.lengths_v4));
        to.u32(count(self.lengths_v6));
        to.u32(self.slots_v4);
        to.u32(self.slots_v6);
        to.u32(0);
        for rank in 0..34 {
            to.u32(self.lengths_v4.get(rank).map_or(0, |bits| high_bits_v4(*bits)));
        }
        for rank in 0..129 {
            let mask = self.lengths_v6.get(rank).map_or(0, |bits| high_bits_v6(*bits)).to_be_bytes();
            let (high, low) = mask.split_at(8);
            // The program compares IPv6 addresses as two numbers, high half first.
            for half in [high, low] {
                to.u64(half.iter().fold(0, |word, octet| word << 8 | u64::from(*octet)));
            }
        }
        self.named_v4.iter().chain(self.named_v6).for_each(|word| to.u64(*word));
        to.into_inner()
    }
}

pub(crate) fn high_bits_v4(bits: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0)
}

pub(crate) fn high_bits_v6(bits: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0)
}

/// `struct table`. Its key is secret.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableEntry {
    pub(crate) key: SipKey,
    pub(crate) first_row: u32,
    pub(crate) row_mask: u32,
    pub(crate) first_hop: u32,
    pub(crate) fields: u8,
    pub(crate) alt_fields: u8,
}

impl TableEntry {
    pub(crate) fn write(&self, to: &mut Octets) {
        to.put(self.key.octets());
        to.u32(self.first_row);
        to.u32(self.row_mask);
        to.u32(self.first_hop);
        to.u8(self.fields);
        to.u8(self.alt_fields);
        to.u16(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_that_the_header_asserts() {
        let header = include_str!("../../../bpf/abi.h");
        assert!(header.contains(&format!("enum {{ NAMED_BITS = {NAMED_BITS} }};")));
        for (name, size) in [
            ("config", CONFIG),
            ("bind_v4", BIND_V4),
            ("bind_v6", BIND_V6),
            ("page", PAGE),
            ("table", TABLE),
            ("row", ROW),
            ("hop", HOP),
        ] {
            let line = format!("_Static_assert(sizeof(struct {name}) == {size}, \"{name}\");");
            assert!(header.contains(&line), "{line}");
        }
    }

    #[test]
    fn what_is_written_has_its_size() {
        let config = Config {
            seed: 1,
            mtu: 1_500,
            lengths_v4: &[32, 0],
            lengths_v6: &[128],
            slots_v4: 4,
            slots_v6: 8,
            named_v4: &[7; _],
            named_v6: &[9; _],
        };
        let octets = config.octets();
        assert_eq!(octets.len(), CONFIG);
        assert_eq!(octets[32..40], [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
        assert_eq!((octets[CONFIG - 1_024], octets[CONFIG - 8]), (7, 9));
        let table = TableEntry {
            key: SipKey::new([7; 16]),
            first_row: 1,
            row_mask: 2,
            first_hop: 3,
            fields: 5,
            alt_fields: 0,
        };
        let mut to = Octets::default();
        table.write(&mut to);
        assert_eq!(to.into_inner().len(), TABLE);
    }
}
