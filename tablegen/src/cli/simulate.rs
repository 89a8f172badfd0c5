//! `tablegen simulate`.

use crate::format::columns::{Align, Columns};
use crate::format::number::{counted, grouped, percent};
use crate::report::load;
use crate::review::explain::is_capture;
use crate::review::simulate::{
    Connection, Fleet, Lifetimes, Rule, SimulationOutcome, Synthetic, from_capture, from_csv, play,
};
use crate::{files, progress, store};
use anyhow::{Context as _, ensure};
use common::bounded;
use common::table::{ForwardingTable, Table};
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct SimulateArgs {
    /// Table files, in the order in which they serve
    #[arg(required = true)]
    tables: Vec<PathBuf>,
    /// Connections to simulate: a capture (pcap or pcapng), or text with one connection per line:
    /// start,life,source,source port,destination,destination port; times in seconds
    #[arg(long, value_name = "FILE", required_unless_present = "synthetic")]
    flows: Option<PathBuf>,
    /// Generate this number of connections
    #[arg(long, value_name = "N", conflicts_with = "flows")]
    synthetic: Option<u32>,
    /// Seed of the generated connections
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Distribution of the lifetimes of the generated connections
    #[arg(long, value_enum, default_value_t = LifetimesArg::LogNormal)]
    lives: LifetimesArg,
    /// Median lifetime of the generated connections, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    median: f64,
    /// Time that each table serves, in seconds [default: 60; for a capture its length divided by the number of tables]
    #[arg(long, value_name = "SECONDS")]
    every: Option<f64>,
    /// Number of directors
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    directors: u32,
    /// Time from the first director that loads a new table to the last, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    skew: f64,
    /// Period after which the router assigns connections to directors again, in seconds [default: never]
    #[arg(long, value_name = "SECONDS")]
    reroute: Option<f64>,
    /// Name of the table, if the files have several
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// Write a picture of the load of each backend over time
    #[arg(long, value_name = "SVG")]
    picture: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum LifetimesArg {
    /// Log-normal; the logarithm has a standard deviation of 1.5
    LogNormal,
    /// Pareto with exponent 1.2: a heavy tail
    Heavy,
}

/// Greatest size of a list of connections, in octets.
const MAX_FLOWS_FILE: u64 = 1 << 30;

impl SimulateArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        ensure!(self.median > 0.0, "--median must be greater than 0");
        let files = self.tables.iter().map(|file| store::load(file)).collect::<Result<Vec<_>, _>>()?;
        let tables = files.iter().map(|file| self.table_of(file)).collect::<anyhow::Result<Vec<&Table>>>()?;
        let (connections, every) = self.connections(&tables)?;
        let fleet = self.fleet(every)?;
        let outcomes = progress::shown("simulate", |progress| {
            [Rule::Tables, Rule::Glb].map(|rule| play(&tables, &connections, every, rule, fleet, progress))
        });
        if let Some(file) = &self.picture {
            store::write(file, load::picture(&outcomes[0]).as_bytes())
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        if self.json {
            super::print_json(&outcomes)?;
        } else {
            super::print(text(&outcomes, fleet))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn fleet(&self, every: f64) -> anyhow::Result<Fleet> {
        ensure!(every > 0.0 && every.is_finite(), "--every must be greater than 0");
        ensure!(
            (0.0..every).contains(&self.skew),
            "--skew must be less than the time that a table serves, {every} s"
        );
        ensure!(self.skew == 0.0 || self.directors > 1, "--skew needs --directors 2 or more");
        // A shorter period needs memory for more than 10,000 moments and gives the same result.
        let shortest = every * self.tables.len() as f64 / 10_000.0;
        ensure!(
            self.reroute.is_none_or(|period| period >= shortest && period.is_finite()),
            "--reroute must be at least {shortest} s here"
        );
        Ok(Fleet { directors: self.directors, skew: self.skew, reroute: self.reroute })
    }

    fn table_of<'f>(&self, file: &'f ForwardingTable) -> anyhow::Result<&'f Table> {
        match (&self.table, file.tables()) {
            (None, [only]) => Ok(only),
            (None, _) => anyhow::bail!("there are several tables: name one with --table"),
            (Some(name), _) => {
                file.table(name).with_context(|| format!("no table {name:?} in {}", file.digest().short()))
            }
        }
    }

    /// The connections, and the seconds that each table serves.
    fn connections(&self, tables: &[&Table]) -> anyhow::Result<(Vec<Connection>, f64)> {
        let every = self.every.unwrap_or(60.0);
        let Some(file) = &self.flows else { return Ok((self.generated(tables, every)?, every)) };
        let name = || file.display().to_string();
        let (mut open, len) = files::opened(file).with_context(|| format!("cannot read {}", name()))?;
        let mut start = Vec::new();
        open.by_ref().take(4).read_to_end(&mut start)?;
        let is_capture = is_capture(&start);
        let reader = start.as_slice().chain(open);
        if is_capture {
            // A capture is read packet by packet, whatever its size.
            return self.captured(reader, tables).with_context(name);
        }
        let octets = bounded::octets(reader, len, MAX_FLOWS_FILE).with_context(name)?;
        let text = String::from_utf8(octets).context("neither a capture nor text").with_context(name)?;
        Ok((from_csv(&text).with_context(name)?, every))
    }

    fn generated(&self, tables: &[&Table], every: f64) -> anyhow::Result<Vec<Connection>> {
        let bind = tables.first().and_then(|table| table.binds.first()).context("the table has no binds")?;
        let synthetic = Synthetic {
            // Clap requires --flows or --synthetic.
            count: self.synthetic.expect("invariant: --synthetic is given where --flows is not"),
            seed: self.seed,
            starts: 0.0..every * tables.len() as f64,
            lifetimes: match self.lives {
                LifetimesArg::LogNormal => Lifetimes::LogNormal,
                LifetimesArg::Heavy => Lifetimes::Heavy,
            },
            median: self.median,
            vip: (bind.prefix.address(), bind.ports.first()),
        };
        Ok(synthetic.connections())
    }

    fn captured(&self, capture: impl Read, tables: &[&Table]) -> anyhow::Result<(Vec<Connection>, f64)> {
        let binds = &tables.first().context("there is no table")?.binds;
        let connections = from_capture(capture, |flow| binds.iter().any(|bind| flow.matches(bind)))?;
        ensure!(!connections.is_empty(), "no packet is addressed to a bind of the table");
        let ends = connections.iter().map(|connection| connection.start + connection.life);
        let length = ends.fold(0.0, f64::max);
        Ok((connections, self.every.unwrap_or(length.max(1.0) / tables.len() as f64)))
    }
}

fn text(outcomes: &[SimulationOutcome], fleet: Fleet) -> String {
    outcomes.iter().map(|outcome| outcome_text(outcome, fleet)).collect()
}

fn outcome_text(outcome: &SimulationOutcome, fleet: Fleet) -> String {
    let rule = match outcome.rule {
        Rule::Tables => "hop lists of the tables",
        Rule::Glb => "GLB Director's rule of two hops",
    };
    let opened = counted(outcome.opened, "connection");
    let mut columns = Columns::new(2, &[Align::Right; 6]);
    let skewed = ["used the old table again", "opened ahead, then broken"];
    let skewed = if fleet.skew > 0.0 { &skewed[..] } else { &[] };
    columns.push(["change", "open", "broken", "on a later hop"].iter().chain(skewed).copied());
    for (number, change) in (1..).zip(&outcome.changes) {
        let share = |part: u32| format!("{} ({})", grouped(part), percent(part.into(), change.open.into()));
        let counts = [change.broken, change.later_hop, change.went_back, change.ahead];
        let counts = counts.into_iter().map(share).take(2 + skewed.len());
        columns.push([number.to_string(), grouped(change.open)].into_iter().chain(counts));
    }
    format!("{rule}: {opened} opened, {} refused\n{columns}", grouped(outcome.refused))
}
