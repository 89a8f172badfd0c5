//! A side file that saves the next build from ranking: the beginning of every row's ranking in the table in service.
//!
//! It belongs to one table, whose digest it carries, and is worth nothing beside any other; it can be deleted at any
//! time. A file that is damaged, of another version or of another table is as good as none, never an error.
//!
//! ```text
//!  0   8  magic, the ASCII letters TRYSTRNK
//!  8   4  version, 1
//! 12  32  digest of the table file
//! 44   4  number of tables
//! 48   …  for each table, in its file's order: 4 rows (0: not kept), then rows × 4 × u16: positions among the table's
//!         candidates, best first, 0xffff fills
//!  …  32  SHA-256 of everything before it
//! ```
//!
//! All integers are little-endian.

use super::UNUSED;
use super::incremental::DEPTH;
use common::table::{Digest, ForwardingTable};

const MAGIC: [u8; 8] = *b"TRYSTRNK";
const VERSION: u32 = 1;
const DIGEST_LEN: usize = 32;

/// The beginnings of the rankings of one table file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    table: Digest,
    /// By table, in its file's order: [`DEPTH`] cells a row, or nothing.
    cells: Vec<Vec<u16>>,
}

impl Cache {
    pub(super) const fn new(table: Digest, cells: Vec<Vec<u16>>) -> Self {
        Self { table, cells }
    }

    /// The beginnings of the table of that name, if `parent` is the file that this was kept for.
    pub(super) fn cells(&self, parent: &ForwardingTable, name: &str) -> Option<&[u16]> {
        let at = parent.tables().iter().position(|table| table.name == name)?;
        let cells = self.cells.get(at).filter(|cells| !cells.is_empty())?;
        (self.table == parent.digest()).then_some(cells)
    }

    /// Octets of the side file.
    pub fn encode(&self) -> Vec<u8> {
        let mut file = MAGIC.to_vec();
        file.extend_from_slice(&VERSION.to_le_bytes());
        file.extend_from_slice(&self.table.0);
        file.extend_from_slice(&u32::try_from(self.cells.len()).unwrap_or(u32::MAX).to_le_bytes());
        for cells in &self.cells {
            let rows = u32::try_from(cells.len() / DEPTH).unwrap_or(u32::MAX);
            file.extend_from_slice(&rows.to_le_bytes());
            file.extend(cells.iter().flat_map(|cell| cell.to_le_bytes()));
        }
        let digest = Digest::of(&file);
        file.extend_from_slice(&digest.0);
        file
    }

    /// Reads a side file; none if it is not whole.
    pub fn decode(octets: &[u8]) -> Option<Self> {
        let (content, digest) = octets.split_last_chunk::<DIGEST_LEN>()?;
        let (magic, content_after) = content.split_first_chunk::<8>()?;
        if *magic != MAGIC || Digest::of(content).0 != *digest {
            return None;
        }
        let mut rest = content_after;
        if number(&mut rest)? != VERSION {
            return None;
        }
        let (table, after) = rest.split_first_chunk::<DIGEST_LEN>()?;
        rest = after;
        let count = number(&mut rest)?;
        let cells = (0..count).map(|_| cells(&mut rest)).collect::<Option<Vec<_>>>()?;
        rest.is_empty().then_some(Self { table: Digest(*table), cells })
    }
}

fn number(rest: &mut &[u8]) -> Option<u32> {
    let (number, after) = rest.split_first_chunk::<4>()?;
    *rest = after;
    Some(u32::from_le_bytes(*number))
}

fn cells(rest: &mut &[u8]) -> Option<Vec<u16>> {
    let rows = usize::try_from(number(rest)?).ok()?;
    let (cells, after) = rest.split_at_checked(rows.checked_mul(DEPTH * 2)?)?;
    *rest = after;
    Some(cells.as_chunks::<2>().0.iter().map(|cell| u16::from_le_bytes(*cell)).collect())
}

/// Cells as handles.
pub(super) fn widened(cells: &[u16]) -> Vec<u32> {
    let wide = |cell: &u16| if *cell == UNUSED { common::hrw::NodeSet::NONE } else { u32::from(*cell) };
    cells.iter().map(wide).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_is_as_good_as_none() {
        let cache = Cache::new(Digest([7; 32]), vec![vec![1, 2, 3, UNUSED], Vec::new()]);
        let octets = cache.encode();
        assert_eq!(Cache::decode(&octets), Some(cache));
        for end in 0..octets.len() {
            assert_eq!(Cache::decode(&octets[..end]), None);
        }
        for at in 0..octets.len() {
            let mut flipped = octets.clone();
            flipped[at] ^= 1;
            assert_eq!(Cache::decode(&flipped), None, "octet {at}");
        }
    }
}
