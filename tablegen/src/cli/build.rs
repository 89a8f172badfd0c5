//! `tablegen build`.

use crate::config::Config;
use crate::generate::{self, Cache, Generated, History};
use crate::summary::Summary;
use crate::{files, glb, progress, store};
use common::table::{ForwardingTable, MAX_FILE};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The configuration
    config: PathBuf,
    /// The table file to write
    #[arg(short, long, value_name = "TABLE")]
    output: PathBuf,
    /// The format to write
    #[arg(long, value_enum, default_value_t = Format::Native)]
    format: Format,
    /// The table in service: its owners are remembered, so that their connections survive
    #[arg(long, value_name = "TABLE")]
    previous: Option<PathBuf>,
    /// Forget owners before those of the table in service: all connections older than it are gone
    #[arg(long, requires = "previous")]
    settle: bool,
    /// A side file that makes the next build faster, read if it belongs to PREVIOUS; it may be deleted at any time
    #[arg(long, value_name = "FILE")]
    cache: Option<PathBuf>,
    /// Threads to use; the result does not depend on it [default: one a core]
    #[arg(long, value_name = "N")]
    threads: Option<NonZero<usize>>,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// This project's own
    Native,
    /// GLB Director's, version 2
    Glb,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let config = Config::load(&self.config)?;
        super::warn(&config.warnings);
        let threads = self.threads.map_or(0, NonZero::get);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
        let (octets, table) = progress::shown("build", |_| {
            pool.install(|| match self.format {
                Format::Native => self.native(&config),
                Format::Glb => self.glb(&config),
            })
        })?;
        super::write_private(&self.output, &octets)?;
        self.report(&table)
    }

    fn native(&self, config: &Config) -> anyhow::Result<(Vec<u8>, ForwardingTable)> {
        let previous = self.previous.as_deref().map(store::load).transpose()?;
        let history = match &previous {
            None => History::None,
            Some(parent) if self.settle => History::Settled(parent),
            Some(parent) => History::Parent(parent),
        };
        let generated = match &self.cache {
            None => generate::generate(&config.tables, history)?,
            Some(file) => cached(config, history, file)?,
        };
        super::warn(&generated.warnings);
        Ok((generated.table.encode(), generated.table))
    }

    fn glb(&self, config: &Config) -> anyhow::Result<(Vec<u8>, ForwardingTable)> {
        // A usage error, and so not one of the configuration.
        anyhow::ensure!(
            self.previous.is_none(),
            "--previous means nothing to --format glb, which keeps no history"
        );
        anyhow::ensure!(self.cache.is_none(), "--cache means nothing to --format glb, which is built anew");
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

/// A side file that cannot be read is none.
fn cached(config: &Config, history: History<'_>, file: &Path) -> anyhow::Result<Generated> {
    let cache = files::octets_up_to(file, MAX_FILE).ok().and_then(|octets| Cache::decode(&octets));
    let (generated, cache) = generate::generate_cached(&config.tables, history, cache.as_ref())?;
    super::write_private(file, &cache.encode())?;
    Ok(generated)
}
