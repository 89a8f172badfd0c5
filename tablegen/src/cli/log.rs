//! `tablegen log`.

use crate::format::columns::{Align, Columns};
use crate::store;
use anyhow::Context as _;
use common::table::{Digest, ForwardingTable};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct LogArgs {
    /// Folder of table files
    folder: PathBuf,
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

impl LogArgs {
    /// Lists the newest table first. Files that are not tables are skipped, with a message.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let tables = read(&self.folder)?;
        if self.json {
            let entry = |(file, table): &(String, ForwardingTable)| {
                json!({
                    "file": file,
                    "digest": table.digest().to_string(),
                    "generation": table.generation(),
                    "built": table.built().name(),
                    "parent": table.parent().map(|parent| parent.to_string()),
                    "config_digest": table.config_digest().to_string(),
                })
            };
            super::print_json(&tables.iter().map(entry).collect::<Vec<_>>())?;
        } else {
            super::print(listing(&tables))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn read(folder: &Path) -> anyhow::Result<Vec<(String, ForwardingTable)>> {
    let mut tables = Vec::new();
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !path.is_file() || name.starts_with('.') {
            continue;
        }
        match store::load(&path) {
            Ok(table) => tables.push((name, table)),
            Err(error) => super::say("skipped", &error),
        }
    }
    tables.sort_by(|(a, one), (b, other)| other.generation().cmp(&one.generation()).then_with(|| a.cmp(b)));
    Ok(tables)
}

fn listing(tables: &[(String, ForwardingTable)]) -> Columns {
    let mut columns = Columns::new(0, &[Align::Right]);
    columns.push(["generation", "table", "built", "parent", "backends", "file"]);
    let here = |digest: Digest| tables.iter().any(|(_, table)| table.digest() == digest);
    for (file, table) in tables {
        let parent = match table.parent() {
            None => "none".to_owned(),
            Some(parent) if here(parent) => parent.short(),
            Some(parent) => format!("{} (not here)", parent.short()),
        };
        let backends: Vec<String> =
            table.tables().iter().map(|one| format!("{} {}", one.name, one.backends.len())).collect();
        let shown =
            if backends.len() > 4 { format!("{} tables", backends.len()) } else { backends.join(", ") };
        let built = table.built().to_string();
        columns.push([
            table.generation().to_string(),
            table.digest().short(),
            built,
            parent,
            shown,
            file.clone(),
        ]);
    }
    columns
}
