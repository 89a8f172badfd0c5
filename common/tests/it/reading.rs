//! Table files read from a reader: how much is read of what is no table.

use common::table::{ForwardingTable, MAX_FILE, ReadError, START_LEN};
use std::io::{self, Read};

/// Octets, then zeros without end; counts what is read.
struct Counted<'a> {
    octets: &'a [u8],
    read: usize,
}

impl Read for &mut Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = self.octets.get(self.read..).unwrap_or_default();
        let len = if rest.is_empty() { buffer.len() } else { rest.len().min(buffer.len()) };
        buffer[..len].fill(0);
        let known = len.min(rest.len());
        buffer[..known].copy_from_slice(&rest[..known]);
        self.read += len;
        Ok(len)
    }
}

fn native(length: u64) -> Vec<u8> {
    [&b"TRYSTFWD"[..], &1u32.to_le_bytes(), &1u32.to_le_bytes(), &length.to_le_bytes()].concat()
}

fn glb(tables: u32) -> Vec<u8> {
    [*b"GLBD", 2u32.to_le_bytes(), tables.to_le_bytes()]
        .into_iter()
        .chain([65_536u32, 256, 256].map(u32::to_le_bytes))
        .flatten()
        .collect()
}

/// Of each of these the first 24 octets are enough.
#[test]
fn no_more_than_the_start_is_read_of_what_is_no_table() {
    for (start, found, expected) in [
        (
            vec![],
            None,
            "header, offset 0: expected magic TRYSTFWD, found \\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00",
        ),
        (native(5_000), Some(20 << 30), "file, offset 21474836480: expected 5000 octets, found 21474836480"),
        (
            native(20 << 30),
            Some(20 << 30),
            "header, offset 16: expected a length of at most 1073741824 octets (1 GiB), found 21474836480",
        ),
        (
            native(u64::MAX),
            None,
            "header, offset 16: expected a length of at most 1073741824 octets (1 GiB), found 18446744073709551615",
        ),
        // 24 + 537,624 for each table.
        (glb(2), Some(1 << 30), "file, offset 1073741824: expected 1075272 octets, found 1073741824"),
        (
            glb(4_096),
            Some(24 + 4_096 * 537_624),
            "header, offset 8: expected a length of at most 1073741824 octets (1 GiB), found 2202107928",
        ),
    ] {
        let mut reader = Counted { octets: &start, read: 0 };
        match ForwardingTable::read_from(&mut reader, found) {
            Err(ReadError::Table(error)) => assert_eq!(error.to_string(), expected),
            other => panic!("{expected}: {other:?}"),
        }
        assert_eq!(reader.read, START_LEN, "{expected}");
    }
}

/// As long as it promises and one octet, which would show that it has grown.
#[test]
fn a_pipe_that_promises_a_length_is_read_to_there() {
    let start = native(100_000);
    let mut reader = Counted { octets: &start, read: 0 };
    let refused = ForwardingTable::read_from(&mut reader, None);
    assert!(matches!(&refused, Err(ReadError::Table(_))), "{refused:?}");
    assert_eq!(reader.read, 100_001);
}

#[test]
fn an_error_of_the_system_is_not_one_of_the_table() {
    struct Fails;
    impl Read for Fails {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::OutOfMemory.into())
        }
    }
    let refused = ForwardingTable::read_from(Fails, None);
    assert!(matches!(&refused, Err(ReadError::Io(_))), "{refused:?}");
    assert_eq!(MAX_FILE, 1_073_741_824);
}
