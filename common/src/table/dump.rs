//! A table as text that covers every field but the secrets: what `tablegen dump` prints, and what tests compare.

use super::{ForwardingTable, Table};
use crate::backend::Backend;
use std::fmt;

/// Which rows a [`Dump`] lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpRows {
    /// None.
    None,
    /// The first so many.
    First(u32),
    /// All.
    All,
}

/// Displays a table file as text.
#[derive(Clone, Copy, Debug)]
pub struct Dump<'a> {
    /// What to show.
    pub table: &'a ForwardingTable,
    /// Only the table of this name.
    pub name: Option<&'a str>,
    /// How many of its rows.
    pub rows: DumpRows,
}

impl fmt::Display for Dump<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, name, rows } = self;
        writeln!(f, "digest         {}", table.digest())?;
        writeln!(f, "config digest  {}", table.config_digest())?;
        match table.parent() {
            Some(parent) => writeln!(f, "parent         {parent}")?,
            None => writeln!(f, "parent         none")?,
        }
        writeln!(f, "generation     {}", table.generation())?;
        writeln!(f, "built          {}", table.built())?;
        let shown = table.tables().iter().filter(|one| name.is_none_or(|name| one.name == name));
        shown.into_iter().try_for_each(|one| dump_table(f, one, *rows))
    }
}

fn dump_table(f: &mut fmt::Formatter<'_>, table: &Table, rows: DumpRows) -> fmt::Result {
    writeln!(f, "\ntable {}", table.name)?;
    writeln!(f, "  rows {}  max_hops {}  ranking {}", table.rows(), table.max_hops, table.ranking.name())?;
    writeln!(f, "  hash_fields {}  alt_hash_fields {}", table.hash_fields, table.alt_hash_fields)?;
    writeln!(f, "  spread_zones {}  seed (secret)  hash_key (secret)", table.spread_zones)?;
    if let Some(share) = table.max_share {
        writeln!(f, "  max_share {share}")?;
    }
    table.binds.iter().try_for_each(|bind| writeln!(f, "  bind {bind}"))?;
    let owned = table.rows_owned();
    for ((at, backend), owned) in table.backends.iter().enumerate().zip(owned) {
        dump_backend(f, at, backend, owned)?;
    }
    let listed = match rows {
        DumpRows::None => 0,
        DumpRows::First(rows) => rows.min(table.rows()),
        DumpRows::All => table.rows(),
    };
    (0..listed).try_for_each(|row| dump_row(f, table, row))
}

fn dump_backend(f: &mut fmt::Formatter<'_>, at: usize, backend: &Backend, owned: u32) -> fmt::Result {
    let Backend { id, address, weight, fill, zone, state, health } = backend;
    write!(f, "  backend {at} {id}  {address}  weight {weight}  {state}")?;
    if *fill != 100 {
        write!(f, "  fill {fill} %")?;
    }
    if let Some(zone) = zone {
        write!(f, "  zone {zone}")?;
    }
    writeln!(f, "  {health}  rows {owned}")
}

fn dump_row(f: &mut fmt::Formatter<'_>, table: &Table, row: u32) -> fmt::Result {
    let ids = |list: &[u16]| {
        let ids: Vec<&str> = list.iter().filter_map(|at| table.backend(*at)).map(|b| b.id.as_str()).collect();
        ids.join(" ")
    };
    write!(f, "  row {row}: {}", ids(table.hops.get(row)))?;
    let not_sent: Vec<u16> = table.not_sent(row).collect();
    if !not_sent.is_empty() {
        write!(f, "  (not sent, another address family: {})", ids(&not_sent))?;
    }
    match table.lineage.get(row) {
        [] => writeln!(f),
        lineage => writeln!(f, "  (before: {})", ids(lineage)),
    }
}

impl Table {
    /// For each backend, the rows whose primary it is.
    pub fn rows_owned(&self) -> Vec<u32> {
        let mut owned = vec![0; self.backends.len()];
        for primary in self.hops.iter().filter_map(<[u16]>::first) {
            if let Some(count) = owned.get_mut(usize::from(*primary)) {
                *count += 1;
            }
        }
        owned
    }
}
