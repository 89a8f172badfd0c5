//! `tablegen verify`.

use crate::config::Config;
use crate::verify::Proof;
use crate::{progress, store};
use anyhow::Context as _;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The table under review
    new: PathBuf,
    /// The configuration that it was built from
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The table that it was built from with --previous
    #[arg(long, value_name = "OLD")]
    previous: Option<PathBuf>,
    /// Write the certificate there as JSON, for `tablegen diff --certificate`
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// Print the certificate as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// 0 if everything is as it must be, 1 if not.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let new = store::load(&self.new)?;
        let config = Config::load(&self.config)?;
        let previous = self.previous.as_deref().map(store::load).transpose()?;
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
