//! The three hash functions, written a second time from their definitions, with the plainest arithmetic.

/// FNV-1a over 64 bits, then the splitmix64 finaliser.
pub(super) fn hash_bytes(octets: &[u8]) -> u64 {
    let fnv = octets.iter().fold(14_695_981_039_346_656_037_u64, |hash, octet| {
        (hash ^ u64::from(*octet)).wrapping_mul(1_099_511_628_211)
    });
    finalise(fnv)
}

/// The splitmix64 finaliser.
pub(super) fn finalise(word: u64) -> u64 {
    let mut word = word;
    for (shift, factor) in [(30, 0xbf58_476d_1ce4_e5b9_u64), (27, 0x94d0_49bb_1331_11eb)] {
        word ^= word >> shift;
        word = word.wrapping_mul(factor);
    }
    word ^ (word >> 31)
}

/// SipHash-2-4: the eight octets of the output.
pub(super) fn sip(key: &[u8; 16], message: &[u8]) -> [u8; 8] {
    let (low, high) = (word(key.get(..8)), word(key.get(8..)));
    let start = [b"somepseu", b"dorandom", b"lygenera", b"tedbytes"].map(|text| u64::from_be_bytes(*text));
    let mut v = [low ^ start[0], high ^ start[1], low ^ start[2], high ^ start[3]];
    for chunk in message.chunks_exact(8) {
        compress(&mut v, word(Some(chunk)));
    }
    // The last word ends with the length, whatever there is before it.
    let rest = message.chunks_exact(8).remainder();
    compress(&mut v, word(Some(rest)) | (message.len() as u64) << 56);
    v[2] ^= 0xff;
    rounds(&mut v, 4);
    v.iter().fold(0, |all, one| all ^ one).to_le_bytes()
}

fn compress(v: &mut [u64; 4], word: u64) {
    v[3] ^= word;
    rounds(v, 2);
    v[0] ^= word;
}

fn word(octets: Option<&[u8]>) -> u64 {
    let octets = octets.unwrap_or_default();
    match octets.first_chunk() {
        Some(whole) => u64::from_le_bytes(*whole),
        None => octets.iter().rev().fold(0, |word, octet| (word << 8) | u64::from(*octet)),
    }
}

fn rounds(v: &mut [u64; 4], count: usize) {
    for _ in 0..count {
        half_round(v, [0, 1, 2, 3], [13, 16]);
        half_round(v, [2, 1, 0, 3], [17, 21]);
    }
}

/// Two additions, two rotations, two exclusive-ors, and the half turn of the first word.
#[inline]
fn half_round(v: &mut [u64; 4], [a, b, c, d]: [usize; 4], [s, t]: [u32; 2]) {
    v[a] = v[a].wrapping_add(v[b]);
    v[c] = v[c].wrapping_add(v[d]);
    v[b] = v[b].rotate_left(s) ^ v[a];
    v[d] = v[d].rotate_left(t) ^ v[c];
    v[a] = v[a].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_vectors_hold() {
        // SipHash: the paper's appendix, key 00…0f. The messages are 0, 1, … of that length.
        let key: [u8; 16] = std::array::from_fn(|i| u8::try_from(i).unwrap());
        let message: Vec<u8> = (0..15).collect();
        assert_eq!(sip(&key, &message), 0xa129_ca61_49be_45e5_u64.to_le_bytes());
        assert_eq!(sip(&key, b""), 0x726f_db47_dd0e_0e31_u64.to_le_bytes());
        assert_eq!(sip(&key, &message[..8]), 0x93f5_f579_9a93_2462_u64.to_le_bytes());
    }

    #[test]
    fn both_ways_of_writing_agree() {
        let octets: Vec<u8> = (0..=255).map(|i: u8| i.wrapping_mul(37).wrapping_add(11)).collect();
        for length in 0..64 {
            let message = &octets[..length];
            assert_eq!(hash_bytes(message), tryst_hrw::hash::hash_bytes(message));
            let key: [u8; 16] = octets[100..116].try_into().unwrap();
            assert_eq!(sip(&key, message), common::hash::SipKey::new(key).hash(message).to_le_bytes());
        }
    }
}
