//! How a table file was built: what a review may conclude from its lineage.

use super::HEADER_1_LEN;
use std::fmt;

/// How a table file was built. The next build and every review read from it what the lineage can and cannot say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Built {
    /// The file does not say: it is of version 1, or GLB Director's.
    Unknown,
    /// Without a parent: earlier owners of its rows, if there were any, are not recorded.
    First,
    /// On a parent, with all former owners that the parent records.
    Child,
    /// On a parent, with the parent's own owners alone as former owners.
    Settled,
}

impl Built {
    /// The word in configurations and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::First => "first",
            Self::Child => "child",
            Self::Settled => "settled",
        }
    }

    /// The number in the file; a file of version 1 has none.
    pub(super) const fn number(self) -> Option<u8> {
        match self {
            Self::Unknown => None,
            Self::First => Some(1),
            Self::Child => Some(2),
            Self::Settled => Some(3),
        }
    }

    pub(super) fn from_number(number: u8) -> Option<Self> {
        [Self::First, Self::Child, Self::Settled].into_iter().find(|built| built.number() == Some(number))
    }

    /// Octets of the header of a file that says so.
    pub(super) const fn header_len(self) -> usize {
        HEADER_1_LEN + if self.number().is_some() { 1 } else { 0 }
    }

    /// Does the file record the former owners of its rows, as far as its oldest ancestor?
    pub const fn has_lineage(self) -> bool {
        matches!(self, Self::Child | Self::Settled)
    }
}

impl fmt::Display for Built {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
