//! Whether a change of the configuration is a safe next step from the table in service.

use super::{Action, EditError, apply};
use crate::config::Config;
use crate::generate::{History, generate};
use crate::review::diff::Diff;
use crate::review::remarks::risks;
use crate::review::verdict::ReviewVerdict;
use common::backend::Backend;
use common::table::{ForwardingTable, TableError};
use std::path::Path;

/// A change of some backends and its effect.
#[derive(Debug)]
pub struct ReviewedEdit {
    /// Text of the changed file.
    pub text: String,
    /// Differences between the table in service and the table of the changed file.
    pub diff: Diff,
    /// Reasons for which the step is not safe; empty if it is.
    pub refusals: Vec<String>,
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
        let config = Config::parse(&text, self.file).map_err(EditError::from)?;
        let next = generate(&config.tables, History::Parent(self.current))?.table;
        let diff = Diff::new(self.current, &next);
        let refusals = refusals(&next, &diff);
        Ok(ReviewedEdit { text, diff, refusals })
    }

    /// The longest beginning of `backends`, without the last, that can be changed safely now.
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
    let mut refusals = Vec::new();
    for table in next.tables() {
        if !table.backends.iter().any(Backend::accepts) {
            refusals.push(format!(
                "table {} has no backend that accepts new connections after this change",
                table.name
            ));
        }
    }
    if ReviewVerdict::new(diff, &[]) != ReviewVerdict::Safe {
        let risks = diff.tables.iter().flat_map(|table| {
            let of_table = risks(table).into_iter();
            of_table.map(move |risk| format!("table {}: {risk}", table.name))
        });
        refusals.extend(risks);
    }
    refusals
}
