//! The shortest sequence of safe tables from the one in service to a configuration.
//!
//! ```text
//! 0  announce                       newcomers as hops that get no new connections, if that is asked for
//! 1  join, drain, undrain, weigh    in as few steps as are safe: each keeps every backend that may hold connections
//! 2  fill                           newcomers by percent, if that is asked for
//! 3  remove                         what is drained, after the longest connection's time
//! ```
//!
//! A step is safe if `diff` finds no row at risk from the step before. Where all at once is not, as many changes as
//! are go first, in order of id; before the next a row's older connections must have ended (`build --settle`).
//! Nothing is executed.

mod steps;
mod watch;

pub use watch::Watch;

use crate::config::{Config, TableSpec};
use crate::diff::Diff;
use crate::generate::{History, generate};
use common::backend::{Backend, State};
use common::table::{ForwardingTable, TableError};
use serde::Serialize;

/// What must be true before a step is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// Nothing.
    None,
    /// Directors have the table before.
    Rollout,
    /// The longest connection's time has passed since the table before, or no packet needs a second chance any more.
    Connections,
}

/// One table of a plan.
#[derive(Clone, Debug)]
pub struct Step {
    /// In words: what it changes.
    pub changes: Vec<String>,
    /// What to wait for first.
    pub wait: Wait,
    /// Whose connections must have ended, if it is connections that are waited for.
    pub watch: Vec<Watch>,
    /// Is it built with `--settle`?
    pub settle: bool,
    /// Its configuration.
    pub specs: Vec<TableSpec>,
    /// The table itself.
    pub table: ForwardingTable,
    /// Against the step before.
    pub diff: Diff,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A table cannot be built.
    #[error(transparent)]
    Table(#[from] TableError),
    /// Even one change alone puts connections at risk.
    #[error("no safe step: {0} puts rows at risk even alone")]
    Stuck(String),
}

/// How newcomers come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Joining {
    /// With all other changes.
    AtOnce,
    /// One after the other, each as a hop first, before it owns any row: what a director opens there that has the next table already, directors
    /// that have this one reach too, should the router move it to them.
    Announced,
    /// By these percentages of their weight, in ascending order.
    Filled(Vec<u8>),
}

/// Steps from `current` to `target`.
pub fn plan(current: &ForwardingTable, target: &Config, joining: &Joining) -> Result<Vec<Step>, PlanError> {
    let goal = &target.tables;
    let mut plan = Plan { current, steps: Vec::new() };
    let (kept, leaving) = steps::with_leavers(current, goal);
    let newcomers = steps::newcomers(current, goal);
    let before: Vec<Vec<TableSpec>> = match joining {
        _ if newcomers.is_empty() => Vec::new(),
        Joining::AtOnce => Vec::new(),
        Joining::Announced => steps::announced(&kept, &newcomers),
        Joining::Filled(percents) => {
            percents.iter().map(|percent| steps::filled(&kept, &newcomers, *percent)).collect()
        }
    };
    for specs in before {
        plan.towards(&specs, Wait::Rollout)?;
    }
    plan.towards(&kept, Wait::Rollout)?;
    if leaving {
        plan.towards(goal, Wait::Connections)?;
    }
    Ok(plan.steps)
}

struct Plan<'a> {
    current: &'a ForwardingTable,
    steps: Vec<Step>,
}

impl Plan<'_> {
    fn last(&self) -> &ForwardingTable {
        self.steps.last().map_or(self.current, |step| &step.table)
    }

    /// Adds the steps to a configuration: one if that is safe, else as many as it takes.
    fn towards(&mut self, goal: &[TableSpec], wait: Wait) -> Result<(), PlanError> {
        let mut wait = if self.steps.is_empty() && wait == Wait::Rollout { Wait::None } else { wait };
        loop {
            let changes = steps::changes(self.last(), goal);
            if changes.is_empty() && !steps::differs(self.last(), goal) {
                return Ok(());
            }
            if let Some(step) = self.safe(goal, wait, false)? {
                self.steps.push(step);
                return Ok(());
            }
            let settle = wait == Wait::Connections;
            let part = self.largest_part(&changes, goal, wait, settle)?;
            match part {
                Some(step) => self.steps.push(step),
                None if settle => return Err(PlanError::Stuck(changes.join(", "))),
                None => {}
            }
            wait = Wait::Connections;
        }
    }

    /// The step to a configuration, if it puts no row at risk.
    fn safe(&self, specs: &[TableSpec], wait: Wait, settle: bool) -> Result<Option<Step>, PlanError> {
        let before = self.last();
        let history = if settle { History::Settled(before) } else { History::Parent(before) };
        let table = generate(specs, history)?.table;
        let diff = Diff::new(before, &table);
        let serves = |spec: &TableSpec| spec.backends.iter().any(Backend::accepts);
        if diff.at_risk() > 0 || !specs.iter().all(serves) {
            return Ok(None);
        }
        let changes = steps::changes(before, specs);
        let watch = if wait == Wait::Connections { watch::left_behind(before, &table) } else { Vec::new() };
        Ok(Some(Step { changes, wait, watch, settle, specs: specs.to_vec(), table, diff }))
    }

    /// The first so many changes that are safe together.
    fn largest_part(
        &self,
        changes: &[String],
        goal: &[TableSpec],
        wait: Wait,
        settle: bool,
    ) -> Result<Option<Step>, PlanError> {
        let (mut low, mut best) = (1, None);
        let mut high = changes.len();
        while low <= high {
            let middle = low.midpoint(high);
            let part = steps::first_changes(self.last(), goal, middle);
            match self.safe(&part, wait, settle)? {
                Some(step) => (low, best) = (middle + 1, Some(step)),
                None => high = middle - 1,
            }
        }
        Ok(best)
    }
}

/// Is a backend there only to be drained?
fn leaver(backend: &Backend) -> Backend {
    let state = if backend.state == State::Inactive { State::Inactive } else { State::Draining };
    Backend { state, ..backend.clone() }
}
