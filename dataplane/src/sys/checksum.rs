//! Finishes a transport checksum that the kernel left to the hardware (CHECKSUM_PARTIAL).
//!
//! A packet that was made on this host, or in another namespace of it, has no transport checksum yet: its field holds
//! the sum of the pseudo header, and two numbers say from where to add up and where the result goes. On the wire a
//! network card does it. A director that wraps such a packet must do it, for then no card will: it sees one UDP
//! packet with a checksum of zero, and the inner packet would reach the server broken.
//! Sources: RFC 1071; Documentation/networking/checksum-offloads.rst.

/// Where the sum starts in the frame, and where its field lies behind that start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// Octets from the frame's start.
    pub start: usize,
    /// Octets from `start`.
    pub field: usize,
}

/// Adds up from `start` to the frame's end and writes the complement into the field. What does not fit is left alone.
///
/// A sum of zero is written as 0xffff, which is the same number (RFC 1071) and for UDP the only right one (RFC 768:
/// zero means "none").
pub fn finish(frame: &mut [u8], partial: Partial) {
    let Some(covered) = frame.get_mut(partial.start..) else { return };
    let sum = match !fold(add(covered)) {
        0 => 0xffff,
        sum => sum,
    };
    if let Some(field) = covered.get_mut(partial.field..).and_then(|rest| rest.first_chunk_mut()) {
        *field = sum.to_be_bytes();
    }
}

/// The sum of the big-endian 16-bit words; a last odd octet counts as the high half of one.
fn add(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<2>();
    let odd = rest.first().map_or(0, |&octet| u64::from(octet) << 8);
    words.iter().map(|&word| u64::from(u16::from_be_bytes(word))).sum::<u64>() + odd
}

/// A one's complement sum in 16 bits. Three folds are enough for any sum of up to 2^48.
fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    u16::try_from(sum).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;

    /// A UDP packet, its right checksum, and the frame with the pseudo header's sum alone in the field.
    fn unfinished(payload: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4([192, 0, 2, 1], [203, 0, 113, 10], 64)
            .udp(4000, 53);
        let mut whole = Vec::new();
        builder.write(&mut whole, payload).unwrap();
        let mut frame = whole.clone();
        frame[40..42].fill(0);
        let len = u64::try_from(8 + payload.len()).unwrap();
        let pseudo = fold(add(&frame[26..34]) + 17 + len);
        frame[40..42].copy_from_slice(&pseudo.to_be_bytes());
        (whole, frame)
    }

    #[test]
    fn finished_equals_what_an_independent_builder_writes() {
        for len in 0..200_u8 {
            let payload: Vec<u8> = (0..len).map(|octet| octet.wrapping_mul(151)).collect();
            let (whole, mut frame) = unfinished(&payload);
            finish(&mut frame, Partial { start: 34, field: 6 });
            assert_eq!(frame, whole, "{len} octets of payload");
        }
    }

    #[test]
    fn a_sum_of_zero_is_written_as_all_ones() {
        let mut frame = [0xff; 4];
        finish(&mut frame, Partial { start: 0, field: 2 });
        assert_eq!(frame, [0xff; 4]);
    }

    #[test]
    fn numbers_that_point_outside_change_nothing() {
        let (_, frame) = unfinished(b"x");
        for (start, field) in
            [(frame.len() + 1, 0), (frame.len(), 0), (0, frame.len()), (0, usize::MAX), (34, 8)]
        {
            let mut changed = frame.clone();
            finish(&mut changed, Partial { start, field });
            assert_eq!(changed, frame, "start {start}, field {field}");
        }
    }
}
