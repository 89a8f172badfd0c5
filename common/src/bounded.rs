//! Reading with a bound: what is longer is refused, by its length where the system knows it, and else after as many
//! octets.

use std::io::{self, Read};

/// The longest YAML or JSON text that is read, in octets. A configuration of 65,534 backends has about 4 MiB.
pub const MAX_TEXT_FILE: u64 = 64 << 20;
/// The longest file with a secret, in octets. The secret itself has 32.
pub const MAX_SECRET_FILE: u64 = 4 << 10;

/// All of `reader`, which has `found` octets if the system knows it (a pipe's number is not known).
///
/// # Errors
/// [`io::ErrorKind::FileTooLarge`] if it has more than `most` octets.
pub fn octets(reader: impl Read, found: Option<u64>, most: u64) -> io::Result<Vec<u8>> {
    if let Some(found) = found.filter(|found| *found > most) {
        return Err(too_large(&format!("{found} octets"), most));
    }
    let mut octets = Vec::new();
    reader.take(most.saturating_add(1)).read_to_end(&mut octets)?;
    if octets.len() as u64 > most {
        return Err(too_large(&format!("more than {most} octets"), most));
    }
    Ok(octets)
}

/// The same, as UTF-8 text.
///
/// # Errors
/// As [`octets`]; [`io::ErrorKind::InvalidData`] if it is no UTF-8.
pub fn text(reader: impl Read, found: Option<u64>, most: u64) -> io::Result<String> {
    let octets = octets(reader, found, most)?;
    String::from_utf8(octets).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        io::Error::new(io::ErrorKind::InvalidData, format!("not UTF-8 text, from octet {at} on"))
    })
}

fn too_large(found: &str, most: u64) -> io::Error {
    let text = format!("{found}, at most {most} are read: check that it is the right file");
    io::Error::new(io::ErrorKind::FileTooLarge, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_itself_is_read_and_one_octet_more_is_not() {
        for found in [None, Some(4)] {
            assert_eq!(octets(&b"abcd"[..], found, 4).unwrap(), b"abcd");
        }
        for found in [None, Some(5)] {
            let refused = octets(&b"abcde"[..], found, 4).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
        }
        let endless = octets(io::repeat(7), None, 1 << 16).unwrap_err();
        let expected = "more than 65536 octets, at most 65536 are read: check that it is the right file";
        assert_eq!(endless.to_string(), expected);
    }

    /// The length that the system reports is enough: nothing is read.
    #[test]
    fn what_is_known_to_be_too_long_is_not_read() {
        struct Never;
        impl Read for Never {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                panic!("read")
            }
        }
        let refused = text(Never, Some(100_000_000), MAX_TEXT_FILE).unwrap_err();
        let expected = "100000000 octets, at most 67108864 are read: check that it is the right file";
        assert_eq!(refused.to_string(), expected);
    }
}
