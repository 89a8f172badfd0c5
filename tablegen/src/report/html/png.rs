//! Pictures of 256 × 256 pixels with a palette, as data URIs for a page.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const WIDTH: u32 = 256;
/// Width and height in pixels.
pub(super) const SIDE: usize = WIDTH as usize;

/// A PNG picture as a data URI. Each pixel is an index into `palette`; there are [`SIDE`] × [`SIDE`] of them.
pub(super) fn data_uri(palette: &[[u8; 3]], pixels: &[u8]) -> String {
    let mut file = Vec::new();
    write(&mut file, palette, pixels)
        .expect("invariant: the picture has 65,536 pixels, and a Vec takes every octet");
    format!("data:image/png;base64,{}", base64(&file))
}

fn write(file: &mut Vec<u8>, palette: &[[u8; 3]], pixels: &[u8]) -> Result<(), png::EncodingError> {
    let mut encoder = png::Encoder::new(file, WIDTH, WIDTH);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_palette(palette.as_flattened());
    encoder.write_header()?.write_image_data(pixels)
}

/// Base64 with padding (RFC 4648, §4).
pub(super) fn base64(octets: &[u8]) -> String {
    STANDARD.encode(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decoder_reads_the_same_pixels() {
        let palette = [[1, 2, 3], [4, 5, 6], [7, 8, 9]];
        let pixels: Vec<u8> = (0..SIDE * SIDE).map(|pixel| u8::try_from(pixel % 3).unwrap()).collect();
        let uri = data_uri(&palette, &pixels);
        let file = STANDARD.decode(uri.strip_prefix("data:image/png;base64,").unwrap()).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
        let mut read = vec![0xa5; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut read).unwrap();
        assert_eq!((info.width, info.height, info.color_type), (256, 256, png::ColorType::Indexed));
        assert_eq!(read, pixels);
        assert_eq!(reader.info().palette.as_deref(), Some(palette.as_flattened()));
    }
}
