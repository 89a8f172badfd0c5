//! `tablegen import`.

use crate::{files, glb};
use anyhow::Context as _;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct ImportArgs {
    /// JSON configuration of GLB Director
    #[arg(value_name = "JSON")]
    source: PathBuf,
    /// Configuration file to write
    #[arg(short, long, value_name = "CONFIG")]
    output: PathBuf,
    /// Print the warnings as JSON
    #[arg(long)]
    json: bool,
}

impl ImportArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let file = self.source.display();
        let json = files::text(&self.source).with_context(|| file.to_string())?;
        let imported = glb::import(&json).with_context(|| file.to_string())?;
        if !self.json {
            super::warn(&imported.warnings);
        }
        super::write_private(&self.output, imported.yaml.as_bytes())?;
        if self.json {
            let (config, warnings) = (self.output.display().to_string(), &imported.warnings);
            super::print_json(&serde_json::json!({"config": config, "warnings": warnings}))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
