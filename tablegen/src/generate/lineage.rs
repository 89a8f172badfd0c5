//! Who owned a row before: carried from table to table, so that the parent alone is enough.
//!
//! A row's *former owners* are its parent row's primary and that row's lineage, newest first, as far as they are still
//! candidates of the new table; backends are matched by id. The new table keeps as many of them as one hop list can
//! hold besides the primary.
//!
//! A parent that was built as first, or whose file does not say how it was built, does not record who owned its rows
//! before. There, hops that are draining or down may have owned the row, and count as its oldest former owners.
//!
//! Where the number of rows changes, row `r` of the smaller table and rows `r + k × rows` of the larger one hold the
//! same flows, rows being the low bits of the flow hash. Where the flow hash itself changes, rows of parent and child
//! have nothing to do with each other, and there are no former owners; unless the second look-up (`alt_hash_fields`)
//! reads the parent's fields: then a flow's old row is still looked up, and keeps its former owners for it.
//!
//! A table continues the parent's table of its name, or else the one with the same binds: files of GLB Director's have no
//! names.

use crate::config::TableSpec;
use common::backend::Backend;
use common::table::{ForwardingTable, Table, TableError};
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

    /// The parent's table that a table continues.
    pub(super) fn table_of(self, spec: &TableSpec) -> Option<&'a Table> {
        let parent = self.parent()?;
        parent.table(&spec.name).or_else(|| {
            let mut binds = spec.binds.clone();
            binds.sort_unstable();
            parent.tables().iter().find(|table| table.binds == binds)
        })
    }

    /// Former owners of the rows of one table, if its parent has anything to say on them.
    pub(super) fn of(
        self,
        spec: &TableSpec,
        backends: &[Backend],
        warnings: &mut Vec<String>,
    ) -> Option<Former<'a>> {
        let parent = self.table_of(spec)?;
        if parent.name != spec.name {
            warnings.push(format!(
                "table {} continues table {} of the parent, which has the same binds",
                spec.name, parent.name
            ));
        }
        let is_looked_up = spec.alt_hash_fields == parent.hash_fields && parent.hash_key == spec.hash_key;
        let changed = match (parent.hash_key != spec.hash_key, parent.hash_fields != spec.hash_fields) {
            (false, false) => None,
            (true, false) => Some("hash_key"),
            (false, true) => Some("hash_fields"),
            (true, true) => Some("hash_key and hash_fields"),
        };
        match changed {
            None => {}
            Some(changed) if is_looked_up => warnings.push(format!(
                "table {}: {changed} changed, so flows move to other rows; connections survive because \
                 alt_hash_fields finds their old rows",
                spec.name,
            )),
            Some(changed) => {
                warnings.push(format!(
                    "table {}: {changed} changed, so flows move to other rows and no former owner is known: \
                     connections of this table will break",
                    spec.name,
                ));
                return None;
            }
        }
        let mut former = Former::new(parent, backends, spec.rows);
        if let Self::Parent(file) = self {
            former.remember(!file.built().has_lineage());
        }
        Some(former)
    }

    /// Makes a file's content of tables that were built with this history.
    pub(super) fn seal(self, tables: Vec<Table>) -> Result<ForwardingTable, TableError> {
        match self {
            Self::Settled(parent) => ForwardingTable::settled(parent, tables),
            Self::None | Self::Parent(_) => ForwardingTable::new(self.parent(), tables),
        }
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
    /// By position in the parent: may it have owned rows, because it is draining or down there? Empty if there are none,
    /// or if the parent's lineage says who owned its rows.
    suspects: Vec<bool>,
}

impl<'a> Former<'a> {
    /// With the parent's own owners alone.
    fn new(parent: &'a Table, backends: &[Backend], rows: u32) -> Self {
        let candidates = (0u16..).zip(backends).filter(|(_, backend)| backend.is_candidate());
        let by_id: HashMap<&str, u16> = candidates.map(|(at, backend)| (backend.id.as_str(), at)).collect();
        let positions = parent.backends.iter().map(|old| by_id.get(old.id.as_str()).copied()).collect();
        Self { parent, positions, rows, depth: 1, suspects: Vec::new() }
    }

    /// With all that the parent records, and with what its hops suggest if it records nothing.
    fn remember(&mut self, from_hops: bool) {
        self.depth += self.parent.lineage.width();
        if from_hops && self.parent.backends.iter().any(Backend::is_passed_over) {
            self.suspects = self.parent.backends.iter().map(Backend::is_passed_over).collect();
        }
    }

    /// Replaces `former` with the former owners of `row`, each once, newest first.
    pub(super) fn collect(&self, row: u32, former: &mut Vec<u16>) {
        former.clear();
        let old_rows = self.parent.rows();
        let first = row % old_rows;
        let step = usize::try_from(self.rows.min(old_rows)).unwrap_or(usize::MAX);
        let old_rows = || (first..old_rows).step_by(step);
        for generation in 0..self.depth {
            for old_row in old_rows() {
                let owner = self.owner(old_row, generation);
                former.extend(owner.filter(|owner| !former.contains(owner)));
            }
        }
        if self.suspects.is_empty() {
            return;
        }
        for place in 1..self.parent.hops.width() {
            for old_row in old_rows() {
                let owner = self.suspect(old_row, place);
                former.extend(owner.filter(|owner| !former.contains(owner)));
            }
        }
    }

    /// The hop at this place of a row of the parent, if it may have owned the row.
    fn suspect(&self, old_row: u32, place: usize) -> Option<u16> {
        let old = usize::from(*self.parent.hops.get(old_row).get(place)?);
        self.suspects.get(old).filter(|suspect| **suspect)?;
        self.positions.get(old).copied().flatten()
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
