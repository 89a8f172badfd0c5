//! Who owned a row before: carried from table to table, so that the parent alone is enough.
//!
//! A row's *former owners* are its parent row's primary and that row's lineage, newest first, as far as they are still
//! candidates of the new table; backends are matched by id. The new table keeps as many of them as one hop list can
//! hold besides the primary.
//!
//! Where the number of rows changes, row `r` of the smaller table and rows `r + k × rows` of the larger one hold the
//! same flows, rows being the low bits of the flow hash. Where the flow hash itself changes, rows of parent and child
//! have nothing to do with each other, and there are no former owners.

use crate::config::TableSpec;
use common::backend::Backend;
use common::table::{ForwardingTable, Table};
use std::collections::HashMap;

/// What the builder knows of earlier tables.
#[derive(Clone, Copy, Debug)]
pub enum History<'a> {
    /// Nothing: a first table.
    None,
    /// The table in service, with all that it remembers.
    Parent(&'a ForwardingTable),
    /// The table in service; connections older than it are gone, so only its own owners count.
    Settled(&'a ForwardingTable),
}

impl<'a> History<'a> {
    /// The table in service.
    pub fn parent(self) -> Option<&'a ForwardingTable> {
        match self {
            Self::None => None,
            Self::Parent(parent) | Self::Settled(parent) => Some(parent),
        }
    }

    /// Former owners of the rows of one table, if its parent has anything to say on them.
    pub(super) fn of(
        self,
        spec: &TableSpec,
        backends: &[Backend],
        warnings: &mut Vec<String>,
    ) -> Option<Former<'a>> {
        let parent = self.parent()?.table(&spec.name)?;
        let changed = match (parent.hash_key != spec.hash_key, parent.hash_fields != spec.hash_fields) {
            (false, false) => None,
            (true, false) => Some("hash_key"),
            (false, true) => Some("hash_fields"),
            (true, true) => Some("hash_key and hash_fields"),
        };
        if let Some(changed) = changed {
            warnings.push(format!(
                "table {}: {changed} changed, so flows move to other rows and no former owner is known: \
                 connections of this table will break{}",
                spec.name,
                if spec.alt_hash_fields.contains(parent.hash_fields) && parent.hash_key == spec.hash_key {
                    ", but where alt_hash_fields finds their old row"
                } else {
                    ""
                },
            ));
            return None;
        }
        let depth = if matches!(self, Self::Settled(_)) { 1 } else { 1 + parent.lineage.width() };
        Some(Former::new(parent, backends, spec.rows, depth))
    }
}

/// Former owners of each row of one table.
#[derive(Clone, Debug)]
pub(super) struct Former<'a> {
    parent: &'a Table,
    /// By position in the parent: the position in the new table, if it is a candidate there.
    positions: Vec<Option<u16>>,
    rows: u32,
    /// How many generations back: 1 is the parent's own owner.
    depth: usize,
}

impl<'a> Former<'a> {
    fn new(parent: &'a Table, backends: &[Backend], rows: u32, depth: usize) -> Self {
        let candidates = (0u16..).zip(backends).filter(|(_, backend)| backend.is_candidate());
        let by_id: HashMap<&str, u16> = candidates.map(|(at, backend)| (backend.id.as_str(), at)).collect();
        let positions = parent.backends.iter().map(|old| by_id.get(old.id.as_str()).copied()).collect();
        Self { parent, positions, rows, depth }
    }

    /// Replaces `former` with the former owners of `row`, each once, newest first.
    pub(super) fn collect(&self, row: u32, former: &mut Vec<u16>) {
        former.clear();
        let old_rows = self.parent.rows();
        let first = row % old_rows;
        let step = usize::try_from(self.rows.min(old_rows)).unwrap_or(usize::MAX);
        for generation in 0..self.depth {
            for old_row in (first..old_rows).step_by(step) {
                let owner = self.owner(old_row, generation);
                former.extend(owner.filter(|owner| !former.contains(owner)));
            }
        }
    }

    /// Who owned a row of the parent so many generations before it.
    fn owner(&self, old_row: u32, generation: usize) -> Option<u16> {
        let old = match generation.checked_sub(1) {
            None => self.parent.primary(old_row),
            Some(before) => self.parent.lineage.get(old_row).get(before).copied(),
        };
        self.positions.get(usize::from(old?)).copied().flatten()
    }
}
