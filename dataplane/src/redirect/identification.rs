//! The identification of a kept IPv4 packet that may be a fragment.
//!
//! A raw socket that is given an IP header replaces an identification of 0 by one of the kernel's choice (raw(7)), a
//! new one for each packet: fragments of one datagram would never be put together. (One with DF stays 0: it is never in
//! fragments.) So 0 becomes a number that is the same for all fragments: of a sender that counts, the one that is
//! farthest from those in flight. Only in the socket's way: the kernel program leaves such packets to it where they are
//! fragments, and whole datagrams need none any more.

use crate::wire::checksum::updated;

/// Half the numbers away from 0.
const IN_PLACE_OF_0: u16 = 0x8000;
const FIELD: std::ops::Range<usize> = 4..6;
const CHECKSUM: std::ops::Range<usize> = 10..12;

/// Gives an IPv4 packet whose identification is 0 another. Its checksum stays right.
pub(super) fn write(packet: &mut [u8]) {
    let Some(checksum) = packet.get(CHECKSUM).and_then(|octets| octets.first_chunk()) else { return };
    let checksum = updated(u16::from_be_bytes(*checksum), 0, IN_PLACE_OF_0, || false);
    for (field, value) in [(FIELD, IN_PLACE_OF_0), (CHECKSUM, checksum)] {
        if let Some(octets) = packet.get_mut(field) {
            octets.copy_from_slice(&value.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::Ipv4Header;

    #[test]
    fn only_the_field_and_the_checksum_change() {
        for low in 0..=u8::MAX {
            let mut header =
                Ipv4Header::new(0, 64, 17.into(), [198, 51, 100, low], [203, 0, 113, 10]).unwrap();
            header.header_checksum = header.calc_header_checksum();
            let mut packet = header.to_bytes().to_vec();
            write(&mut packet);
            header.identification = 0x8000;
            header.header_checksum = header.calc_header_checksum();
            assert_eq!(packet, header.to_bytes().to_vec());
        }
        for len in 0..12 {
            let mut cut = vec![0x45; len];
            write(&mut cut);
            assert_eq!(cut, vec![0x45; len]);
        }
    }
}
