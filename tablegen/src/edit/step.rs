//! Whether a change of the configuration is a safe next step from the table in service.

use super::{Action, EditError, apply};
use crate::config::Config;
use crate::generate::{History, generate};
use crate::review::diff::Diff;
use crate::review::verdict::{Judgement, ReviewVerdict, Stated};
use common::table::{ForwardingTable, TableError};
use std::path::Path;

/// A change of some backends and its effect.
#[derive(Debug)]
pub struct ReviewedEdit {
    /// Text of the changed file.
    pub text: String,
    /// Differences between the table in service and the table of the changed file.
    pub diff: Diff,
    /// The verdict on it.
    pub judgement: Judgement,
}

impl ReviewedEdit {
    /// Is it safe, perhaps under conditions?
    pub fn is_allowed(&self) -> bool {
        self.judgement.outcome() != ReviewVerdict::NotSafe
    }

    /// Reasons for which the step is not safe; empty if it is.
    pub fn refusals(&self) -> Vec<String> {
        let of = |table: &str| if table.is_empty() { String::new() } else { format!("table {table}: ") };
        let reasons = self.judgement.reasons.iter();
        reasons.map(|reason| format!("{}{}", of(&reason.table), reason.text)).collect()
    }
}

/// A requested change.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The configuration file.
    pub file: &'a Path,
    /// Text of the file.
    pub text: &'a str,
    /// The table in service.
    pub current: &'a ForwardingTable,
    /// Name of the table with the backends, if given.
    pub table: Option<&'a str>,
    /// The change of each backend.
    pub action: Action,
    /// What the operator states; capacities come from the changed file.
    pub stated: &'a Stated,
}

/// Reason for which the step cannot be computed.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The file cannot be changed in this way.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// The table of the changed file cannot be built.
    #[error(transparent)]
    Table(#[from] TableError),
}

impl Request<'_> {
    /// Applies the change to all of `backends` and reviews the result.
    pub fn step(&self, backends: &[String]) -> Result<ReviewedEdit, StepError> {
        let mut text = self.text.to_owned();
        for backend in backends {
            text = apply(&text, self.file, self.table, backend, self.action)?;
        }
        let mut config = Config::parse(&text, self.file).map_err(EditError::from)?;
        config.keep_rows_of(self.current);
        let next = generate(&config.tables, History::Parent(self.current))?.table;
        let stated = Stated { capacities: config.capacities, ..self.stated.clone() };
        let diff = Diff::stated(self.current, &next, &stated);
        let judgement = Judgement::new(&diff, &stated);
        Ok(ReviewedEdit { text, diff, judgement })
    }

    /// The longest beginning of `backends`, without the last, that can be changed safely now.
    pub fn safe_part<'b>(&self, backends: &'b [String]) -> &'b [String] {
        let mut safe: &[String] = &[];
        for count in 1..backends.len() {
            let Some(part) = backends.get(..count) else { break };
            match self.step(part) {
                Ok(step) if step.is_allowed() => safe = part,
                _ => break,
            }
        }
        safe
    }
}
