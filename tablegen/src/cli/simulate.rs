//! `tablegen simulate`.

use crate::explain::{Transport, is_capture};
use crate::report::columns::{Align, Columns};
use crate::report::number::{self, grouped, percent};
use crate::simulate::{
    Fleet, Flow, Lives, Outcome, Rule, Synthetic, counted, from_capture, from_csv, picture,
};
use crate::{files, progress, store};
use anyhow::{Context as _, ensure};
use common::bounded;
use common::table::{ForwardingTable, Table};
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Tables in the order in which they serve
    #[arg(required = true)]
    tables: Vec<PathBuf>,
    /// Connections to play: a capture (pcap or pcapng), or a line each of start,life,source,source port,destination,
    /// destination port, in seconds
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
    /// Seconds that each table serves [default: 60; a capture's length is shared among the tables]
    #[arg(long, value_name = "SECONDS")]
    every: Option<f64>,
    /// Directors
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    directors: u32,
    /// Seconds from the first director that takes a new table to the last
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    skew: f64,
    /// The router moves connections to other directors at random, each time that so many seconds have passed
    #[arg(long, value_name = "SECONDS")]
    reroute: Option<f64>,
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

/// Octets of a list of connections that is no capture.
const MAX_FLOWS_FILE: u64 = 1 << 30;

impl Args {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        ensure!(self.median > 0.0, "--median must be greater than 0");
        let files = self.tables.iter().map(|file| store::load(file)).collect::<Result<Vec<_>, _>>()?;
        let tables = files.iter().map(|file| self.table_of(file)).collect::<anyhow::Result<Vec<&Table>>>()?;
        let (flows, every) = self.connections(&tables)?;
        let fleet = self.fleet(every)?;
        let outcomes = progress::shown("simulate", |progress| {
            [Rule::Tables, Rule::Glb].map(|rule| counted(&tables, &flows, every, rule, fleet, progress))
        });
        if let Some(file) = &self.picture {
            store::write(file, picture(&outcomes[0]).as_bytes())
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
        ensure!((0.0..every).contains(&self.skew), "--skew must be less than a table serves, {every} s");
        ensure!(self.skew == 0.0 || self.directors > 1, "--skew needs --directors 2 or more");
        // So many moments are as good as always.
        let shortest = every * self.tables.len() as f64 / 10_000.0;
        ensure!(
            self.reroute.is_none_or(|pause| pause >= shortest && pause.is_finite()),
            "--reroute must be at least {shortest} s here"
        );
        Ok(Fleet { directors: self.directors, skew: self.skew, reroute: self.reroute })
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

    /// The connections, and how long each table serves.
    fn connections(&self, tables: &[&Table]) -> anyhow::Result<(Vec<Flow>, f64)> {
        let every = self.every.unwrap_or(60.0);
        if let Some(file) = &self.flows {
            let name = || file.display().to_string();
            let (mut open, _) = files::opened(file).with_context(|| format!("cannot read {}", name()))?;
            let mut start = Vec::new();
            open.by_ref().take(4).read_to_end(&mut start)?;
            // A capture is read packet by packet, however long it is.
            let is_capture = is_capture(&start);
            let reader = start.as_slice().chain(open);
            if is_capture {
                return self.captured(reader, tables).with_context(name);
            }
            let octets = bounded::octets(reader, None, MAX_FLOWS_FILE).with_context(name)?;
            let text = String::from_utf8(octets).context("neither a capture nor text").with_context(name)?;
            return Ok((from_csv(&text).with_context(name)?, every));
        }
        let bind = tables.first().and_then(|table| table.binds.first()).context("a table without binds")?;
        let synthetic = Synthetic {
            count: self.synthetic.unwrap_or(0),
            seed: self.seed,
            starts: 0.0..every * tables.len() as f64,
            lives: self.lives,
            median: self.median,
            vip: (bind.prefix.address(), bind.ports.first()),
        };
        Ok((synthetic.flows(), every))
    }

    fn captured(&self, capture: impl Read, tables: &[&Table]) -> anyhow::Result<(Vec<Flow>, f64)> {
        let binds = tables.first().map(|table| table.binds.as_slice()).unwrap_or_default();
        let flows = from_capture(capture, |flow| {
            binds.iter().any(|bind| match flow.transport {
                Transport::Ports(protocol, _, port) => bind.matches(flow.key.dst_addr, protocol, port),
                Transport::Echo => bind.prefix.contains(flow.key.dst_addr),
            })
        })?;
        ensure!(!flows.is_empty(), "no packet in it is to a bind of the table");
        let length = flows.iter().map(|flow| flow.start + flow.life).fold(0.0, f64::max);
        Ok((flows, self.every.unwrap_or(length.max(1.0) / tables.len() as f64)))
    }
}

fn text(outcomes: &[Outcome], fleet: Fleet) -> String {
    let mut text = String::new();
    for outcome in outcomes {
        let rule = match outcome.rule {
            Rule::Tables => "by the tables",
            Rule::Glb => "by GLB Director's rule of two hops",
        };
        text += &format!(
            "{rule}: {} opened, {} refused\n",
            number::counted(outcome.opened, "connection"),
            grouped(outcome.refused)
        );
        let mut columns = Columns::new(2, &[Align::Right; 6]);
        let skewed = ["met the old table again", "opened ahead, then broken"];
        let skewed = if fleet.skew > 0.0 { &skewed[..] } else { &[] };
        columns.push(["change", "open", "broken", "on a later hop"].iter().chain(skewed).copied());
        for (change, at) in outcome.changes.iter().zip(1..) {
            let share =
                |part: u32| format!("{} ({})", grouped(part), percent(part.into(), change.open.into()));
            let counts = [change.broken, change.later_hop, change.went_back, change.ahead];
            let counts = counts.into_iter().map(share).take(2 + skewed.len());
            columns.push([at.to_string(), grouped(change.open)].into_iter().chain(counts));
        }
        text += &columns.to_string();
    }
    text
}
