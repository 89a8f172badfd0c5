//! `tablegen plan`.

use crate::config::Config;
use crate::plan::{Step, Wait, plan};
use crate::report::number::{grouped, percent};
use crate::store;
use anyhow::{Context as _, ensure};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The table in service
    current: PathBuf,
    /// The configuration to get to
    target: PathBuf,
    /// How long the longest connection lasts, such as 2h
    #[arg(long, value_name = "TIME", default_value = "2h")]
    longest_connection: String,
    /// Percentages by which newcomers are filled, in ascending order
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=99))]
    fill: Vec<u8>,
    /// Write the table of each step there
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Executes nothing; 1 if there is no safe way.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        ensure!(self.fill.is_sorted(), "--fill must be in ascending order");
        let current = store::load(&self.current)?;
        let target = Config::load(&self.target)?;
        let steps = match plan(&current, &target, &self.fill) {
            Ok(steps) => steps,
            Err(error) => {
                eprintln!("refused: {error}");
                return Ok(ExitCode::FAILURE);
            }
        };
        if let Some(folder) = &self.out {
            write(folder, &steps)?;
        }
        if self.json {
            super::print_json(&steps.iter().map(entry).collect::<Vec<_>>())?;
        } else {
            super::print(self.text(&steps))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn text(&self, steps: &[Step]) -> String {
        let mut text = match steps.len() {
            0 => "nothing to do: the table in service is the target\n".to_owned(),
            1 => "1 safe step\n".to_owned(),
            count => format!("{count} safe steps\n"),
        };
        for (step, number) in steps.iter().zip(1..) {
            let wait = match step.wait {
                Wait::None => "now".to_owned(),
                Wait::Rollout => "when every director has the table before".to_owned(),
                Wait::Connections => format!(
                    "{} after the table before, or when its redirectors pass nothing on any more",
                    self.longest_connection
                ),
            };
            let settle = if step.settle { ", built with --settle" } else { "" };
            text += &format!("\n{number}  {wait}: table {}{settle}\n", step.table.digest().short());
            let shown = 8.min(step.changes.len());
            step.changes.iter().take(shown).for_each(|change| text += &format!("     {change}\n"));
            if shown < step.changes.len() {
                text += &format!("     and {} changes more\n", step.changes.len() - shown);
            }
            let moved = percent(step.diff.moved() as f64, step.diff.total() as f64);
            text +=
                &format!("     {} rows ({moved}) get another owner, 0 at risk", grouped(step.diff.moved()));
            text += &worst(step).map_or_else(
                || "\n".to_owned(),
                |(id, load)| format!("; fullest {id}, {load:.3} × its fair share\n"),
            );
        }
        text
    }
}

fn worst(step: &Step) -> Option<(String, f64)> {
    let of_table = |table: &crate::diff::TableDiff| {
        let (load, id) = table.shape[1].fullest?;
        Some((table.id(id).to_owned(), load))
    };
    step.diff.tables.iter().filter_map(of_table).max_by(|a, b| a.1.total_cmp(&b.1))
}

fn entry(step: &Step) -> serde_json::Value {
    json!({
        "wait": step.wait,
        "settle": step.settle,
        "changes": step.changes,
        "digest": step.table.digest().to_string(),
        "moved": step.diff.moved(),
        "at_risk": step.diff.at_risk(),
        "fullest": worst(step).map(|(id, load)| json!({"id": id, "load": load})),
    })
}

/// `step-1.table`, `step-2.table`, …: each the parent of the next.
fn write(folder: &Path, steps: &[Step]) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (step, number) in steps.iter().zip(1..) {
        let file = folder.join(format!("step-{number}.table"));
        store::write(&file, &step.table.encode())
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}
