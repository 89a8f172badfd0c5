//! `tablegen dump`.

use crate::report::dump;
use crate::store;
use common::backend::Backend;
use common::table::{Dump, DumpRows, ForwardingTable, Table};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct DumpArgs {
    /// Table file, in Tryst's or GLB Director's format
    table: PathBuf,
    /// Print only the table with this name
    #[arg(long = "table", value_name = "NAME")]
    name: Option<String>,
    /// Number of rows to list, or all [default: 8 as text, all as JSON]
    #[arg(long, value_name = "N|all")]
    rows: Option<Rows>,
    /// Print the table as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug)]
enum Rows {
    First(u32),
    All,
}

impl std::str::FromStr for Rows {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "all" { Ok(Self::All) } else { text.parse().map(Self::First) }
    }
}

impl DumpArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let file = store::load(&self.table)?;
        if let Some(name) = &self.name {
            known(&file, name)?;
        }
        let (table, name) = (&file, self.name.as_deref());
        let is_shown = |table: &&Table| name.is_none_or(|name| name == table.name);
        let fails_open = |table: &&Table| !table.backends.iter().any(Backend::accepts);
        super::warn(file.tables().iter().filter(is_shown).filter(fails_open).map(|table| {
            format!(
                "table {}: no backend accepts new connections: fail-open is in force, and new connections go to servers \
                 that are draining or down",
                table.name
            )
        }));
        if !self.json {
            let rows = match self.rows {
                Some(Rows::First(rows)) => DumpRows::First(rows),
                Some(Rows::All) => DumpRows::All,
                None => DumpRows::First(8),
            };
            super::print(Dump { table, name, rows })?;
            return Ok(ExitCode::SUCCESS);
        }
        let rows = match self.rows {
            Some(Rows::First(rows)) => Some(rows),
            Some(Rows::All) | None => None,
        };
        let mut out = std::io::BufWriter::new(std::io::stdout().lock());
        dump::write_json(&mut out, table, name, rows)?;
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }
}

fn known(file: &ForwardingTable, name: &str) -> anyhow::Result<()> {
    let names: Vec<&str> = file.tables().iter().map(|table| table.name.as_str()).collect();
    anyhow::ensure!(names.contains(&name), "no table {name:?}; there are {}", names.join(", "));
    Ok(())
}
