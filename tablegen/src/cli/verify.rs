//! `tablegen verify`.

use crate::config::Config;
use crate::verify::Proof;
use crate::{progress, store};
use anyhow::Context as _;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct VerifyArgs {
    /// Table under review
    new: PathBuf,
    /// Configuration that the table was built from
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Table that it was built from with --previous
    #[arg(long, value_name = "OLD")]
    previous: Option<PathBuf>,
    /// Write the certificate as JSON to this file, for `tablegen diff --certificate`
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// Print the certificate as JSON
    #[arg(long)]
    json: bool,
}

impl VerifyArgs {
    /// Exit code 0 if there are no findings, 1 otherwise.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let new = store::load(&self.new)?;
        let mut config = Config::load(&self.config)?;
        let previous = self.previous.as_deref().map(store::load).transpose()?;
        if let Some(previous) = &previous {
            config.keep_rows_of(previous);
        }
        let proof =
            progress::shown("verify", |progress| Proof::counted(&new, &config, previous.as_ref(), progress));
        if let Some(file) = self.certificate.as_ref().filter(|_| proof.holds()) {
            store::write(file, &serde_json::to_vec_pretty(&proof)?)
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        if self.json {
            super::print_json(&proof)?;
        } else {
            super::print(&proof)?;
        }
        Ok(if proof.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
