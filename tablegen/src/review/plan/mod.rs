//! A short sequence of safe tables from the table in service to a configuration.
//!
//! ```text
//! 0  announce                       new backends and those that gain weight become hops without new connections
//! 1  add, drain, undrain, weigh     as few steps as are safe: each keeps every backend that may hold connections
//! 2  fill                           new backends by percent, if requested
//! 3  remove                         drained backends, after the lifetime of the longest connection
//! ```
//!
//! A step may be taken if its review against the step before is `safe`, or `safe if` under conditions, which the plan
//! prints as what to wait for. If all changes together are not safe, the plan takes the largest safe number of them, in
//! order of id, then the others. If none is safe, the next step waits until older connections have ended, and is built
//! with `--settle`.
//! With announcement, a step must also give rows only to backends that the table before lists there (module `announce`).
//! A plan executes nothing.

mod announce;
mod steps;
mod watch;

pub use watch::Watch;

use crate::config::{Config, TableSpec};
use crate::generate::{History, generate};
use crate::review::condition::Condition;
use crate::review::diff::Diff;
use crate::review::verdict::{Judgement, ReviewVerdict, Stated};
use common::backend::{Backend, State};
use common::table::{ForwardingTable, TableError};
use serde::Serialize;

/// The condition for a step to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// No condition.
    None,
    /// Every director has the table of the step before.
    Rollout,
    /// Connections older than the table of the step before have ended: the lifetime of the longest connection has passed,
    /// or no packet needs a second chance any more.
    Connections,
}

/// One step of a plan: a table and the condition to roll it out.
#[derive(Clone, Debug)]
pub struct PlanStep {
    /// Its changes, in words.
    pub changes: Vec<String>,
    /// The condition for the step to begin.
    pub wait: Wait,
    /// Backends whose connections must have ended first. Empty unless `wait` is [`Wait::Connections`].
    pub watch: Vec<Watch>,
    /// Whether the table is built with `--settle`.
    pub settle: bool,
    /// Configuration of the table.
    pub specs: Vec<TableSpec>,
    /// The table.
    pub table: ForwardingTable,
    /// Differences from the table of the step before.
    pub diff: Diff,
    /// The verdict on them: safe, or safe under conditions.
    pub judgement: Judgement,
}

/// Reason for which no plan exists.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A table cannot be built.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A single change is not safe.
    #[error(
        "no safe step: {what} is not safe even as the only change, after older connections have ended: {why}"
    )]
    Stuck {
        /// The changes that are left.
        what: String,
        /// Reasons of the review.
        why: String,
    },
    /// A single change gives rows to a backend that is not a hop of them in the table before.
    #[error(
        "no announced step: {0} gives rows to a backend that is not yet a hop of them; plan without --announce, or \
         first set draining backends inactive or remove them, once their connections have ended"
    )]
    Unannounced(String),
}

/// How the plan adds new backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Joining {
    /// Together with all other changes.
    AtOnce,
    /// One after the other, each as a hop before it owns any row. All other changes of owner are announced too, so that a
    /// connection which a director opens with the next table survives a move to a director with the table before.
    Announced,
    /// In steps of these percentages of their weight, in ascending order.
    Filled(Vec<u8>),
}

/// Computes the steps from `current` to `target`.
pub fn plan(
    current: &ForwardingTable,
    target: &Config,
    joining: &Joining,
) -> Result<Vec<PlanStep>, PlanError> {
    plan_within(current, target, joining, &Stated::default())
}

/// Computes the steps under limits, capacities and conditions that are accepted for each step.
pub fn plan_within(
    current: &ForwardingTable,
    target: &Config,
    joining: &Joining,
    stated: &Stated,
) -> Result<Vec<PlanStep>, PlanError> {
    let goal = &target.tables;
    let announced = *joining == Joining::Announced;
    let stated = Stated { capacities: target.capacities.clone(), ..stated.clone() };
    let mut plan = Plan { current, steps: Vec::new(), announced, stated };
    let (kept, leaving) = steps::with_leavers(current, goal);
    let newcomers = steps::newcomers(current, goal);
    if plan.announced {
        for (specs, wait) in announce::route(current, goal, &kept) {
            plan.towards(&specs, wait, Extent::Whole)?;
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
        plan.towards(&specs, Wait::Rollout, Extent::AsFarAsSafe)?;
    }
    plan.towards(&kept, Wait::Rollout, Extent::Whole)?;
    if leaving {
        plan.towards(goal, Wait::Connections, Extent::Whole)?;
    }
    Ok(plan.steps)
}

/// How much of a configuration the steps must reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Whole,
    /// What is not safe yet is left to later steps.
    AsFarAsSafe,
}

struct Plan<'a> {
    current: &'a ForwardingTable,
    steps: Vec<PlanStep>,
    /// Whether each new owner of a row must be a hop of it in the table before.
    announced: bool,
    stated: Stated,
}

impl Plan<'_> {
    fn last(&self) -> &ForwardingTable {
        self.steps.last().map_or(self.current, |step| &step.table)
    }

    /// Adds the steps to a configuration: one step if that is safe, otherwise several.
    fn towards(&mut self, goal: &[TableSpec], wait: Wait, extent: Extent) -> Result<(), PlanError> {
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
            if let Some(step) = self.largest_part(&changes, goal, wait, false)? {
                self.steps.push(step);
                (settled, wait) = (false, Wait::Rollout);
                continue;
            }
            if wait != Wait::Connections {
                wait = Wait::Connections;
                continue;
            }
            if self.announced && !settled {
                self.settle(goal)?;
                (settled, wait) = (true, Wait::Rollout);
                continue;
            }
            let step = match self.safe(goal, wait, true)? {
                None => self.largest_part(&changes, goal, wait, true)?,
                step => step,
            };
            let Some(step) = step else {
                if extent == Extent::AsFarAsSafe {
                    return Ok(());
                }
                return Err(self.refused(&changes, goal)?);
            };
            self.steps.push(step);
            (settled, wait) = (false, Wait::Rollout);
        }
    }

    /// Why the remaining changes are refused: by the review of the first of them.
    fn refused(&self, changes: &[String], goal: &[TableSpec]) -> Result<PlanError, PlanError> {
        let first =
            if changes.is_empty() { goal.to_vec() } else { steps::first_changes(self.last(), goal, 1) };
        let (table, _, judgement) = self.reviewed(&first, true)?;
        let what = match changes {
            [] => "the change of the table's own values".to_owned(),
            changes => changes.join(", "),
        };
        if self.announced
            && judgement.verdict != ReviewVerdict::NotSafe
            && !announce::is_announced(self.last(), &table)
        {
            return Ok(PlanError::Unannounced(what));
        }
        let of = |reason: &crate::review::verdict::Unsafe| reason.text.clone();
        let mut why: Vec<String> = judgement.reasons.iter().map(of).collect();
        if why.is_empty() {
            why.push("no backend accepts new connections".to_owned());
        }
        Ok(PlanError::Stuck { what, why: why.join("; ") })
    }

    /// Adds a step that changes no backend and drops owners whose connections have ended. Each row then has its next
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

    /// The step to a configuration; None if it is not safe.
    fn safe(&self, specs: &[TableSpec], wait: Wait, settle: bool) -> Result<Option<PlanStep>, PlanError> {
        let before = self.last();
        let (table, diff, judgement) = self.reviewed(specs, settle)?;
        let serves = |spec: &TableSpec| spec.backends.iter().any(Backend::accepts);
        let reaches = !self.announced || announce::is_announced(before, &table);
        if judgement.verdict == ReviewVerdict::NotSafe || !specs.iter().all(serves) || !reaches {
            return Ok(None);
        }
        let waits = judgement.open().any(|asked| is_about_older_connections(&asked.condition));
        let wait = if waits { Wait::Connections } else { wait };
        let changes = steps::changes(before, specs);
        let watch = if wait == Wait::Connections { watch::left_behind(before, &table) } else { Vec::new() };
        Ok(Some(PlanStep { changes, wait, watch, settle, specs: specs.to_vec(), table, diff, judgement }))
    }

    fn reviewed(
        &self,
        specs: &[TableSpec],
        settle: bool,
    ) -> Result<(ForwardingTable, Diff, Judgement), PlanError> {
        let before = self.last();
        let history = if settle { History::Settled(before) } else { History::Parent(before) };
        let table = generate(specs, history)?.table;
        let diff = Diff::stated(before, &table, &self.stated);
        let judgement = Judgement::new(&diff, &self.stated);
        Ok((table, diff, judgement))
    }

    /// The step with the largest number of changes, in order, that are safe together. None if the first one is not.
    fn largest_part(
        &self,
        changes: &[String],
        goal: &[TableSpec],
        wait: Wait,
        settle: bool,
    ) -> Result<Option<PlanStep>, PlanError> {
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

/// Is it true when the connections that are older than the table before have ended?
fn is_about_older_connections(condition: &Condition) -> bool {
    matches!(condition, Condition::Idle(_) | Condition::Gone(_) | Condition::Settled)
}

/// The backend in the step before its removal: draining, unless it is inactive.
fn leaver(backend: &Backend) -> Backend {
    let state = if backend.state == State::Inactive { State::Inactive } else { State::Draining };
    Backend { state, ..backend.clone() }
}
