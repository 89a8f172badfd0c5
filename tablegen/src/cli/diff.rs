//! `tablegen diff`.

use crate::diff::{Diff, Limits, Verdict};
use crate::report::{Report, html, json};
use crate::{files, progress, store};
use anyhow::Context as _;
use common::table::ForwardingTable;
use std::path::{Path, PathBuf};
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
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    #[command(flatten)]
    limits: Limits,
    /// The certificate of the new table that `tablegen verify --certificate` wrote, to be shown with the report
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    /// For a terminal
    Text,
    /// For a script
    Json,
    /// For a review: one page that needs no other file and no network
    Html,
}

impl Args {
    /// 0 within the limits, 1 over one, 2 where there is nothing to compare: a gate must not take a broken file for a
    /// change that is too large.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match (store::load(&self.old), store::load(&self.new)) {
            (Ok(old), Ok(new)) => {
                self.report(&progress::shown("diff", |_| Diff::new(&old, &new)), &old, &new)
            }
            (Err(error), _) | (_, Err(error)) => {
                super::say("error", format_args!("{error:#}"));
                Ok(ExitCode::from(2))
            }
        }
    }

    fn report(&self, diff: &Diff, old: &ForwardingTable, new: &ForwardingTable) -> anyhow::Result<ExitCode> {
        let excesses = self.limits.excesses(diff);
        let certificate = self.certificate.as_deref().map(|file| certificate(file, diff)).transpose()?;
        let verdict = Verdict::new(diff, &excesses);
        let report = Report { diff, verdict, excesses: &excesses, certificate: certificate.as_ref() };
        match if self.json { Format::Json } else { self.format } {
            Format::Text => super::print(&report)?,
            Format::Json => super::print_json(&json::value(&report))?,
            Format::Html => super::print_page(&html::page(&report, old, new))?,
        }
        Ok(if excesses.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Reads a certificate and makes sure that it is about this change.
fn certificate(file: &Path, diff: &Diff) -> anyhow::Result<serde_json::Value> {
    let octets = files::octets(file).with_context(|| format!("cannot read {}", file.display()))?;
    let certificate: serde_json::Value =
        serde_json::from_slice(&octets).with_context(|| format!("{} is no certificate", file.display()))?;
    let says =
        |key: &str, digest: common::table::Digest| certificate[key].as_str() == Some(&digest.to_string());
    let proved = certificate["findings"].as_array().is_some_and(Vec::is_empty);
    let parent = diff.new.parent.is_none_or(|parent| says("parent", parent));
    anyhow::ensure!(
        proved && parent && says("digest", diff.new.digest),
        "{} is about another table",
        file.display()
    );
    Ok(certificate)
}
