//! `tablegen diff`.

use crate::diff::{Diff, Limits, Verdict};
use crate::report::{Report, json};
use crate::store;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The table in service
    old: PathBuf,
    /// The table under review
    new: PathBuf,
    /// How to show it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    limits: Limits,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    /// For a terminal
    Text,
    /// For a script
    Json,
}

impl Args {
    /// 0 within the limits, 1 over one, 2 where there is nothing to compare: a gate must not take a broken file for a
    /// change that is too large.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match (store::load(&self.old), store::load(&self.new)) {
            (Ok(old), Ok(new)) => self.report(&Diff::new(&old, &new)),
            (Err(error), _) | (_, Err(error)) => {
                eprintln!("error: {error:#}");
                Ok(ExitCode::from(2))
            }
        }
    }

    fn report(&self, diff: &Diff) -> anyhow::Result<ExitCode> {
        let excesses = self.limits.excesses(diff);
        let report = Report { diff, verdict: Verdict::new(diff, &excesses), excesses: &excesses };
        match self.format {
            Format::Text => super::print(&report)?,
            Format::Json => super::print_json(&json::value(&report))?,
        }
        Ok(if excesses.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
