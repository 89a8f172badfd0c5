//! Differences between two forwarding tables, as facts.
//!
//! A [`Diff`] is computed from two table files, and from the backends that the operator states to hold no connections. It
//! assumes that their hop lists are correct, which `verify` checks, and examines whether the packets of every flow still
//! reach every host that may hold its connections ([`super::holders`]), bind by bind. Tables are matched by name, or
//! else by their binds; backends by id.
//!
//! Terms, for one row:
//!
//! - *moved*: its owner changed. If the number of rows changed, rows are compared as flows use them: a row is the low
//!   bits of the flow hash, so row `r` of the smaller table stands for every row of the larger one that ends in `r`.
//! - *unnecessary*: it moved, although its old owner can still own rows and lost no weight, and its new owner gained no
//!   weight. Rendezvous hashing never causes this; a change of seed, key or number of rows does. With `max_share`, such
//!   moves are a cost of the bound and are counted apart.
//! - *at risk*: connections of the row may break, and no condition that a person can confirm prevents it.

mod config;
mod failure;
mod roles;
mod rows;

pub use config::{ConfigChange, Subject};
pub use failure::{Failed, Failure};
pub use rows::{Mapping, RowChange, RowChanges};

use super::coverage::{self, Part};
use super::holders::{self, Reach, Reading};
use super::verdict::Stated;
use common::backend::Backend;
use common::bind::Bind;
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
    /// How it was built.
    pub built: Built,
}

impl Version {
    fn of(table: &ForwardingTable) -> Self {
        Self {
            digest: table.digest(),
            generation: table.generation(),
            parent: table.parent(),
            built: table.built(),
        }
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
    /// One entry for each table of either file, in ascending order of name.
    pub tables: Vec<TableDiff>,
    /// Binds whose flows break, because they lead to no table or to another one.
    pub retired: Vec<RetiredBind>,
}

/// A bind of the old file some of whose flows no longer reach their backends.
#[derive(Clone, Debug, PartialEq)]
pub struct RetiredBind {
    /// The bind.
    pub bind: Bind,
    /// Name of its table in the old file.
    pub table: String,
    /// Name of the table that it leads to now; None if no bind matches.
    pub to: Option<String>,
    /// Share of its flows that break, if they spread evenly over its addresses and ports: more than 0, at most 1.
    pub share: f64,
}

impl Diff {
    /// Compares two files. No backend is known to hold no connections.
    pub fn new(old: &ForwardingTable, new: &ForwardingTable) -> Self {
        Self::with_gone(old, new, &|_| false)
    }

    /// Compares two files. Backends that the operator states to be idle or gone hold no connections.
    pub fn stated(old: &ForwardingTable, new: &ForwardingTable, stated: &Stated) -> Self {
        Self::with_gone(old, new, &|id| stated.is_gone(id))
    }

    fn with_gone(old: &ForwardingTable, new: &ForwardingTable, gone: &dyn Fn(&str) -> bool) -> Self {
        let is_child = new.parent() == Some(old.digest());
        let settled = new.built() == Built::Settled && is_child;
        let unknown = [old, new].iter().any(|file| file.built() == Built::Unknown);
        let reading =
            Reading { gone, from_hops: !old.built().has_lineage(), older_settled: settled || unknown };
        let pairs = pairs(old, new);
        let parts = coverage::parts(old, new);
        let leads = |pair: &Pair<'_>| {
            let at = |file: &ForwardingTable, table: Option<&Table>| {
                let name = &table?.name;
                file.tables().iter().position(|one| one.name == *name)
            };
            let (from, to) = (at(old, pair.old), at(new, pair.new));
            from.is_some()
                && to.is_some()
                && parts.iter().any(|part| Some(part.from) == from && part.to == to)
        };
        let table = |pair: Pair<'_>| {
            let judged = leads(&pair).then_some(reading);
            TableDiff::new(pair, settled, judged)
        };
        let retired = retired(old, new, &pairs, &parts, reading);
        Self {
            old: Version::of(old),
            new: Version::of(new),
            descent: descent(old, new),
            tables: pairs.into_iter().map(table).collect(),
            retired,
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

/// A table before and after.
#[derive(Clone, Copy)]
struct Pair<'t> {
    old: Option<&'t Table>,
    new: Option<&'t Table>,
}

impl<'t> Pair<'t> {
    fn name(&self) -> &'t str {
        self.new.or(self.old).map_or("", |table| table.name.as_str())
    }
}

/// Tables of one name; then tables of two names with the same binds, as in a file of GLB Director's, which has no names.
fn pairs<'t>(old: &'t ForwardingTable, new: &'t ForwardingTable) -> Vec<Pair<'t>> {
    let unnamed =
        |binds: &[Bind]| old.tables().iter().find(|one| one.binds == binds && new.table(&one.name).is_none());
    let mut taken = BTreeSet::new();
    let mut pairs: Vec<Pair<'t>> = Vec::new();
    for table in new.tables() {
        let before = old.table(&table.name).or_else(|| unnamed(&table.binds));
        taken.extend(before.map(|before| before.name.as_str()));
        pairs.push(Pair { old: before, new: Some(table) });
    }
    let left = old.tables().iter().filter(|table| !taken.contains(table.name.as_str()));
    pairs.extend(left.map(|table| Pair { old: Some(table), new: None }));
    pairs.sort_by_key(Pair::name);
    pairs
}

/// Parts of binds that lead elsewhere, with the share of flows that break there.
fn retired(
    old: &ForwardingTable,
    new: &ForwardingTable,
    pairs: &[Pair<'_>],
    parts: &[Part],
    reading: Reading<'_>,
) -> Vec<RetiredBind> {
    let is_pair = |from: &Table, to: &Table| {
        let same = |table: Option<&Table>, other: &Table| table.is_some_and(|table| table.name == other.name);
        pairs.iter().any(|pair| same(pair.old, from) && same(pair.new, to))
    };
    let mut shares = BTreeMap::<(usize, usize), f64>::new();
    let mut retired = Vec::new();
    for part in parts {
        let Some(from) = old.tables().get(part.from) else { continue };
        let to = part.to.and_then(|to| new.tables().get(to));
        let broken = match (part.to, to) {
            (Some(_), Some(to)) if is_pair(from, to) => continue,
            (Some(at), Some(to)) => *shares
                .entry((part.from, at))
                .or_insert_with(|| holders::broken_share(&Reach::of_hosts(from, to, reading))),
            _ => 1.0,
        };
        if broken > 0.0 {
            let to = to.map(|to| to.name.clone());
            let share = broken * part.share;
            retired.push(RetiredBind { bind: part.bind, table: from.name.clone(), to, share });
        }
    }
    retired
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
    /// Whether no backend accepts new connections, before and after, so that others get them (fail-open).
    pub fail_open: [bool; 2],
    /// Whether the number of rows differs, so that rows move although no backend changed.
    pub resized: bool,
    /// The name of the old table, if it is another one.
    pub old_name: Option<String>,
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
    /// Its fair share of the rows by weight among all backends of the new table that are not inactive; 0 if it is.
    pub fair_of_all: f64,
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
    fn new(pair: Pair<'_>, settled: bool, judged: Option<Reading<'_>>) -> Self {
        let Pair { old, new } = pair;
        let mapping = Mapping::new(old, new);
        let settled = settled && old.is_some() && new.is_some();
        let rows = RowChanges::new(old, new, &mapping, settled, judged);
        let backends = backends(old, new, &mapping, &rows);
        let shape = [(old, 0), (new, 1)].map(|(table, side)| shape(table, &backends, side));
        let fail_open = |table: &Table| !table.backends.iter().any(Backend::accepts);
        Self {
            name: pair.name().to_owned(),
            present: [old.is_some(), new.is_some()],
            config: config::changes(old, new),
            failures: new.map(|new| failure::failures(new, &mapping)).unwrap_or_default(),
            fail_open: [old, new].map(|table| table.is_some_and(fail_open)),
            resized: old.zip(new).is_some_and(|(old, new)| old.rows() != new.rows()),
            old_name: old.map(|old| &old.name).filter(|name| *name != pair.name()).cloned(),
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

/// Backends that own rows in which the old table does not send to them, with these rows: name of the table, id, rows.
/// Hosts are compared.
pub fn unannounced(old: &ForwardingTable, new: &ForwardingTable) -> Vec<(String, String, u32)> {
    let mut all = Vec::new();
    for pair in pairs(old, new) {
        let Some((old, new)) = pair.old.zip(pair.new) else { continue };
        let mut rows = BTreeMap::<&str, u32>::new();
        for row in 0..old.rows().max(new.rows()) {
            let owner = new.primary(row & (new.rows() - 1)).and_then(|owner| new.backend(owner));
            let Some(owner) = owner else { continue };
            let old_row = row & (old.rows() - 1);
            let listed = |hop: u16| old.backend(hop).is_some_and(|hop| hop.address == owner.address);
            if !old.hops.get(old_row).is_empty() && !old.sent(old_row).any(listed) {
                *rows.entry(&owner.id).or_default() += 1;
            }
        }
        all.extend(rows.into_iter().map(|(id, rows)| (new.name.clone(), id.to_owned(), rows)));
    }
    all
}

/// For each backend of a table, its part of the weight of all that are not inactive.
fn shares_of_all(table: &Table) -> Vec<f64> {
    let weight = |one: &Backend| if one.is_candidate() { one.effective_weight() } else { 0.0 };
    let sum: f64 = table.backends.iter().map(weight).sum();
    table.backends.iter().map(|one| if sum > 0.0 { weight(one) / sum } else { 0.0 }).collect()
}

fn backends(
    old: Option<&Table>,
    new: Option<&Table>,
    mapping: &Mapping,
    rows: &RowChanges,
) -> Vec<BackendDiff> {
    let sides = [old, new];
    let fair = sides.map(|table| table.map(fair_shares).unwrap_or_default());
    let of_all = new.map(shares_of_all).unwrap_or_default();
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
                fair_of_all: positions[1].and_then(|at| of_all.get(usize::from(at))).copied().unwrap_or(0.0)
                    * f64::from(rows.total),
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
