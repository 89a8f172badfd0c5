//! `tablegen diff`.

use super::review::{self, ReviewArgs};
use crate::report::{Report, html, json};
use crate::review::diff::Diff;
use crate::review::verdict::Judgement;
use crate::{files, progress, store};
use anyhow::Context as _;
use common::table::{Digest, ForwardingTable};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct DiffArgs {
    /// Table in service
    old: PathBuf,
    /// Table under review
    new: PathBuf,
    /// Format of the report
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    format: ReportFormat,
    /// Same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    #[command(flatten)]
    review: ReviewArgs,
    /// Configuration of the new table, for the capacities of its backends
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Also judge connections that are opened during the rollout: directors with the old table must list each backend
    /// before it owns rows
    #[arg(long)]
    announced: bool,
    /// Show this certificate of the new table in the report; `tablegen verify --certificate` writes it
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ReportFormat {
    /// Text for a terminal
    Text,
    /// JSON for a script
    Json,
    /// One HTML page for a review; it needs no other file and no network
    Html,
}

impl DiffArgs {
    /// Exit code 0 if the change is safe, 3 if it is safe under conditions, 1 if it is not safe, 2 if a file cannot be read.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let (old, new) = (store::load(&self.old)?, store::load(&self.new)?);
        let capacities = review::capacities(self.config.as_deref())?;
        let (diff, judgement) =
            progress::shown("diff", |_| self.review.review(&old, &new, &capacities, self.announced))?;
        self.report(&diff, &judgement, &old, &new)
    }

    fn report(
        &self,
        diff: &Diff,
        judgement: &Judgement,
        old: &ForwardingTable,
        new: &ForwardingTable,
    ) -> anyhow::Result<ExitCode> {
        let certificate = self.certificate.as_deref().map(|file| certificate(file, diff)).transpose()?;
        let report = Report { diff, judgement, certificate: certificate.as_ref() };
        match if self.json { ReportFormat::Json } else { self.format } {
            ReportFormat::Text => super::print(&report)?,
            ReportFormat::Json => super::print_json(&json::value(&report))?,
            ReportFormat::Html => super::print_page(&html::page(&report, old, new))?,
        }
        Ok(review::exit_code(judgement.outcome()))
    }
}

/// Reads a certificate and checks that it is about this change.
fn certificate(file: &Path, diff: &Diff) -> anyhow::Result<serde_json::Value> {
    let octets = files::octets(file).with_context(|| format!("cannot read {}", file.display()))?;
    let certificate: serde_json::Value = serde_json::from_slice(&octets)
        .with_context(|| format!("{} is not a certificate", file.display()))?;
    let names = |key: &str, digest: Digest| certificate[key].as_str() == Some(&digest.to_string());
    let no_findings = certificate["findings"].as_array().is_some_and(Vec::is_empty);
    let parent = diff.new.parent.is_none_or(|parent| names("parent", parent));
    anyhow::ensure!(
        no_findings && parent && names("digest", diff.new.digest),
        "{} is not the certificate of the new table",
        file.display()
    );
    Ok(certificate)
}
