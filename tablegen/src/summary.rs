//! A built table in a few lines: how long its hop lists are, and how evenly it shares its rows.

use crate::report::number::{counted, either};
use common::backend::Backend;
use common::table::{ForwardingTable, Table};
use serde::Serialize;
use std::fmt;

/// What `build` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// All 64 hex digits.
    pub digest: String,
    /// SHA-256 of the configuration in it.
    pub config_digest: String,
    /// 1 without a parent.
    pub generation: u64,
    /// The parent's digest.
    pub parent: Option<String>,
    /// How it was built: first, child, settled, or unknown.
    pub built: &'static str,
    /// In order of name.
    pub tables: Vec<TableSummary>,
}

/// One table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TableSummary {
    /// Its name.
    pub name: String,
    /// Its rows.
    pub rows: u32,
    /// Its backends.
    pub backends: usize,
    /// Its binds.
    pub binds: usize,
    /// Rows by length of hop list: `[2]` is the number of rows with two hops.
    pub rows_by_hops: Vec<u32>,
    /// Rows that remember a former owner.
    pub rows_with_lineage: u32,
    /// The backend that owns most against its fair share, if anybody owns anything.
    pub fullest: Option<Share>,
    /// The one that owns least against it.
    pub emptiest: Option<Share>,
}

/// How much of its fair share a backend owns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Share {
    /// Its id.
    pub id: String,
    /// Rows whose primary it is.
    pub rows: u32,
    /// Rows by its weight among those that own rows.
    pub fair: f64,
    /// `rows / fair`.
    pub ratio: f64,
}

impl Summary {
    /// Sums a table file up.
    pub fn new(table: &ForwardingTable) -> Self {
        Self {
            digest: table.digest().to_string(),
            config_digest: table.config_digest().to_string(),
            generation: table.generation(),
            parent: table.parent().map(|parent| parent.to_string()),
            built: table.built().name(),
            tables: table.tables().iter().map(TableSummary::new).collect(),
        }
    }
}

impl TableSummary {
    fn new(table: &Table) -> Self {
        let mut rows_by_hops = vec![0; usize::from(table.max_hops) + 1];
        for list in table.hops.iter() {
            if let Some(count) = rows_by_hops.get_mut(list.len()) {
                *count += 1;
            }
        }
        let shares = shares(table);
        let extreme = |pick: fn(&f64, &f64) -> bool| {
            shares
                .iter()
                .reduce(|best, next| if pick(&next.ratio, &best.ratio) { next } else { best })
                .cloned()
        };
        Self {
            name: table.name.clone(),
            rows: table.rows(),
            backends: table.backends.len(),
            binds: table.binds.len(),
            rows_by_hops,
            rows_with_lineage: (0..table.rows())
                .fold(0, |sum, row| sum + u32::from(!table.lineage.get(row).is_empty())),
            fullest: extreme(f64::gt),
            emptiest: extreme(f64::lt),
        }
    }
}

/// The share of every backend that accepts; of every one that owns a row, where none accepts.
fn shares(table: &Table) -> Vec<Share> {
    let owned = table.rows_owned();
    let nobody = !table.backends.iter().any(Backend::accepts);
    let shares = |backend: &Backend, rows: u32| if nobody { rows > 0 } else { backend.accepts() };
    let sharing: Vec<_> = table.backends.iter().zip(owned).filter(|(b, rows)| shares(b, *rows)).collect();
    let total: f64 = sharing.iter().map(|(backend, _)| backend.effective_weight()).sum();
    let share = |(backend, rows): &(&Backend, u32)| {
        let fair = f64::from(table.rows()) * backend.effective_weight() / total;
        Share { id: backend.id.clone(), rows: *rows, fair, ratio: f64::from(*rows) / fair }
    };
    sharing.iter().map(share).collect()
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |digest: &str| digest.chars().take(12).collect::<String>();
        writeln!(f, "table       {}  (sha256 {})", short(&self.digest), self.digest)?;
        let parent =
            self.parent.as_deref().map_or_else(|| "no parent".to_owned(), |p| format!("parent {}", short(p)));
        writeln!(f, "generation  {}  {parent}, built as {}", self.generation, self.built)?;
        self.tables.iter().try_for_each(|table| table.fmt(f))
    }
}

impl fmt::Display for TableSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, rows, backends, binds, rows_by_hops, rows_with_lineage, .. } = self;
        let [all, backends, binds] =
            [counted(*rows, "row"), counted(*backends, "backend"), counted(*binds, "bind")];
        writeln!(f, "\n{name}: {all}, {backends}, {binds}")?;
        write!(f, "  hops    ")?;
        for (hops, rows) in rows_by_hops.iter().enumerate().filter(|(_, rows)| **rows > 0) {
            write!(f, "  {hops}: {}", counted(*rows, "row"))?;
        }
        writeln!(f)?;
        if *rows_with_lineage > 0 {
            let remember = either(*rows_with_lineage, "remembers", "remember");
            let rows = counted(*rows_with_lineage, "row");
            writeln!(f, "  lineage   {rows} {remember} a former owner")?;
        }
        for (label, share) in [("fullest", &self.fullest), ("emptiest", &self.emptiest)] {
            if let Some(Share { id, rows, fair, ratio }) = share {
                let rows = counted(*rows, "row");
                writeln!(f, "  {label:<9} {id}: {rows}, {ratio:.3} of its fair share of {fair:.1}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        let text = |rows: u32, few: usize| {
            TableSummary {
                name: "web".into(),
                rows,
                backends: few,
                binds: few,
                rows_by_hops: vec![0, rows],
                rows_with_lineage: rows,
                fullest: Some(Share { id: "a".into(), rows, fair: 1.0, ratio: 1.0 }),
                emptiest: None,
            }
            .to_string()
        };
        assert_eq!(
            text(1, 1),
            "\nweb: 1 row, 1 backend, 1 bind\n  hops      1: 1 row\n  lineage   1 row remembers a former owner\n  \
             fullest   a: 1 row, 1.000 of its fair share of 1.0\n"
        );
        assert_eq!(
            text(2, 0),
            "\nweb: 2 rows, 0 backends, 0 binds\n  hops      1: 2 rows\n  lineage   2 rows remember a former owner\n  \
             fullest   a: 2 rows, 1.000 of its fair share of 1.0\n"
        );
    }
}
