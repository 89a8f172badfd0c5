//! A table file from whatever it is read from. Its first octets say how long it is, so nothing but those is read of a
//! file that is no table, that is longer than any table may be, or that has another length than it promises.
//!
//! Memory is taken for a table as long as its header promises, once that length is known to be right.

use super::check::error;
use super::{ForwardingTable, Section, TableError, decode, glb};
use std::io::{self, Read};

/// Octets at the start of a file, of either format, that show how long it is.
pub const START_LEN: usize = 24;
/// The longest file that is read or written, in octets: room for 1,169 tables of 65,536 rows and 4 hops.
pub const MAX_FILE: u64 = 1 << 30;

/// Why a table could not be had.
#[derive(Debug)]
pub enum ReadError {
    /// The system refused to read. It may be otherwise at another time.
    Io(io::Error),
    /// The octets are no table file.
    Table(TableError),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<TableError> for ReadError {
    fn from(error: TableError) -> Self {
        Self::Table(error)
    }
}

impl ForwardingTable {
    /// The length in octets that a file promises which starts with `start`. At least [`START_LEN`] octets are needed;
    /// the length is at most [`MAX_FILE`].
    pub fn promised_length(start: &[u8]) -> Result<u64, TableError> {
        let is_glb = start.starts_with(&glb::MAGIC);
        let length = if is_glb { glb::parse_length(start) } else { decode::parse_length(start) }?;
        if length > MAX_FILE {
            let expected = format!("a length of at most {MAX_FILE} octets (1 GiB)");
            return Err(error(Section::Header, if is_glb { 8 } else { 16 }, expected, length.to_string()));
        }
        Ok(length)
    }

    /// Reads a file of either format. `found` is the length that the system reports for it, in octets; none for a pipe.
    pub fn read_from(reader: impl Read, found: Option<u64>) -> Result<Self, ReadError> {
        Ok(Self::read(&Self::octets_from(reader, found)?)?)
    }

    /// The octets of such a file, of which only the start and the length are checked.
    pub fn octets_from(mut reader: impl Read, found: Option<u64>) -> Result<Vec<u8>, ReadError> {
        let mut octets = Vec::new();
        reader.by_ref().take(START_LEN as u64).read_to_end(&mut octets)?;
        let promised = Self::promised_length(&octets)?;
        if let Some(found) = found.filter(|found| *found != promised) {
            let place = usize::try_from(found).unwrap_or(usize::MAX);
            return Err(error(Section::File, place, format!("{promised} octets"), found.to_string()).into());
        }
        let rest = promised.saturating_sub(octets.len() as u64);
        octets.try_reserve_exact(usize::try_from(rest).unwrap_or(usize::MAX)).map_err(io::Error::from)?;
        // One octet more shows a file that has grown.
        reader.take(rest + 1).read_to_end(&mut octets)?;
        Ok(octets)
    }
}
