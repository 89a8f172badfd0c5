//! `tablegen drain`, `fill`, `activate`, `remove`.

use super::review::{self, ReviewArgs};
use crate::config::without_secrets;
use crate::edit::Action;
use crate::edit::step::{Request, ReviewedEdit};
use crate::report::Report;
use crate::review::verdict::ReviewVerdict;
use crate::{files, store};
use anyhow::Context as _;
use serde_json::json;
use similar::TextDiff;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct EditArgs {
    /// Configuration file. It changes only with --write, and only in the values concerned
    config: PathBuf,
    /// Table in service
    current: PathBuf,
    /// Ids of the backends
    #[arg(required = true, value_name = "BACKEND")]
    backends: Vec<String>,
    /// Name of the table with the backends, if several tables have a backend with this id
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    #[command(flatten)]
    review: ReviewArgs,
    /// Write the configuration [default: only show the change]
    #[arg(long)]
    write: bool,
    /// Print the change and the verdict as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct FillArgs {
    #[command(flatten)]
    args: EditArgs,
    /// Percentage of the weight for new connections
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100))]
    percent: u8,
}

impl FillArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        self.args.run(Action::Fill(self.percent))
    }
}

impl EditArgs {
    /// Exit code 0 if the change is safe, 3 if it is safe under conditions, 1 if it is refused. A safe change is
    /// written with --write; so is one whose conditions are all accepted.
    pub(super) fn run(self, action: Action) -> anyhow::Result<ExitCode> {
        let text =
            files::text(&self.config).with_context(|| format!("cannot read {}", self.config.display()))?;
        let current = store::load(&self.current)?;
        let stated = self.review.stated(&Default::default());
        let request = Request {
            stated: &stated,
            file: &self.config,
            text: &text,
            current: &current,
            table: self.table.as_deref(),
            action,
        };
        let step = request.step(&self.backends)?;
        let safe = step.judgement.outcome() == ReviewVerdict::Safe;
        let write = safe && self.write && step.text != text;
        if write {
            store::write(&self.config, step.text.as_bytes())
                .with_context(|| format!("cannot write {}", self.config.display()))?;
        }
        if self.json {
            super::print_json(&self.entry(&request, &step, write))?;
        } else {
            super::print(self.shown(&text, &step))?;
            super::print(match step.judgement.outcome() {
                ReviewVerdict::Safe => self.next(step.text != text),
                ReviewVerdict::SafeIf => {
                    "\nnothing was written; confirm each condition with --accept first\n".to_owned()
                }
                ReviewVerdict::NotSafe => self.refused(&request, &step),
            })?;
        }
        Ok(review::exit_code(step.judgement.outcome()))
    }

    fn entry(&self, request: &Request<'_>, step: &ReviewedEdit, written: bool) -> serde_json::Value {
        let safe_now =
            if step.is_allowed() { self.backends.as_slice() } else { request.safe_part(&self.backends) };
        let report = Report { diff: &step.diff, judgement: &step.judgement, certificate: None };
        json!({
            "action": request.action.name(),
            "backends": self.backends,
            "changed": step.text != request.text,
            "written": written,
            "patch": self.patch(request.text, step),
            "refusals": step.refusals(),
            "safe_now": safe_now,
            "diff": crate::report::json::value(&report),
        })
    }

    /// The changed lines, without the secrets in the lines around them.
    fn patch(&self, text: &str, step: &ReviewedEdit) -> String {
        without_secrets(&unified_diff(&self.config.display().to_string(), text, &step.text))
    }

    fn shown(&self, text: &str, step: &ReviewedEdit) -> String {
        let changes = self.patch(text, step);
        let changes = if changes.is_empty() {
            "the configuration has these values already\n".to_owned()
        } else {
            changes
        };
        format!("{changes}\n{}", Report { diff: &step.diff, judgement: &step.judgement, certificate: None })
    }

    fn refused(&self, request: &Request<'_>, step: &ReviewedEdit) -> String {
        let mut text = String::from("\nrefused; nothing was written\n");
        for refusal in step.refusals() {
            let _ = writeln!(text, "  {refusal}");
        }
        let name = request.action.name();
        match (request.safe_part(&self.backends), request.action) {
            ([], Action::Remove) => {
                text += "safe now: drain the backends, then wait until their connections have ended\n"
            }
            ([], _) => text += "safe now: none of these changes\n",
            (part, _) => {
                let _ = writeln!(
                    text,
                    "safe now: {name} {}; change the others after its connections have ended",
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
            (true, false) => "\nnothing was written; use --write to change the file\n".to_owned(),
            (true, true) => format!(
                "\nwritten; next: tablegen build {config} --previous {} -o NEW\n",
                self.current.display()
            ),
        }
    }
}

/// The changed lines of a file, with three lines around each change. Empty if nothing changed.
fn unified_diff(name: &str, old: &str, new: &str) -> String {
    TextDiff::from_lines(old, new).unified_diff().context_radius(3).header(name, name).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_line_is_shown_with_its_surroundings() {
        let old: String = (1..=20).map(|line| format!("line {line}\n")).collect();
        let new = old.replace("line 9\n", "line nine\n");
        let expected = "--- f\n+++ f\n@@ -6,7 +6,7 @@\n line 6\n line 7\n line 8\n-line 9\n+line nine\n line 10\n line 11\n line 12\n";
        assert_eq!(unified_diff("f", &old, &new), expected);
        assert_eq!(unified_diff("f", &old, &old), "");
    }
}
