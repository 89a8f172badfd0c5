//! `tablegen import`.

use crate::{glb, store};
use anyhow::Context as _;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// GLB Director's JSON
    json: PathBuf,
    /// The configuration to write
    #[arg(short, long, value_name = "CONFIG")]
    output: PathBuf,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let file = self.json.display();
        let json = std::fs::read_to_string(&self.json).with_context(|| file.to_string())?;
        let imported = glb::import(&json).with_context(|| file.to_string())?;
        super::warn(&imported.warnings);
        store::write(&self.output, imported.yaml.as_bytes())
            .with_context(|| format!("cannot write {}", self.output.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}
