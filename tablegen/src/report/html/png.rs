//! Pictures of 256 × 256 pixels with a palette, and base64 to put them into a page.
//!
//! PNG (RFC 2083) allows its zlib stream (RFC 1950) to consist of stored blocks (RFC 1951, §3.2.4): no compressor is
//! needed, and 64 KiB of pixels stay 64 KiB.

/// Pixels of a side.
pub(super) const SIDE: usize = 256;

/// A PNG file; each pixel is a position in the palette.
pub(super) fn indexed(palette: &[[u8; 3]], pixels: &[u8]) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let side = [0, 0, 1, 0];
    let header = [&side[..], &side, &[8, 3, 0, 0, 0]].concat();
    chunk(&mut file, b"IHDR", &header);
    chunk(&mut file, b"PLTE", palette.as_flattened());
    let lines: Vec<u8> = pixels.chunks(SIDE).flat_map(|line| [&[0], line].concat()).collect();
    chunk(&mut file, b"IDAT", &zlib(&lines));
    chunk(&mut file, b"IEND", &[]);
    file
}

fn chunk(file: &mut Vec<u8>, kind: &[u8; 4], data: &[u8]) {
    file.extend(u32::try_from(data.len()).unwrap_or(u32::MAX).to_be_bytes());
    let start = file.len();
    file.extend(kind);
    file.extend(data);
    let check = crc(file.get(start..).unwrap_or_default());
    file.extend(check.to_be_bytes());
}

fn zlib(data: &[u8]) -> Vec<u8> {
    let mut stream = vec![0x78, 0x01];
    let mut blocks = data.chunks(0xffff).peekable();
    while let Some(block) = blocks.next() {
        let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
        stream.push(u8::from(blocks.peek().is_none()));
        stream.extend(length.to_le_bytes());
        stream.extend((!length).to_le_bytes());
        stream.extend(block);
    }
    stream.extend(adler(data).to_be_bytes());
    stream
}

/// CRC-32 as in RFC 2083, §15, bit by bit: pictures are small.
fn crc(octets: &[u8]) -> u32 {
    !octets.iter().fold(u32::MAX, |crc, octet| {
        (0..8).fold(crc ^ u32::from(*octet), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
    })
}

/// Adler-32 (RFC 1950, §9).
fn adler(octets: &[u8]) -> u32 {
    let (low, high) = octets.iter().fold((1u32, 0u32), |(low, high), octet| {
        let low = (low + u32::from(*octet)) % 65_521;
        (low, (high + low) % 65_521)
    });
    high << 16 | low
}

/// Base64 (RFC 4648, §4).
pub(super) fn base64(octets: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(octets.len().div_ceil(3) * 4);
    for group in octets.chunks(3) {
        let word = group
            .iter()
            .chain([0; 2].iter())
            .take(3)
            .fold(0usize, |word, octet| word << 8 | usize::from(*octet));
        for place in 0..4 {
            let letter = LETTERS.get(word >> (18 - 6 * place) & 63).copied().unwrap_or(b'=');
            text.push(if place <= group.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_check_values_hold() {
        assert_eq!(crc(b"123456789"), 0xcbf4_3926);
        assert_eq!(adler(b"Wikipedia"), 0x11e6_0398);
        let texts = ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(|text| base64(text.as_bytes()));
        assert_eq!(texts, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]);
    }
}
