//! Tables kept at hand while their backends change: each change costs what it touches, not a build.
//!
//! A row's list depends on the beginning of its ranking, on the states of the backends in that beginning, and on its
//! former owners. So a change of one backend concerns the rows that know it in their beginning, those that it enters or
//! leaves, and those that it owned in the parent; all others keep their list. What the rule asks of the table as a
//! whole (does anybody accept?) concerns every row, but no ranking.
//!
//! The result is that of [`generate`](super::generate) with the same parent, octet for octet.

use super::hops::HopRule;
use super::ranking::{self, Kept, Ranking};
use super::{History, Task, UNUSED, Worker, empty, share};
use crate::config::TableSpec;
use common::backend::Backend;
use common::table::{self, ForwardingTable, Lists, Table, TableError};
use rayon::prelude::*;
use std::collections::HashMap;
use tryst_hrw::{NodeSet, Rankings};

/// How many of each ranking's first are kept: two are needed, the rest makes removals cheap.
const DEPTH: usize = 4;
/// Rows up to this part of all are done one by one.
const FEW: u32 = 8;

/// Tables that follow their configuration.
#[derive(Debug)]
pub struct Incremental<'a> {
    history: History<'a>,
    tables: Vec<Live>,
}

#[derive(Debug)]
struct Live {
    spec: TableSpec,
    table: Table,
    /// None with GLB's ranking or a bound of shares ([`is_ranked`]), which a change of one backend changes for all: such
    /// tables are built anew.
    ranked: Option<Ranked>,
    /// Rows whose last list took more than the kept beginning of their ranking: each change may concern them.
    deep: Vec<u32>,
    owned: Owned,
}

/// Beginnings of rankings, by handles that outlive changes.
#[derive(Debug)]
struct Ranked {
    rankings: Rankings,
    handles: HashMap<String, u32>,
}

/// Which rows a backend owned in the parent or before.
#[derive(Debug)]
enum Owned {
    None,
    Rows(HashMap<String, Vec<u32>>),
    /// Rows of the parent are not rows of the table.
    Any,
}

/// Rows that must be done again.
#[derive(Debug)]
enum Concerned {
    Rows(Vec<u32>),
    All,
}

impl<'a> Incremental<'a> {
    /// Builds all tables, ready to be changed.
    pub fn new(specs: &[TableSpec], history: History<'a>) -> Self {
        let mut specs: Vec<&TableSpec> = specs.iter().collect();
        specs.sort_by(|a, b| a.name.cmp(&b.name));
        Self { history, tables: specs.into_iter().map(|spec| Live::new(spec, history)).collect() }
    }

    /// Brings the tables to what `specs` say, and gives the number of rows that were done again for it.
    pub fn update(&mut self, specs: &[TableSpec]) -> usize {
        let mut old = std::mem::take(&mut self.tables);
        let mut specs: Vec<&TableSpec> = specs.iter().collect();
        specs.sort_by(|a, b| a.name.cmp(&b.name));
        let mut done = 0;
        for spec in specs {
            let same =
                old.iter().position(|live| live.ranked.is_some() && is_same_but_backends(&live.spec, spec));
            let (live, rows) = match same {
                Some(at) => {
                    let mut live = old.swap_remove(at);
                    let rows = live.update(spec, self.history);
                    (live, rows)
                }
                None => (Live::new(spec, self.history), spec.rows as usize),
            };
            self.tables.push(live);
            done += rows;
        }
        done
    }

    /// The tables as they are now, in ascending order of name.
    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.iter().map(|live| &live.table)
    }

    /// Checks the tables and makes the file's content of them.
    pub fn seal(&self) -> Result<ForwardingTable, TableError> {
        self.history.seal(self.tables().cloned().collect())
    }
}

/// Do the beginnings of its rankings say all that a change of one backend asks for?
fn is_ranked(spec: &TableSpec) -> bool {
    spec.ranking == table::Ranking::Hrw && spec.max_share.is_none()
}

/// Can one become the other by changes of backends alone? Binds are of no concern to rows.
fn is_same_but_backends(a: &TableSpec, b: &TableSpec) -> bool {
    let rows = |spec: &TableSpec| {
        (spec.rows, spec.max_hops, spec.ranking, spec.seed, spec.spread_zones, spec.max_share)
    };
    let flows = |spec: &TableSpec| (spec.hash_key, spec.hash_fields, spec.alt_hash_fields);
    a.name == b.name && rows(a) == rows(b) && flows(a) == flows(b)
}

impl Live {
    fn new(spec: &TableSpec, history: History<'_>) -> Self {
        let table = empty(spec);
        let ranked = is_ranked(spec).then(|| Ranked::new(spec, &table.backends));
        let owned = Owned::of(history, spec);
        let mut live = Self { spec: spec.clone(), table, ranked, deep: Vec::new(), owned };
        live.fill(Concerned::All, history);
        live
    }

    fn update(&mut self, spec: &TableSpec, history: History<'_>) -> usize {
        let next = empty_without_rows(spec);
        let before = HopRule::new(&self.table.backends, spec.max_hops, spec.spread_zones);
        let mut concerned = Vec::new();
        let mut any = !HopRule::new(&next.backends, spec.max_hops, spec.spread_zones).accepts_like(&before);
        for (old, new) in changes(&self.table.backends, &next.backends) {
            if let Some(ranked) = &mut self.ranked {
                concerned.extend(ranked.change(old, new));
            }
            match (&self.owned, old.or(new)) {
                (Owned::Rows(rows), Some(one)) => concerned.extend(rows.get(&one.id).into_iter().flatten()),
                (Owned::Any, _) => any = true,
                _ => {}
            }
        }
        renumber(&mut self.table, &next.backends);
        self.table.backends = next.backends;
        self.table.binds = next.binds;
        self.spec = spec.clone();
        concerned.extend(&self.deep);
        concerned.sort_unstable();
        concerned.dedup();
        self.fill(if any { Concerned::All } else { Concerned::Rows(concerned) }, history)
    }

    /// Does the concerned rows again.
    fn fill(&mut self, concerned: Concerned, history: History<'_>) -> usize {
        let Self { spec, table, ranked, deep, .. } = self;
        let Table { backends, hops, lineage, .. } = table;
        let former = history.of(spec, backends, &mut Vec::new());
        let mut ranking = Ranking::new(spec.ranking, spec.seed, backends);
        if let Some(ranked) = ranked {
            ranking = ranking.with_kept(ranked.kept(backends));
        }
        let rule = HopRule::new(backends, spec.max_hops, spec.spread_zones);
        let owners = share::owners(spec, backends, &rule);
        let task =
            Task { rule: &rule, ranking: &ranking, owners: owners.as_deref(), former: former.as_ref() };
        match concerned {
            Concerned::Rows(rows) if rows.len() as u64 * u64::from(FEW) <= u64::from(spec.rows) => {
                let count = rows.len();
                let mut worker = task.worker();
                *deep =
                    rows.into_iter().filter(|row| task.row_of(*row, &mut worker, hops, lineage)).collect();
                count
            }
            _ => {
                *deep = task.fill(hops, lineage);
                spec.rows as usize
            }
        }
    }
}

impl Task<'_> {
    fn row_of(self, row: u32, worker: &mut Worker<'_>, hops: &mut Lists, lineage: &mut Lists) -> bool {
        let cells = |lists: &mut Lists| {
            let start = row as usize * lists.width();
            start..start + lists.width()
        };
        let (hops_at, lineage_at) = (cells(hops), cells(lineage));
        let cells = hops.cells_mut().get_mut(hops_at).zip(lineage.cells_mut().get_mut(lineage_at));
        cells.is_some_and(|cells| self.row(row, worker, cells))
    }
}

impl Ranked {
    fn new(spec: &TableSpec, backends: &[Backend]) -> Self {
        let nodes = ranking::nodes(backends);
        let set = NodeSet::new(&nodes);
        let keys = ranking::keys(spec);
        let mut cells = vec![NodeSet::NONE; keys.len() * DEPTH];
        let chunks =
            keys.par_chunks(super::ROWS_A_TASK).zip(cells.par_chunks_mut(super::ROWS_A_TASK * DEPTH));
        chunks.for_each(|(keys, cells)| {
            set.top_many(keys, DEPTH, cells);
        });
        let handles = nodes.iter().map(|node| node.id().to_owned()).zip(0..).collect();
        Self { rankings: Rankings::from_cells(keys, DEPTH, nodes, cells), handles }
    }

    fn handle_limit(&self) -> usize {
        self.handles.values().max().map_or(0, |most| *most as usize + 1)
    }

    /// Follows a change of one backend, and gives the rows that it concerns.
    fn change(&mut self, old: Option<&Backend>, new: Option<&Backend>) -> Vec<u32> {
        let handle = old.or(new).and_then(|one| self.handles.get(&one.id).copied());
        let new = new.filter(|one| one.is_candidate());
        match (handle, new) {
            (None, None) => Vec::new(),
            (None, Some(new)) => {
                let change = self.rankings.insert(ranking::node(new));
                self.handles.insert(new.id.clone(), change.node);
                change.keys
            }
            (Some(handle), None) => {
                old.map(|old| self.handles.remove(&old.id));
                self.rankings.remove(handle).keys
            }
            (Some(handle), Some(new)) => {
                if old.is_some_and(|old| old.effective_weight() == new.effective_weight()) {
                    return self.rankings.knowing(handle);
                }
                let mut rows = self.rankings.knowing(handle);
                rows.extend(self.rankings.replace(handle, ranking::node(new)).keys);
                rows
            }
        }
    }

    fn kept(&self, backends: &[Backend]) -> Kept<'_> {
        let mut positions = vec![UNUSED; self.handle_limit()];
        for (position, backend) in ranking::candidates(backends) {
            let handle = self.handles.get(&backend.id);
            if let Some(cell) = handle.and_then(|handle| positions.get_mut(*handle as usize)) {
                *cell = position;
            }
        }
        Kept { rankings: &self.rankings, positions }
    }
}

impl Owned {
    fn of(history: History<'_>, spec: &TableSpec) -> Self {
        let Some(file) = history.parent() else { return Self::None };
        let Some(parent) = history.table_of(spec) else { return Self::None };
        // Where the parent does not record former owners, its hops may be.
        let may_have_owned = |hop: u16| {
            !file.built().has_lineage() && parent.backend(hop).is_some_and(Backend::is_passed_over)
        };
        if parent.rows() != spec.rows {
            return Self::Any;
        }
        let mut rows = vec![Vec::new(); parent.backends.len()];
        for ((row, hops), lineage) in (0..).zip(parent.hops.iter()).zip(parent.lineage.iter()) {
            let suspects = hops.iter().skip(1).filter(|hop| may_have_owned(**hop));
            for owner in hops.iter().take(1).chain(lineage).chain(suspects) {
                rows.get_mut(usize::from(*owner)).into_iter().for_each(|rows: &mut Vec<u32>| rows.push(row));
            }
        }
        Self::Rows(parent.backends.iter().map(|backend| backend.id.clone()).zip(rows).collect())
    }
}

/// The configured part of a table.
fn empty_without_rows(spec: &TableSpec) -> Table {
    empty(&TableSpec { rows: 0, ..spec.clone() })
}

/// Backends that differ, paired by id. Both lists are in ascending order of id.
fn changes<'b>(
    mut old: &'b [Backend],
    mut new: &'b [Backend],
) -> impl Iterator<Item = (Option<&'b Backend>, Option<&'b Backend>)> {
    std::iter::from_fn(move || {
        loop {
            let pair = match (old.split_first(), new.split_first()) {
                (None, None) => return None,
                (Some((a, _)), Some((b, _))) if a.id == b.id => (Some(a), Some(b)),
                (Some((a, _)), Some((b, _))) if a.id > b.id => (None, Some(b)),
                (None, Some((b, _))) => (None, Some(b)),
                (Some((a, _)), _) => (Some(a), None),
            };
            old = old.get(usize::from(pair.0.is_some())..).unwrap_or_default();
            new = new.get(usize::from(pair.1.is_some())..).unwrap_or_default();
            if pair.0 != pair.1 {
                return Some(pair);
            }
        }
    })
}

/// Moves positions in lists to where their backends stand now. Rows that hold a removed one are done again later.
fn renumber(table: &mut Table, next: &[Backend]) {
    let Table { backends, hops, lineage, .. } = table;
    if backends.len() == next.len() && backends.iter().zip(next).all(|(old, new)| old.id == new.id) {
        return;
    }
    let positions: HashMap<&str, u16> = next.iter().map(|backend| backend.id.as_str()).zip(0..).collect();
    let place = |backend: &Backend| positions.get(backend.id.as_str()).copied().unwrap_or(UNUSED);
    let moved: Vec<u16> = backends.iter().map(place).collect();
    for cell in hops.cells_mut().iter_mut().chain(lineage.cells_mut()) {
        *cell = moved.get(usize::from(*cell)).copied().unwrap_or(UNUSED);
    }
}
