//! The identification of an accepted IPv4 packet that may be a fragment.
//!
//! A raw socket that is given an IP header replaces an identification of 0 with a number of the kernel's
//! choice (raw(7)), a new number for each packet. The fragments of one datagram would then never be
//! reassembled. (With DF the identification stays 0; such a packet is never fragmented.) So this module
//! replaces 0 with a number that is the same for all fragments of a datagram. For a sender that counts up, it
//! is the number farthest from those of packets in flight.
//!
//! Only the user-space path needs this. The kernel program punts fragments to it, and whole datagrams need no
//! identification.
use crate::wire::checksum::updated;

/// Half of the number space away from 0.
const REPLACEMENT: u16 = 0x8000;
const FIELD: std::ops::Range<usize> = 4..6;
const CHECKSUM: std::ops::Range<usize> = 10..12;

/// Replaces the identification of an IPv4 packet, which is 0. A right checksum stays right.
pub(super) fn write(packet: &mut [u8]) {
    let Some(checksum) = packet.get(CHECKSUM).and_then(|octets| octets.first_chunk()) else { return };
    let checksum = updated(u16::from_be_bytes(*checksum), 0, REPLACEMENT, || false);
    for (field, value) in [(FIELD, REPLACEMENT), (CHECKSUM, checksum)] {
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
