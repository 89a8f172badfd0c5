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
mod incremental;
mod lineage;
pub mod ranking;
mod share;

pub use incremental::Incremental;
pub use lineage::History;

use crate::config::TableSpec;
use common::table::{ForwardingTable, Lists, Table, TableError};
use hops::{HopRule, Scratch};
use lineage::Former;
use ranking::{Ranking, RowRanker};
use rayon::prelude::*;

/// Rows that a thread takes at a time: long enough to hide the hand-over, short enough to share 65,536 rows evenly.
const ROWS_A_TASK: usize = 1_024;

/// A cell beyond the end of a list.
const UNUSED: u16 = u16::MAX;

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
    Ok(Generated { table: history.seal(tables)?, warnings })
}

/// Builds one table, which is not checked before it is sealed with the others.
pub fn table(spec: &TableSpec, history: History<'_>, warnings: &mut Vec<String>) -> Table {
    let mut table = empty(spec);
    let former = history.of(spec, &table.backends, warnings);
    let rule = HopRule::new(&table.backends, spec.max_hops, spec.spread_zones);
    let owners = share::owners(spec, &table.backends, &rule);
    let task = Task {
        rule: &rule,
        ranking: &Ranking::new(spec.ranking, spec.seed, &table.backends),
        owners: owners.as_deref(),
        former: former.as_ref(),
    };
    task.fill(&mut table.hops, &mut table.lineage);
    table
}

/// A table whose rows are still to be filled.
///
/// `verify` has a function much like this one on purpose: it shares no code with the generator, so that a mistake here
/// is not made there, too.
fn empty(spec: &TableSpec) -> Table {
    let mut backends = spec.backends.clone();
    backends.sort_by(|a, b| a.id.cmp(&b.id));
    let mut binds = spec.binds.clone();
    binds.sort_unstable();
    Table {
        name: spec.name.clone(),
        max_hops: spec.max_hops,
        ranking: spec.ranking,
        seed: spec.seed,
        hash_key: spec.hash_key,
        hash_fields: spec.hash_fields,
        alt_hash_fields: spec.alt_hash_fields,
        spread_zones: spec.spread_zones,
        max_share: spec.max_share,
        backends,
        binds,
        hops: Lists::empty(spec.rows, spec.max_hops),
        lineage: Lists::empty(spec.rows, spec.max_hops.saturating_sub(1)),
    }
}

/// What every thread reads.
#[derive(Clone, Copy)]
struct Task<'a> {
    rule: &'a HopRule,
    ranking: &'a Ranking<'a>,
    /// Of each row, where shares are bounded.
    owners: Option<&'a [Option<u16>]>,
    former: Option<&'a Former<'a>>,
}

impl Task<'_> {
    /// All rows, shared among threads. Gives those that were asked for more of their ranking than was at hand.
    fn fill(self, hops: &mut Lists, lineage: &mut Lists) -> Vec<u32> {
        let widths = (hops.width(), lineage.width());
        let depth = if self.owners.is_some() { HopRule::DEEP } else { self.rule.depth() };
        let chunks = hops.cells_mut().par_chunks_mut(ROWS_A_TASK * widths.0);
        let chunks = chunks.zip(lineage.cells_mut().par_chunks_mut(ROWS_A_TASK * widths.1)).enumerate();
        let deep = chunks.map_init(
            || self.worker(),
            |worker, (at, (hops, lineage))| {
                #[expect(clippy::cast_possible_truncation, reason = "tables have at most 2²² rows")]
                let start = (at * ROWS_A_TASK) as u32;
                let rows = hops.chunks_exact_mut(widths.0).zip(lineage.chunks_exact_mut(widths.1));
                worker.ranker.prepare(start, rows.len(), depth);
                let deep = (start..)
                    .zip(rows)
                    .filter_map(|(row, cells)| self.row(row, worker, cells).then_some(row));
                deep.collect::<Vec<u32>>()
            },
        );
        deep.flatten_iter().collect()
    }

    fn worker(&self) -> Worker<'_> {
        Worker { ranker: self.ranking.ranker(), scratch: Scratch::default(), former: Vec::new() }
    }

    /// One row: was it asked for more of its ranking than was at hand?
    #[inline]
    fn row(self, row: u32, worker: &mut Worker<'_>, (hops, lineage): (&mut [u16], &mut [u16])) -> bool {
        let Worker { ranker, scratch, former } = worker;
        if let Some(all) = self.former {
            all.collect(row, former);
        }
        if self.rule.is_at_rest()
            && self.owners.is_none()
            && let Some(pair) = ranker.pair(row)
            && former.iter().all(|one| *one == pair[0])
        {
            write_slice(hops, &pair);
            write_slice(lineage, &[]);
            return false;
        }
        let owner = self.owners.and_then(|owners| owners.get(row as usize).copied().flatten());
        let list = self.rule.list(former, owner, ranker.rank(row), scratch);
        let primary = list.first().copied();
        write_slice(hops, list);
        write_all(lineage, former.iter().copied().filter(|one| Some(*one) != primary));
        ranker.was_deep()
    }
}

/// What every thread has of its own.
#[derive(Debug)]
struct Worker<'a> {
    ranker: RowRanker<'a>,
    scratch: Scratch,
    former: Vec<u16>,
}

/// Writes a list of known length, which fits, and marks the cells beyond it as unused.
#[inline]
fn write_slice(cells: &mut [u16], list: &[u16]) {
    if let Some((used, unused)) = cells.split_at_mut_checked(list.len()) {
        used.copy_from_slice(list);
        unused.fill(UNUSED);
    }
}

/// Writes as much of a list as fits, and marks the cells beyond it as unused.
fn write_all(cells: &mut [u16], list: impl Iterator<Item = u16>) {
    let mut list = list.fuse();
    cells.iter_mut().for_each(|cell| *cell = list.next().unwrap_or(UNUSED));
}
