//! Summary of a built table: lengths of hop lists and balance.

use crate::format::number::{counted, either};
use common::backend::Backend;
use common::table::{ForwardingTable, Table};
use serde::Serialize;
use std::fmt;

/// The summary that `build` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    /// Digest of the table file, 64 hex digits.
    pub digest: String,
    /// SHA-256 of the configuration in the file.
    pub config_digest: String,
    /// Generation; 1 for a table without a parent.
    pub generation: u64,
    /// Digest of the parent.
    pub parent: Option<String>,
    /// How the table was built: first, child, settled, or unknown.
    pub built: &'static str,
    /// The tables in order of name.
    pub tables: Vec<TableSummary>,
}

/// Summary of one table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct TableSummary {
    /// Name of the table.
    pub name: String,
    /// Number of rows.
    pub rows: u32,
    /// Number of backends.
    pub backends: usize,
    /// Number of binds.
    pub binds: usize,
    /// Rows by length of hop list: `[2]` is the number of rows with two hops.
    pub rows_by_hops: Vec<u32>,
    /// Rows with a lineage.
    pub rows_with_lineage: u32,
    /// The backend with the greatest ratio of rows to fair share; None if no backend owns rows.
    #[serde(rename = "fullest")]
    pub most_loaded: Option<Share>,
    /// The backend with the least ratio.
    #[serde(rename = "emptiest")]
    pub least_loaded: Option<Share>,
}

/// Rows of a backend, and its fair share.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Share {
    /// Id of the backend.
    pub id: String,
    /// Rows whose primary it is.
    pub rows: u32,
    /// Its fair share of the rows, by weight among the backends that own rows.
    pub fair: f64,
    /// `rows / fair`.
    pub ratio: f64,
}

impl Summary {
    /// The summary of a table file.
    pub(crate) fn new(table: &ForwardingTable) -> Self {
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
            rows_by_hops[list.len()] += 1;
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
            most_loaded: extreme(f64::gt),
            least_loaded: extreme(f64::lt),
        }
    }
}

/// The shares of all accepting backends; of all backends that own rows if no backend accepts.
fn shares(table: &Table) -> Vec<Share> {
    let owned = table.rows_owned();
    let any_accepts = table.backends.iter().any(Backend::accepts);
    let shares = |backend: &Backend, rows: u32| if any_accepts { backend.accepts() } else { rows > 0 };
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
            let have = either(*rows_with_lineage, "has", "have");
            let rows = counted(*rows_with_lineage, "row");
            writeln!(f, "  lineage   {rows} {have} a former owner")?;
        }
        for (label, share) in [("most", &self.most_loaded), ("least", &self.least_loaded)] {
            if let Some(Share { id, rows, fair, ratio }) = share {
                let rows = counted(*rows, "row");
                writeln!(f, "  {label:<5} loaded {id}: {rows}, {ratio:.3} × its fair share of {fair:.1}")?;
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
                most_loaded: Some(Share { id: "a".into(), rows, fair: 1.0, ratio: 1.0 }),
                least_loaded: None,
            }
            .to_string()
        };
        assert_eq!(
            text(1, 1),
            "\nweb: 1 row, 1 backend, 1 bind\n  hops      1: 1 row\n  lineage   1 row has a former owner\n  \
             most  loaded a: 1 row, 1.000 × its fair share of 1.0\n"
        );
        assert_eq!(
            text(2, 0),
            "\nweb: 2 rows, 0 backends, 0 binds\n  hops      1: 2 rows\n  lineage   2 rows have a former owner\n  \
             most  loaded a: 2 rows, 1.000 × its fair share of 1.0\n"
        );
    }
}
