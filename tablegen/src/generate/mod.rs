//! From what an operator wrote to a forwarding table.
//!
//! ```text
//! TableSpec ─► sorted backends, binds ─┐
//!                                      ├─► for each row: ranking (lazy) ─► hop list ─► lineage
//! parent table ─► former owners ───────┘
//! ```
//!
//! Rows are independent of each other, so threads share nothing and their number never shows in the result.

pub mod hops;
mod lineage;
pub mod ranking;

pub use lineage::History;

use crate::config::TableSpec;
use common::backend::Backend;
use common::table::{ForwardingTable, Lists, Table, TableError};
use hops::{HopRule, Scratch};
use lineage::Former;
use ranking::Ranking;
use rayon::prelude::*;

/// Rows that a thread takes at a time: long enough to hide the hand-over, short enough to share 65,536 rows evenly.
const ROWS_A_TASK: usize = 1_024;

/// A table, and what its operator should know of how it came about.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    /// The table.
    pub table: ForwardingTable,
    /// One sentence each.
    pub warnings: Vec<String>,
}

/// Builds all tables, with the owners of `history` as former owners.
pub fn generate(specs: &[TableSpec], history: History<'_>) -> Result<Generated, TableError> {
    let mut specs: Vec<&TableSpec> = specs.iter().collect();
    specs.sort_by(|a, b| a.name.cmp(&b.name));
    let mut warnings = Vec::new();
    let tables = specs.into_iter().map(|spec| table(spec, history, &mut warnings)).collect();
    Ok(Generated { table: ForwardingTable::new(history.parent(), tables)?, warnings })
}

fn table(spec: &TableSpec, history: History<'_>, warnings: &mut Vec<String>) -> Table {
    let mut backends = spec.backends.clone();
    backends.sort_by(|a, b| a.id.cmp(&b.id));
    let mut binds = spec.binds.clone();
    binds.sort_unstable();
    let former = history.of(spec, &backends, warnings);
    let (hops, lineage) = rows(spec, &backends, former.as_ref());
    Table {
        name: spec.name.clone(),
        max_hops: spec.max_hops,
        ranking: spec.ranking,
        seed: spec.seed,
        hash_key: spec.hash_key,
        hash_fields: spec.hash_fields,
        alt_hash_fields: spec.alt_hash_fields,
        spread_zones: spec.spread_zones,
        backends,
        binds,
        hops,
        lineage,
    }
}

/// Hop lists and lineage of all rows.
fn rows(spec: &TableSpec, backends: &[Backend], former: Option<&Former<'_>>) -> (Lists, Lists) {
    let mut hops = Lists::empty(spec.rows, spec.max_hops);
    let mut lineage = Lists::empty(spec.rows, spec.max_hops.saturating_sub(1));
    let task = Task {
        rule: &HopRule::new(backends, spec.max_hops, spec.spread_zones),
        ranking: &Ranking::new(spec, backends),
        former,
    };
    let widths = (hops.width(), lineage.width());
    let chunks = hops.cells_mut().par_chunks_mut(ROWS_A_TASK * widths.0);
    let chunks = chunks.zip(lineage.cells_mut().par_chunks_mut(ROWS_A_TASK * widths.1));
    chunks.enumerate().for_each(|(at, (hops, lineage))| {
        let rows = hops.chunks_exact_mut(widths.0).zip(lineage.chunks_exact_mut(widths.1));
        task.run((at * ROWS_A_TASK..).zip(rows));
    });
    (hops, lineage)
}

/// What every thread reads.
#[derive(Clone, Copy)]
struct Task<'a> {
    rule: &'a HopRule,
    ranking: &'a Ranking,
    former: Option<&'a Former<'a>>,
}

impl Task<'_> {
    fn run<'r>(self, rows: impl Iterator<Item = (usize, (&'r mut [u16], &'r mut [u16]))>) {
        let mut ranker = self.ranking.ranker();
        let mut scratch = Scratch::default();
        let mut former = Vec::new();
        for (row, (hops, lineage)) in rows {
            #[expect(clippy::cast_possible_truncation, reason = "tables have at most 2²² rows")]
            let row = row as u32;
            if let Some(all) = self.former {
                all.collect(row, &mut former);
            }
            let list = self.rule.list(&former, ranker.rank(row), &mut scratch);
            let primary = list.first().copied();
            fill(hops, list.iter().copied());
            fill(lineage, former.iter().copied().filter(|one| Some(*one) != primary));
        }
    }
}

/// Cells beyond the list keep the value of an unused one.
fn fill(cells: &mut [u16], list: impl Iterator<Item = u16>) {
    cells.iter_mut().zip(list).for_each(|(cell, one)| *cell = one);
}
