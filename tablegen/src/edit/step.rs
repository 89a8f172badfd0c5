//! Is a change of the configuration a safe next step from the table in service?

use super::{Action, EditError, apply};
use crate::config::Config;
use crate::diff::{Diff, Verdict};
use crate::generate::{History, generate};
use common::backend::Backend;
use common::table::{ForwardingTable, TableError};
use std::path::Path;

/// A change of some backends, and what it would do.
#[derive(Debug)]
pub struct Step {
    /// The file after it.
    pub text: String,
    /// The table after it against the table in service.
    pub diff: Diff,
    /// Why it must not be taken.
    pub refusals: Vec<String>,
}

/// What is to be changed, and from where.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The configuration file.
    pub file: &'a Path,
    /// Its text.
    pub text: &'a str,
    /// The table in service.
    pub current: &'a ForwardingTable,
    /// The table in which the backends are, if it is named.
    pub table: Option<&'a str>,
    /// What is done to them.
    pub action: Action,
}

/// Why there is no step to look at.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The file cannot be changed like that.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// The table after it cannot be built.
    #[error(transparent)]
    Table(#[from] TableError),
}

impl Request<'_> {
    /// Does the change to all of `backends` and looks at the result.
    pub fn step(&self, backends: &[String]) -> Result<Step, StepError> {
        let mut text = self.text.to_owned();
        for backend in backends {
            text = apply(&text, self.file, self.table, backend, self.action)?;
        }
        let config = Config::parse(&text, self.file).map_err(EditError::from)?;
        let next = generate(&config.tables, History::Parent(self.current))?.table;
        let diff = Diff::new(self.current, &next);
        let refusals = refusals(&next, &diff);
        Ok(Step { text, diff, refusals })
    }

    /// As many of `backends`, in their order, as can be changed safely now.
    pub fn safe_part<'b>(&self, backends: &'b [String]) -> &'b [String] {
        let mut safe: &[String] = &[];
        for count in 1..backends.len() {
            let Some(part) = backends.get(..count) else { break };
            match self.step(part) {
                Ok(step) if step.refusals.is_empty() => safe = part,
                _ => break,
            }
        }
        safe
    }
}

fn refusals(next: &ForwardingTable, diff: &Diff) -> Vec<String> {
    let mut all = Vec::new();
    for table in next.tables() {
        if !table.backends.iter().any(Backend::accepts) {
            all.push(format!("table {} would have no backend that accepts new connections", table.name));
        }
    }
    if Verdict::new(diff, &[]) != Verdict::Safe {
        let risks = diff.tables.iter().flat_map(|table| {
            let of_table = crate::report::text::risks(table).into_iter();
            of_table.map(move |risk| format!("table {}: {risk}", table.name))
        });
        all.extend(risks);
    }
    all
}
