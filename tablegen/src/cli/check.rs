//! `tablegen check`.

use crate::config::{Config, TableSpec};
use crate::format::number::counted;
use common::backend::{Health, State};
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct CheckArgs {
    /// Configuration file
    config: PathBuf,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

impl CheckArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let config = Config::load(&self.config)?;
        super::warn(&config.warnings);
        let tables: Vec<TableCheck> = config.tables.iter().map(TableCheck::new).collect();
        if self.json {
            super::print_json(&tables)?;
        } else {
            tables.iter().try_for_each(super::print)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// One table of a configuration, in numbers.
#[derive(Debug, Serialize)]
struct TableCheck {
    name: String,
    rows: u32,
    max_hops: u8,
    ranking: &'static str,
    hash_fields: Vec<&'static str>,
    binds: Vec<String>,
    backends: usize,
    /// In the order of [`State::ALL`].
    states: Vec<(&'static str, usize)>,
    down: usize,
    accepting: usize,
}

impl TableCheck {
    fn new(spec: &TableSpec) -> Self {
        let of = |state: State| spec.backends.iter().filter(|backend| backend.state == state).count();
        Self {
            name: spec.name.clone(),
            rows: spec.rows,
            max_hops: spec.max_hops,
            ranking: spec.ranking.name(),
            hash_fields: spec.hash_fields.names().collect(),
            binds: spec.binds.iter().map(ToString::to_string).collect(),
            backends: spec.backends.len(),
            states: State::ALL.map(|state| (state.name(), of(state))).into(),
            down: spec.backends.iter().filter(|backend| backend.health == Health::Down).count(),
            accepting: spec.backends.iter().filter(|backend| backend.accepts()).count(),
        }
    }
}

impl fmt::Display for TableCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        let Self { name, rows, max_hops, ranking, down, accepting, backends, .. } = self;
        let fields = self.hash_fields.join(", ");
        let rows = counted(*rows, "row");
        writeln!(f, "{name}: {rows}, up to {max_hops} hops, ranking {ranking}, hash_fields {fields}")?;
        self.binds.iter().take(SHOWN).try_for_each(|bind| writeln!(f, "  {bind}"))?;
        if let Some(more) = self.binds.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            writeln!(f, "  and {} more", counted(more, "bind"))?;
        }
        let states = self.states.iter().filter(|(_, count)| *count > 0);
        let states: Vec<String> = states.map(|(state, count)| format!("{count} {state}")).collect();
        let backends = counted(*backends, "backend");
        writeln!(f, "  {backends}: {}; {down} down; {accepting} accepting", states.join(", "))
    }
}
