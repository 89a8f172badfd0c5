//! What changes from one forwarding table to the next, so that a person can approve it and a machine can refuse it.
//!
//! A [`Diff`] is made of two tables alone; it trusts their hop lists and asks whether every backend that may hold
//! connections of a row can still be reached there. (Whether the hop lists are *right* is another question, which
//! `verify` answers.) Tables are matched by name and backends by id.
//!
//! Words, for one row:
//!
//! - *moved*: another owner than before. Where the number of rows changed, rows are compared as flows see them: a row
//!   is the low bits of the flow hash, so row `r` of the smaller table is every row of the larger that ends in `r`.
//! - *unnecessary*: moved, though the old owner may own rows as before, has lost no weight, and the new one has won
//!   none. Rendezvous hashing never does that; a change of seed, key or number of rows does. Where shares are bounded,
//!   such rows are the price of the bound, and are counted apart.
//! - *at risk*: a backend that may hold connections of the row stood in the old hop list and does not stand in the
//!   new one, or left the configuration without having been drained.

mod config;
mod failure;
mod limits;
mod roles;
mod rows;

pub use config::{Change, Subject};
pub use failure::{Failed, Failure};
pub use limits::{Amount, Excess, Limits, Verdict};
pub use roles::eligible;
pub use rows::{Mapping, Risk, RowChange, RowChanges};

use common::table::{Built, Digest, ForwardingTable, Table};
use common::tunnel::overhead;
use roles::fair_shares;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// A table file, by what it is called.
#[derive(Clone, Debug)]
pub struct Version {
    /// Its name.
    pub digest: Digest,
    /// Number of the build.
    pub generation: u64,
    /// The file it was built from.
    pub parent: Option<Digest>,
}

impl Version {
    fn of(table: &ForwardingTable) -> Self {
        Self { digest: table.digest(), generation: table.generation(), parent: table.parent() }
    }
}

/// How the new file descends from the old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descent {
    /// They are the same file.
    Same,
    /// The new one was built with `--previous` old.
    Child,
    /// The new one was built without `--previous`: it knows no former owners.
    Rootless,
    /// The new one was built from another parent.
    Stranger,
}

/// Two table files compared.
#[derive(Clone, Debug)]
pub struct Diff {
    /// The table in service.
    pub old: Version,
    /// The table under review.
    pub new: Version,
    /// Was the new one built from the old one?
    pub descent: Descent,
    /// One entry a table name of either file, in ascending order.
    pub tables: Vec<TableDiff>,
}

impl Diff {
    /// Compares two files.
    pub fn new(old: &ForwardingTable, new: &ForwardingTable) -> Self {
        let names: BTreeSet<&str> =
            old.tables().iter().chain(new.tables()).map(|table| table.name.as_str()).collect();
        let settled = new.built() == Built::Settled && new.parent() == Some(old.digest());
        let tables =
            names.into_iter().map(|name| TableDiff::new(name, old.table(name), new.table(name), settled));
        Self {
            old: Version::of(old),
            new: Version::of(new),
            descent: descent(old, new),
            tables: tables.collect(),
        }
    }

    /// Rows at risk in all tables.
    pub fn at_risk(&self) -> u64 {
        self.tables.iter().map(|table| u64::from(table.rows.at_risk)).sum()
    }

    /// Rows with another owner in all tables.
    pub fn moved(&self) -> u64 {
        self.tables.iter().map(|table| u64::from(table.rows.moved)).sum()
    }

    /// Rows of all tables.
    pub fn total(&self) -> u64 {
        self.tables.iter().map(|table| u64::from(table.rows.total)).sum()
    }
}

fn descent(old: &ForwardingTable, new: &ForwardingTable) -> Descent {
    match new.parent() {
        _ if new.digest() == old.digest() => Descent::Same,
        Some(parent) if parent == old.digest() => Descent::Child,
        Some(_) => Descent::Stranger,
        None => Descent::Rootless,
    }
}

/// One table of the two files compared.
#[derive(Clone, Debug)]
pub struct TableDiff {
    /// Its name.
    pub name: String,
    /// Is it in the old file, and in the new one?
    pub present: [bool; 2],
    /// What the operator changed.
    pub config: Vec<Change>,
    /// What became of the rows.
    pub rows: RowChanges,
    /// Every backend of either table, in ascending order of id.
    pub backends: Vec<BackendDiff>,
    /// Before and after.
    pub shape: [Shape; 2],
    /// What each failure would do to the new table: backends, then zones.
    pub failures: Vec<Failure>,
}

/// A backend before and after.
#[derive(Clone, Debug)]
pub struct BackendDiff {
    /// Stable name.
    pub id: String,
    /// Rows owned.
    pub rows: [u32; 2],
    /// Rows that its weight entitles it to: 0 where it may own none.
    pub fair: [f64; 2],
    /// Rows won, by former owner; most first. The owner is none where the row was empty.
    pub gained: Vec<(Option<u32>, u32)>,
    /// Rows lost, by new owner; most first.
    pub lost: Vec<(Option<u32>, u32)>,
    /// In words: state, and health where it is not up. None where it is not in the table.
    pub condition: [Option<String>; 2],
}

/// One version of a table, in numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shape {
    /// Number of rows.
    pub rows: u32,
    /// Rows by length of their hop list, 0…4.
    pub hop_lengths: [u32; 5],
    /// Octets that encapsulation adds: in most rows, and in the worst.
    pub overhead: (u32, u32),
    /// The fullest backend over its fair share, and which it is.
    pub fullest: Option<(f64, u32)>,
    /// The emptiest.
    pub emptiest: Option<(f64, u32)>,
}

/// What most links carry.
pub const USUAL_MTU: u32 = 1_500;

impl TableDiff {
    fn new(name: &str, old: Option<&Table>, new: Option<&Table>, settled: bool) -> Self {
        let mapping = Mapping::new(old, new);
        let settled = settled && old.is_some() && new.is_some();
        let rows = RowChanges::new(old, new, &mapping, settled);
        let backends = backends(old, new, &mapping, &rows);
        let shape = [(old, 0), (new, 1)].map(|(table, side)| shape(table, &backends, side));
        Self {
            name: name.to_owned(),
            present: [old.is_some(), new.is_some()],
            config: config::changes(old, new),
            failures: new.map(|new| failure::failures(new, &mapping)).unwrap_or_default(),
            rows,
            backends,
            shape,
        }
    }

    /// The id of a backend that some list refers to.
    pub fn id(&self, backend: u32) -> &str {
        self.backends.get(backend as usize).map_or("?", |backend| backend.id.as_str())
    }
}

fn backends(
    old: Option<&Table>,
    new: Option<&Table>,
    mapping: &Mapping,
    rows: &RowChanges,
) -> Vec<BackendDiff> {
    let sides = [old, new];
    let fair = sides.map(|table| table.map(fair_shares).unwrap_or_default());
    let mut all: Vec<BackendDiff> = (mapping.ids.iter().enumerate())
        .map(|(at, id)| {
            let positions = mapping.positions.get(at).copied().unwrap_or_default();
            let share = |side: usize| {
                let position = positions.get(side).copied().flatten()?;
                fair.get(side)?.get(usize::from(position)).copied()
            };
            BackendDiff {
                id: id.clone(),
                rows: rows.owned.get(at).copied().unwrap_or_default(),
                fair: [0, 1].map(|side| share(side).unwrap_or(0.0) * f64::from(rows.total)),
                gained: Vec::new(),
                lost: Vec::new(),
                condition: [0, 1].map(|side| {
                    let position = positions.get(side).copied().flatten()?;
                    sides.get(side).copied().flatten()?.backend(position).map(roles::condition)
                }),
            }
        })
        .collect();
    for (&(from, to), &count) in &rows.moves {
        if let Some(from) = from.and_then(|from| all.get_mut(from as usize)) {
            from.lost.push((to, count));
        }
        if let Some(to) = to.and_then(|to| all.get_mut(to as usize)) {
            to.gained.push((from, count));
        }
    }
    for backend in &mut all {
        backend.lost.sort_by_key(|(id, rows)| (std::cmp::Reverse(*rows), *id));
        backend.gained.sort_by_key(|(id, rows)| (std::cmp::Reverse(*rows), *id));
    }
    all
}

fn shape(table: Option<&Table>, backends: &[BackendDiff], side: usize) -> Shape {
    let Some(table) = table else { return Shape::default() };
    let mut hop_lengths = [0; 5];
    let mut most = 0;
    let mut overheads = std::collections::BTreeMap::<u32, u32>::new();
    let wide: Vec<bool> =
        table.backends.iter().map(|backend| matches!(backend.address, IpAddr::V6(_))).collect();
    for list in table.hops.iter() {
        if let Some(count) = hop_lengths.get_mut(list.len()) {
            *count += 1;
        }
        let wide = list.iter().any(|hop| wide.get(usize::from(*hop)).copied().unwrap_or(false));
        let octets = overhead(list.len(), wide, !table.alt_hash_fields.is_empty());
        *overheads.entry(octets).or_default() += 1;
        most = most.max(octets);
    }
    let usual = overheads.iter().max_by_key(|(_, rows)| **rows).map_or(0, |(octets, _)| *octets);
    let loads = (0u32..).zip(backends).filter_map(|(at, backend)| {
        let fair = *backend.fair.get(side)?;
        let rows = f64::from(*backend.rows.get(side)?);
        (fair > 0.0).then(|| (rows / fair, at))
    });
    let mut loads: Vec<(f64, u32)> = loads.collect();
    loads.sort_by(|a, b| a.0.total_cmp(&b.0));
    Shape {
        rows: table.rows(),
        hop_lengths,
        overhead: (usual, most),
        fullest: loads.last().copied(),
        emptiest: loads.first().copied(),
    }
}
