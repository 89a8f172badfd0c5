//! `tablegen build`.

use crate::config::Config;
use crate::generate::{self, History};
use crate::report::summary::Summary;
use crate::{glb, progress, store};
use common::table::ForwardingTable;
use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct BuildArgs {
    /// Configuration file
    config: PathBuf,
    /// Table file to write
    #[arg(short, long, value_name = "TABLE")]
    output: PathBuf,
    /// Format of the table file
    #[arg(long, value_enum, default_value_t = TableFormat::Native)]
    format: TableFormat,
    /// Table in service. The new table keeps its owners as hops, so that their connections survive
    #[arg(long, value_name = "TABLE")]
    previous: Option<PathBuf>,
    /// Forget the owners before those of the table in service. Use this when all older connections have ended
    #[arg(long, requires = "previous")]
    settle: bool,
    /// Build a first table, also where the output file is a table of the same name. Its rows do not know the owners that
    /// they have in that table
    #[arg(long, conflicts_with = "previous")]
    first: bool,
    /// Number of threads; the table does not depend on it [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<NonZero<usize>>,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

/// The output is a table of the same name, and no parent was given.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} holds table {table} already: give --previous {} to keep the connections of that table, or --first to start \
     again without its owners", file.display(), file.display()
)]
pub(super) struct InService {
    file: PathBuf,
    table: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum TableFormat {
    /// Tryst's own format
    Native,
    /// GLB Director's format, version 2
    Glb,
}

impl BuildArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let mut config = Config::load(&self.config)?;
        super::warn(&config.warnings);
        let previous = self.previous.as_deref().map(store::load).transpose()?;
        if let Some(previous) = &previous {
            super::warn(config.keep_rows_of(previous));
        }
        if self.format == TableFormat::Native && previous.is_none() && !self.first {
            self.spare_table_in_service(&config)?;
        }
        let threads = self.threads.map_or(0, NonZero::get);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
        let (octets, table) = progress::shown("build", |_| {
            pool.install(|| match self.format {
                TableFormat::Native => self.native(&config, previous.as_ref()),
                TableFormat::Glb => self.glb(&config),
            })
        })?;
        super::write_private(&self.output, &octets)?;
        self.report(&table)
    }

    /// Refuses to replace a table in service by one that does not know its owners.
    fn spare_table_in_service(&self, config: &Config) -> Result<(), InService> {
        let Ok(there) = store::load(&self.output) else { return Ok(()) };
        let table = config.tables.iter().find(|spec| there.table(&spec.name).is_some());
        table.map_or(Ok(()), |spec| Err(InService { file: self.output.clone(), table: spec.name.clone() }))
    }

    fn native(
        &self,
        config: &Config,
        previous: Option<&ForwardingTable>,
    ) -> anyhow::Result<(Vec<u8>, ForwardingTable)> {
        let history = match previous {
            None => History::None,
            Some(parent) if self.settle => History::Settled(parent),
            Some(parent) => History::Parent(parent),
        };
        let generated = generate::generate(&config.tables, history)?;
        super::warn(&generated.warnings);
        Ok((generated.table.encode(), generated.table))
    }

    fn glb(&self, config: &Config) -> anyhow::Result<(Vec<u8>, ForwardingTable)> {
        // Exit code 2: the command line is wrong, not the configuration.
        anyhow::ensure!(
            self.previous.is_none(),
            "--previous cannot be used with --format glb, because that format keeps no history"
        );
        let exported = glb::export(&config.tables)?;
        super::warn(&exported.warnings);
        let table = ForwardingTable::read(&exported.octets)?;
        Ok((exported.octets, table))
    }

    fn report(&self, table: &ForwardingTable) -> anyhow::Result<ExitCode> {
        let summary = Summary::new(table);
        if self.json {
            super::print_json(&summary)?;
        } else {
            super::print(summary)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
