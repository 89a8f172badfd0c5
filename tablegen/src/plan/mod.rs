//! The shortest sequence of safe tables from the one in service to a configuration.
//!
//! ```text
//! 0  announce                       newcomers and backends that gain weight, as hops that get no new connections
//! 1  join, drain, undrain, weigh    in as few steps as are safe: each keeps every backend that may hold connections
//! 2  fill                           newcomers by percent, if that is asked for
//! 3  remove                         what is drained, after the longest connection's time
//! ```
//!
//! A step is safe if `diff` finds no row at risk from the step before. Where all at once is not, as many changes as
//! are go first, in order of id; before the next a row's older connections must have ended (`build --settle`).
//! With announcement, a step must also give rows only to backends that the table before lists there ([`announce`]).
//! Nothing is executed.

mod announce;
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
    /// Even one change alone gives rows to a backend that the table before does not list there.
    #[error(
        "no announced step: {0} gives rows to a backend that is not yet a hop of them; plan without --announce, or \
         first set draining backends inactive or remove them, once their connections have ended"
    )]
    Unannounced(String),
}

/// How newcomers come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Joining {
    /// With all other changes.
    AtOnce,
    /// One after the other, each as a hop first, before it owns any row. All other changes of owner are announced as
    /// well: a connection that one director opens with the next table survives if the router moves it to a director
    /// that still has this one.
    Announced,
    /// By these percentages of their weight, in ascending order.
    Filled(Vec<u8>),
}

/// Steps from `current` to `target`.
pub fn plan(current: &ForwardingTable, target: &Config, joining: &Joining) -> Result<Vec<Step>, PlanError> {
    let goal = &target.tables;
    let mut plan = Plan { current, steps: Vec::new(), announced: *joining == Joining::Announced };
    let (kept, leaving) = steps::with_leavers(current, goal);
    let newcomers = steps::newcomers(current, goal);
    if plan.announced {
        for (specs, wait) in announce::route(current, goal, &kept) {
            plan.towards(&specs, wait)?;
        }
        return Ok(plan.steps);
    }
    let before: Vec<Vec<TableSpec>> = match joining {
        Joining::Filled(percents) if !newcomers.is_empty() => {
            percents.iter().map(|percent| steps::filled(&kept, &newcomers, *percent)).collect()
        }
        _ => Vec::new(),
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
    /// Must each new owner of a row be a hop of it before?
    announced: bool,
}

impl Plan<'_> {
    fn last(&self) -> &ForwardingTable {
        self.steps.last().map_or(self.current, |step| &step.table)
    }

    /// Adds the steps to a configuration: one if that is safe, else as many as it takes.
    fn towards(&mut self, goal: &[TableSpec], wait: Wait) -> Result<(), PlanError> {
        let mut wait = if self.steps.is_empty() && wait == Wait::Rollout { Wait::None } else { wait };
        let mut settled = false;
        loop {
            let changes = steps::changes(self.last(), goal);
            if changes.is_empty() && !steps::differs(self.last(), goal) {
                return Ok(());
            }
            if let Some(step) = self.safe(goal, wait, false)? {
                self.steps.push(step);
                return Ok(());
            }
            if self.announced && wait == Wait::Connections {
                self.settle(goal)?;
                (settled, wait) = (true, Wait::Rollout);
                continue;
            }
            let settle = wait == Wait::Connections;
            match self.largest_part(&changes, goal, wait, settle)? {
                Some(step) => self.steps.push(step),
                None if settle => return Err(PlanError::Stuck(changes.join(", "))),
                None if settled => return Err(PlanError::Unannounced(changes.join(", "))),
                None => {}
            }
            (settled, wait) = (false, Wait::Connections);
        }
    }

    /// Adds a step that changes no backend, but drops owners whose connections have ended: each row then has its next
    /// owner as second hop.
    fn settle(&mut self, goal: &[TableSpec]) -> Result<(), PlanError> {
        let specs = steps::first_changes(self.last(), goal, 0);
        if let Some(mut step) = self.safe(&specs, Wait::Connections, true)? {
            step.changes =
                vec!["no change of backends: former owners are dropped from the hop lists".to_owned()];
            self.steps.push(step);
        }
        Ok(())
    }

    /// The step to a configuration, if it puts no row at risk.
    fn safe(&self, specs: &[TableSpec], wait: Wait, settle: bool) -> Result<Option<Step>, PlanError> {
        let before = self.last();
        let history = if settle { History::Settled(before) } else { History::Parent(before) };
        let table = generate(specs, history)?.table;
        let diff = Diff::new(before, &table);
        let serves = |spec: &TableSpec| spec.backends.iter().any(Backend::accepts);
        let reaches = !self.announced || announce::is_announced(before, &table);
        if diff.at_risk() > 0 || !specs.iter().all(serves) || !reaches {
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
