//! `tablegen simulate`.

use crate::report::columns::{Align, Columns};
use crate::report::number::{grouped, percent};
use crate::simulate::{Flow, Lives, Outcome, Rule, Synthetic, from_csv, picture, play};
use crate::store;
use anyhow::{Context as _, ensure};
use common::table::{ForwardingTable, Table};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Tables in the order in which they serve
    #[arg(required = true)]
    tables: Vec<PathBuf>,
    /// Connections to play: a line each of start,life,source,source port,destination,destination port
    #[arg(long, value_name = "FILE", required_unless_present = "synthetic")]
    flows: Option<PathBuf>,
    /// Make up so many connections
    #[arg(long, value_name = "N", conflicts_with = "flows")]
    synthetic: Option<u32>,
    /// Seed of what is made up
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// How long made-up connections live
    #[arg(long, value_enum, default_value_t = Lives::LogNormal)]
    lives: Lives,
    /// Seconds that half of the made-up connections live longer than
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    median: f64,
    /// Seconds that each table serves
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    every: f64,
    /// The table in the files, where there are several
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// Write a picture of the load of each backend over time
    #[arg(long, value_name = "SVG")]
    picture: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        ensure!(self.every > 0.0 && self.median > 0.0, "--every and --median must be greater than 0");
        let files = self.tables.iter().map(|file| store::load(file)).collect::<Result<Vec<_>, _>>()?;
        let tables = files.iter().map(|file| self.table_of(file)).collect::<anyhow::Result<Vec<&Table>>>()?;
        let flows = self.connections(&tables)?;
        let outcomes = [Rule::Tables, Rule::Glb].map(|rule| play(&tables, &flows, self.every, rule));
        if let Some(file) = &self.picture {
            store::write(file, picture(&outcomes[0]).as_bytes())
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        if self.json {
            super::print_json(&outcomes)?;
        } else {
            super::print(text(&outcomes))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn table_of<'f>(&self, file: &'f ForwardingTable) -> anyhow::Result<&'f Table> {
        match (&self.table, file.tables()) {
            (None, [only]) => Ok(only),
            (None, _) => anyhow::bail!("several tables: name one with --table"),
            (Some(name), _) => {
                file.table(name).with_context(|| format!("no table {name:?} in {}", file.digest().short()))
            }
        }
    }

    fn connections(&self, tables: &[&Table]) -> anyhow::Result<Vec<Flow>> {
        if let Some(file) = &self.flows {
            let text =
                std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
            return from_csv(&text).with_context(|| file.display().to_string());
        }
        let bind = tables.first().and_then(|table| table.binds.first()).context("a table without binds")?;
        let synthetic = Synthetic {
            count: self.synthetic.unwrap_or(0),
            seed: self.seed,
            starts: 0.0..self.every * tables.len() as f64,
            lives: self.lives,
            median: self.median,
            vip: (bind.prefix.address(), bind.ports.first()),
        };
        Ok(synthetic.flows())
    }
}

fn text(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for outcome in outcomes {
        let rule = match outcome.rule {
            Rule::Tables => "by the tables",
            Rule::Glb => "by GLB Director's rule of two hops",
        };
        text +=
            &format!("{rule}: {} connections opened, {} refused\n", grouped(outcome.opened), outcome.refused);
        let mut columns = Columns::new(2, &[Align::Right; 4]);
        columns.push(["change", "open", "broken", "on a later hop"]);
        for (change, at) in outcome.changes.iter().zip(1..) {
            let share =
                |part: u32| format!("{} ({})", grouped(part), percent(part.into(), change.open.into()));
            columns.push([
                at.to_string(),
                grouped(change.open),
                share(change.broken),
                share(change.later_hop),
            ]);
        }
        text += &columns.to_string();
    }
    text
}
