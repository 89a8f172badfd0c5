//! `tablegen drain`, `fill`, `activate`, `remove`.

use crate::config::without_secrets;
use crate::diff::Verdict;
use crate::edit::step::{Request, Step};
use crate::edit::{Action, lines};
use crate::report::Report;
use crate::{files, store};
use anyhow::Context as _;
use serde_json::json;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The configuration; only the values concerned are changed, and only with --write
    config: PathBuf,
    /// The table in service
    current: PathBuf,
    /// Ids of the backends
    #[arg(required = true, value_name = "BACKEND")]
    backends: Vec<String>,
    /// The table that they are in, where several have one of that id
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// Write the configuration; without it the change is only shown
    #[arg(long)]
    write: bool,
    /// Print change and verdict as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct FillArgs {
    #[command(flatten)]
    args: Args,
    /// Percent of the weight that counts from now on
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100))]
    percent: u8,
}

impl FillArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        self.args.run(Action::Fill(self.percent))
    }
}

impl Args {
    /// 0 if the change is safe, and written if that was asked for; 1 if it is refused.
    pub(super) fn run(self, action: Action) -> anyhow::Result<ExitCode> {
        let text =
            files::text(&self.config).with_context(|| format!("cannot read {}", self.config.display()))?;
        let current = store::load(&self.current)?;
        let request = Request {
            file: &self.config,
            text: &text,
            current: &current,
            table: self.table.as_deref(),
            action,
        };
        let step = request.step(&self.backends)?;
        let safe = step.refusals.is_empty();
        let write = safe && self.write && step.text != text;
        if write {
            store::write(&self.config, step.text.as_bytes())
                .with_context(|| format!("cannot write {}", self.config.display()))?;
        }
        if self.json {
            super::print_json(&self.entry(&request, &step, write))?;
        } else {
            super::print(self.shown(&text, &step))?;
            super::print(if safe { self.next(step.text != text) } else { self.refused(&request, &step) })?;
        }
        Ok(if safe { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn entry(&self, request: &Request<'_>, step: &Step, written: bool) -> serde_json::Value {
        let safe_now = if step.refusals.is_empty() {
            self.backends.as_slice()
        } else {
            request.safe_part(&self.backends)
        };
        let verdict = Verdict::new(&step.diff, &[]);
        let report = Report { diff: &step.diff, verdict, excesses: &[], certificate: None };
        json!({
            "action": request.action.name(),
            "backends": self.backends,
            "changed": step.text != request.text,
            "written": written,
            "patch": self.patch(request.text, step),
            "refusals": step.refusals,
            "safe_now": safe_now,
            "diff": crate::report::json::value(&report),
        })
    }

    /// The change of the file for people to read: secrets in the lines around it are not shown.
    fn patch(&self, text: &str, step: &Step) -> String {
        without_secrets(&lines::unified(&self.config.display().to_string(), text, &step.text))
    }

    fn shown(&self, text: &str, step: &Step) -> String {
        let changes = self.patch(text, step);
        let changes =
            if changes.is_empty() { "the configuration says so already\n".to_owned() } else { changes };
        let verdict = Verdict::new(&step.diff, &[]);
        format!("{changes}\n{}", Report { diff: &step.diff, verdict, excesses: &[], certificate: None })
    }

    fn refused(&self, request: &Request<'_>, step: &Step) -> String {
        let mut text = String::from("\nrefused, nothing written\n");
        for refusal in &step.refusals {
            let _ = writeln!(text, "  {refusal}");
        }
        let name = request.action.name();
        match (request.safe_part(&self.backends), request.action) {
            ([], Action::Remove) => {
                text += "safe now: drain first, then wait until its connections have ended\n"
            }
            ([], _) => text += "safe now: none of it\n",
            (part, _) => {
                let _ = writeln!(
                    text,
                    "safe now: {name} {}; the others after their connections have ended",
                    part.join(" ")
                );
            }
        }
        text
    }

    fn next(&self, changed: bool) -> String {
        let config = self.config.display();
        match (changed, self.write) {
            (false, _) => String::new(),
            (true, false) => "\nnothing written; --write changes the file\n".to_owned(),
            (true, true) => format!(
                "\nwritten; next: tablegen build {config} --previous {} -o NEW\n",
                self.current.display()
            ),
        }
    }
}
