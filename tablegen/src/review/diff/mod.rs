//! Differences between two forwarding tables, as facts.
//!
//! A [`Diff`] is computed from two table files only. It assumes that their hop lists are correct, which `verify` checks,
//! and examines whether every backend that may hold connections of a row is still a hop of it. Tables are matched by
//! name, backends by id.
//!
//! Terms, for one row:
//!
//! - *moved*: its owner changed. If the number of rows changed, rows are compared as flows use them: a row is the low
//!   bits of the flow hash, so row `r` of the smaller table stands for every row of the larger one that ends in `r`.
//! - *unnecessary*: it moved, although its old owner can still own rows and lost no weight, and its new owner gained no
//!   weight. Rendezvous hashing never causes this; a change of seed, key or number of rows does. With `max_share`, such
//!   moves are a cost of the bound and are counted apart.
//! - *at risk*: a backend that may hold connections of the row was in the old hop list and is not in the new one, or it
//!   left the configuration without a drain.

mod config;
mod failure;
mod roles;
mod rows;

pub use config::{ConfigChange, Subject};
pub use failure::{Failed, Failure};
pub use rows::{Mapping, Risk, RowChange, RowChanges};

use common::table::{Built, Digest, ForwardingTable, Table};
use common::tunnel::overhead;
use roles::fair_shares;
use std::collections::{BTreeMap, BTreeSet};

/// Identity of a table file.
#[derive(Clone, Debug)]
pub struct Version {
    /// Digest of the file.
    pub digest: Digest,
    /// Generation of the table.
    pub generation: u64,
    /// Digest of the table that it was built from.
    pub parent: Option<Digest>,
}

impl Version {
    fn of(table: &ForwardingTable) -> Self {
        Self { digest: table.digest(), generation: table.generation(), parent: table.parent() }
    }
}

/// How the new table descends from the old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descent {
    /// Both files are the same.
    Same,
    /// The new table was built with the old one as `--previous`.
    Child,
    /// The new table was built without `--previous`, so it has no former owners.
    Rootless,
    /// The new table was built from another table.
    Stranger,
}

/// The differences between two table files.
#[derive(Clone, Debug)]
pub struct Diff {
    /// The table in service.
    pub old: Version,
    /// The table under review.
    pub new: Version,
    /// How the new table descends from the old one.
    pub descent: Descent,
    /// One entry for each table name of either file, in ascending order.
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

/// The differences between two versions of one table.
#[derive(Clone, Debug)]
pub struct TableDiff {
    /// Name of the table.
    pub name: String,
    /// Whether the old file and the new file contain the table.
    pub present: [bool; 2],
    /// Changed values of the configuration.
    pub config: Vec<ConfigChange>,
    /// Changed rows.
    pub rows: RowChanges,
    /// Every backend of either table, in ascending order of id.
    pub backends: Vec<BackendDiff>,
    /// The table before and after the change, in numbers.
    pub shape: [Shape; 2],
    /// The effect of each single failure on the new table: backends, then zones.
    pub failures: Vec<Failure>,
}

/// A backend before and after the change.
#[derive(Clone, Debug)]
pub struct BackendDiff {
    /// Id of the backend.
    pub id: String,
    /// Rows owned.
    pub rows: [u32; 2],
    /// Its fair share of the rows by weight; 0 if it may own none.
    pub fair: [f64; 2],
    /// Rows gained by old owner, most rows first. None stands for rows that were empty.
    pub gained: Vec<(Option<u32>, u32)>,
    /// Rows lost by new owner, most rows first.
    pub lost: Vec<(Option<u32>, u32)>,
    /// State in words, with the health if it is down. None if the table does not contain the backend.
    pub condition: [Option<String>; 2],
}

/// One version of a table, in numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shape {
    /// Number of rows.
    pub rows: u32,
    /// Rows by length of their hop list, 0…4.
    pub hop_lengths: [u32; 5],
    /// Octets that encapsulation adds to a packet: in most rows, and at most.
    pub overhead: (u32, u32),
    /// The greatest ratio of rows to fair share, and the number of its backend.
    pub most_loaded: Option<(f64, u32)>,
    /// The least ratio of rows to fair share, and the number of its backend.
    pub least_loaded: Option<(f64, u32)>,
}

/// MTU of most links, in octets.
pub const USUAL_MTU: u32 = 1_500;

/// What stands for the owner of an empty row.
pub(crate) const NO_BACKEND: &str = "no backend";

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

    /// The id of the backend with this number. Numbers are indices into [`Self::backends`].
    pub fn id(&self, backend: u32) -> &str {
        &self.backends[backend as usize].id
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
    let mut rows_by_octets = BTreeMap::<u32, u32>::new();
    for hops in table.hops.iter() {
        hop_lengths[hops.len()] += 1;
        *rows_by_octets.entry(row_overhead(table, hops)).or_default() += 1;
    }
    let usual = rows_by_octets.iter().max_by_key(|(_, rows)| **rows).map_or(0, |(octets, _)| *octets);
    let most = rows_by_octets.keys().next_back().copied().unwrap_or(0);
    let loads = (0u32..).zip(backends).filter_map(|(number, backend)| {
        let (fair, rows) = (backend.fair[side], f64::from(backend.rows[side]));
        (fair > 0.0).then(|| (rows / fair, number))
    });
    let mut loads: Vec<(f64, u32)> = loads.collect();
    loads.sort_by(|a, b| a.0.total_cmp(&b.0));
    Shape {
        rows: table.rows(),
        hop_lengths,
        overhead: (usual, most),
        most_loaded: loads.last().copied(),
        least_loaded: loads.first().copied(),
    }
}

/// Octets that encapsulation adds to a packet of a row. A packet carries only hops of the primary's address family.
fn row_overhead(table: &Table, hops: &[u16]) -> u32 {
    let is_v6 = |hop: &u16| table.backends[usize::from(*hop)].address.is_ipv6();
    let Some(wide) = hops.first().map(is_v6) else { return 0 };
    let carried = hops.iter().filter(|hop| is_v6(hop) == wide).count();
    overhead(carried, wide, !table.alt_hash_fields.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::backend::Backend;
    use common::table::Lists;

    /// A table with the hop lists `[v4, v6, v4]` and `[v6, v4]`.
    #[test]
    fn overhead_counts_only_hops_of_the_primarys_family() {
        let backends = vec![
            Backend::new("a", "10.0.0.1".parse().unwrap()),
            Backend::new("b", "2001:db8::1".parse().unwrap()),
            Backend::new("c", "10.0.0.2".parse().unwrap()),
        ];
        let table = Table {
            name: "web".into(),
            max_hops: 4,
            ranking: common::table::Ranking::Hrw,
            seed: common::table::Seed([1; 16]),
            hash_key: common::hash::SipKey::new([2; 16]),
            hash_fields: common::flow::HashFields::DEFAULT,
            alt_hash_fields: common::flow::HashFields::NONE,
            spread_zones: false,
            max_share: None,
            backends,
            binds: Vec::new(),
            hops: Lists::empty(1 << 16, 4),
            lineage: Lists::empty(1 << 16, 3),
        };
        // IPv4 20, UDP 8, GUE 4, private data 4, one later hop 4.
        assert_eq!(row_overhead(&table, &[0, 1, 2]), 40);
        // IPv6 40, UDP 8, GUE 4, private data 4, no later hop.
        assert_eq!(row_overhead(&table, &[1, 0]), 56);
        assert_eq!(row_overhead(&table, &[]), 0);
    }
}
