//! The verdict on a change: safe, safe under conditions, or not safe; and the limits that it must keep.
//!
//! ```text
//! facts (diff) + what the operator states ─► conditions, reasons ─► verdict ─► exit code
//! ```
//!
//! All reports, the exit code, `plan` and the edits read one [`Judgement`].

use super::condition::Condition;
use super::diff::{Diff, Failed, RetiredBind, TableDiff};
use super::holders::{Breaks, Cause};
pub use crate::config::Amount;
use crate::format::natural;
use crate::format::number::{counted, either, grouped, percent};
use common::table::Built;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The most that a change may do to each table.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Rows that change owner. Above it, the condition `hop2` applies.
    pub max_moved: Amount,
    /// Rows at risk.
    pub max_at_risk: Amount,
    /// Rows that change owner unnecessarily; no limit by default.
    pub max_unnecessary: Option<Amount>,
    /// Rows of a backend, divided by the greater of its rows today and its fair share among all backends that are not
    /// inactive.
    pub max_load: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_moved: Amount::Percent(50.0),
            max_at_risk: Amount::Rows(0),
            max_unnecessary: None,
            max_load: 1.5,
        }
    }
}

/// Most rows that a backend may own, by table and id.
pub type Capacities = BTreeMap<(String, String), Amount>;

/// What the operator states about a change.
#[derive(Clone, Debug, Default)]
pub struct Stated {
    /// Conditions that are confirmed.
    pub accepted: Vec<Condition>,
    /// Why a change that is not safe is made all the same.
    pub forced: Option<String>,
    /// The limits.
    pub limits: Limits,
    /// Capacities of backends, from the configuration.
    pub capacities: Capacities,
}

impl Stated {
    /// Is it confirmed that this backend holds no connections?
    pub fn is_gone(&self, id: &str) -> bool {
        self.accepted.iter().any(|condition| condition.without_connections() == Some(id))
    }

    fn confirms(&self, asked: &Condition) -> bool {
        self.accepted.iter().any(|condition| condition.confirms(asked))
    }
}

/// The verdict of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReviewVerdict {
    /// No connection can break, and every limit is kept.
    Safe,
    /// The same, if the conditions are true.
    SafeIf,
    /// Connections break, directors refuse the table, or a limit is exceeded.
    NotSafe,
}

impl ReviewVerdict {
    /// The verdict in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::SafeIf => "safe_if",
            Self::NotSafe => "not_safe",
        }
    }

    /// The exit code.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Safe => 0,
            Self::SafeIf => 3,
            Self::NotSafe => 1,
        }
    }
}

impl fmt::Display for ReviewVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Safe => "safe",
            Self::SafeIf => "safe if",
            Self::NotSafe => "not safe",
        })
    }
}

/// A condition of a change, and what happens unless it is true.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// The condition.
    pub condition: Condition,
    /// Name of the table; empty if it is about the whole file.
    pub table: String,
    /// Its number, as a sentence without a full stop.
    pub text: String,
    /// Rows that break unless it is true; 0 if it is not about rows.
    pub rows: u32,
    /// Share of the table's rows or of the bind's flows, 0 to 1.
    pub share: f64,
    /// The operator confirms it.
    pub is_accepted: bool,
}

/// A reason for which a change is not safe.
#[derive(Clone, Debug, PartialEq)]
pub struct Unsafe {
    /// Name of the table; empty if it is about the whole file.
    pub table: String,
    /// The limit that it exceeds, as the option of the command line; empty if there is none.
    pub limit: &'static str,
    /// What was found and what is allowed, as a sentence without a full stop.
    pub text: String,
}

/// The verdict on a change, and everything that it follows from.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The verdict without `--force`.
    pub verdict: ReviewVerdict,
    /// The conditions, in order of table; those that are accepted too.
    pub conditions: Vec<Asked>,
    /// Why the change is not safe; empty if it is.
    pub reasons: Vec<Unsafe>,
    /// Why it is made all the same.
    pub forced: Option<String>,
    /// Accepted conditions that the change does not need.
    pub unneeded: Vec<Condition>,
}

impl Judgement {
    /// Judges a change. `diff` was computed with the same statements.
    pub fn new(diff: &Diff, stated: &Stated) -> Self {
        let mut conditions = Vec::new();
        let mut reasons = Vec::new();
        if diff.new.generation < diff.old.generation {
            let [old, new] = [diff.old.generation, diff.new.generation].map(grouped);
            let text = format!("directors refuse this: older generation ({new} after {old})");
            reasons.push(Unsafe { table: String::new(), limit: "", text });
        }
        conditions.extend(unknown_history(diff));
        for table in &diff.tables {
            let judge = Judge { table, stated };
            conditions.extend(judge.conditions());
            reasons.extend(judge.reasons());
        }
        conditions.extend(diff.retired.iter().map(retired));
        Self::of(conditions, reasons, stated)
    }

    /// Adds the condition that backends are announced before they own rows: table, id, rows.
    pub fn with_unannounced(self, unannounced: &[(String, String, u32)], stated: &Stated) -> Self {
        let asked = |(table, id, rows): &(String, String, u32)| Asked {
            condition: Condition::Announced(id.clone()),
            table: table.clone(),
            text: format!("{id} owns {} in which the old table does not list it", counted(*rows, "row")),
            rows: *rows,
            share: 0.0,
            is_accepted: false,
        };
        let mut conditions = self.conditions;
        conditions.extend(unannounced.iter().map(asked));
        Self::of(conditions, self.reasons, stated)
    }

    fn of(mut conditions: Vec<Asked>, reasons: Vec<Unsafe>, stated: &Stated) -> Self {
        conditions.iter_mut().for_each(|asked| asked.is_accepted = stated.confirms(&asked.condition));
        let verdict = match () {
            () if !reasons.is_empty() => ReviewVerdict::NotSafe,
            () if conditions.iter().any(|asked| !asked.is_accepted) => ReviewVerdict::SafeIf,
            () => ReviewVerdict::Safe,
        };
        let is_needed =
            |accepted: &&Condition| conditions.iter().any(|asked| accepted.confirms(&asked.condition));
        let unneeded = stated.accepted.iter().filter(|accepted| !is_needed(accepted)).cloned().collect();
        Self { verdict, reasons, forced: stated.forced.clone(), unneeded, conditions }
    }

    /// Conditions that are not accepted.
    pub fn open(&self) -> impl Iterator<Item = &Asked> {
        self.conditions.iter().filter(|asked| !asked.is_accepted)
    }

    /// The verdict that counts: what is forced counts as if it were not unsafe.
    pub fn outcome(&self) -> ReviewVerdict {
        match self.verdict {
            ReviewVerdict::NotSafe if self.forced.is_some() => {
                if self.open().next().is_some() {
                    ReviewVerdict::SafeIf
                } else {
                    ReviewVerdict::Safe
                }
            }
            verdict => verdict,
        }
    }
}

/// A file that does not say how it was built: older connections may have owners that it does not record.
fn unknown_history(diff: &Diff) -> Option<Asked> {
    let unknown = [&diff.old, &diff.new].into_iter().find(|version| version.built == Built::Unknown)?;
    let has_older = |table: &TableDiff| table.rows.breaks.keys().any(|(_, cause)| *cause == Cause::Older);
    if diff.old.digest == diff.new.digest || diff.tables.iter().any(has_older) {
        return None;
    }
    let name = unknown.digest.short();
    Some(Asked {
        condition: Condition::Settled,
        table: String::new(),
        text: format!("table {name} does not record how it was built, so it may not list all former owners"),
        rows: 0,
        share: 0.0,
        is_accepted: false,
    })
}

fn retired(bind: &RetiredBind) -> Asked {
    let RetiredBind { bind, table, to, share } = bind;
    let whole = *share >= 1.0;
    let part = if whole { "its flows".to_owned() } else { format!("{} of its flows", percent(*share, 1.0)) };
    let text = match to {
        None if whole => format!("{bind} is no longer bound: its connections end"),
        None => format!("{bind} no longer matches all of its packets: {part} end"),
        Some(to) => format!("{bind} leads to table {to}: {part} do not reach their backends there"),
    };
    Asked {
        condition: Condition::Retired(bind.to_string()),
        table: table.clone(),
        text,
        rows: 0,
        share: *share,
        is_accepted: false,
    }
}

/// Judges one table.
struct Judge<'a> {
    table: &'a TableDiff,
    stated: &'a Stated,
}

impl Judge<'_> {
    fn conditions(&self) -> Vec<Asked> {
        let mut all: Vec<Asked> = Vec::new();
        let mut settled = Breaks::default();
        let mut ids: Vec<(&(u32, Cause), &Breaks)> = self.table.rows.breaks.iter().collect();
        ids.sort_by(|((a, _), _), ((b, _), _)| natural(self.table.id(*a), self.table.id(*b)));
        for ((number, cause), breaks) in ids {
            if *cause == Cause::Older {
                settled.rows = settled.rows.saturating_add(breaks.rows);
                settled.expected += breaks.expected;
            }
            all.extend(self.of_backend(*number, *cause, *breaks));
        }
        if settled.rows > 0 {
            let text = format!(
                "connections older than the table in service, in {} by former owner, are no longer reached",
                counted(settled.rows, "row")
            );
            all.push(self.asked(Condition::Settled, text, settled.rows, settled.expected));
        }
        all.extend(self.second_hop());
        all.extend(self.one_failure());
        all
    }

    fn of_backend(&self, number: u32, cause: Cause, breaks: Breaks) -> Option<Asked> {
        let id = self.table.id(number);
        let rows = self.rows(breaks.rows);
        let (condition, text) = match cause {
            Cause::Left if self.is_down(number) => {
                (Condition::Gone(id.to_owned()), format!("{id} leaves and may hold connections of {rows}"))
            }
            Cause::Left => {
                (Condition::Idle(id.to_owned()), format!("{id} leaves and may hold connections of {rows}"))
            }
            Cause::KnownGone => (
                Condition::Idle(id.to_owned()),
                format!("{id} is stated to hold no connections; {rows} may have some"),
            ),
            Cause::Renumbered => (
                Condition::SameHost(id.to_owned()),
                format!("{id} has another address; {rows} break unless it is the same host"),
            ),
            _ => return None,
        };
        Some(self.asked(condition, text, breaks.rows, breaks.expected))
    }

    fn is_down(&self, number: u32) -> bool {
        let before = self.table.backends.get(number as usize).and_then(|one| one.condition[0].as_deref());
        before.is_some_and(|condition| condition.ends_with("down"))
    }

    fn rows(&self, rows: u32) -> String {
        let share = percent(rows.into(), self.table.rows.total.into());
        format!("{} ({share})", counted(rows, "row"))
    }

    fn asked(&self, condition: Condition, text: String, rows: u32, expected: f64) -> Asked {
        let share = expected / f64::from(self.table.rows.total.max(1));
        Asked { condition, table: self.table.name.clone(), text, rows, share, is_accepted: false }
    }

    /// Flows that find another row do not have the row's former owner as second hop: they are at risk instead.
    fn second_hop(&self) -> Option<Asked> {
        let rows = &self.table.rows;
        let over = !self.stated.limits.max_moved.allows(rows.moved, rows.total);
        let asked = (over || self.table.resized) && rows.moved > 0 && !rows.rehashed;
        if !asked || self.table.present != [true, true] {
            return None;
        }
        let share = rounded_up(rows.moved, rows.total);
        let why = if over {
            format!("the limit is {}", self.stated.limits.max_moved)
        } else {
            "the number of rows changes".to_owned()
        };
        let text = format!(
            "{} {} owner, so open connections there depend on a later hop ({why})",
            self.rows(rows.moved),
            either(rows.moved, "changes", "change")
        );
        Some(self.asked(Condition::Hop2(share), text, rows.moved, rows.moved.into()))
    }

    fn reasons(&self) -> Vec<Unsafe> {
        let mut all = Vec::new();
        all.extend(self.fail_open());
        all.extend(self.at_risk());
        all.extend(self.unnecessary());
        all.extend(self.overloaded());
        all.extend(self.over_capacity());
        all
    }

    fn reason(&self, limit: &'static str, text: String) -> Unsafe {
        Unsafe { table: self.table.name.clone(), limit, text }
    }

    fn fail_open(&self) -> Option<Unsafe> {
        (self.table.fail_open == [false, true]).then(|| self.reason("", fail_open(self.table)))
    }

    fn at_risk(&self) -> Vec<Unsafe> {
        let rows = &self.table.rows;
        let most = self.stated.limits.max_at_risk;
        if most.allows(rows.at_risk, rows.total) {
            return Vec::new();
        }
        let share = percent(rows.expected, rows.total.into());
        let text = format!(
            "{} {} at risk: {share} of the connections break; the limit is {most}",
            counted(rows.at_risk, "row"),
            either(rows.at_risk, "is", "are"),
        );
        let mut reasons = vec![self.reason("--max-at-risk", text)];
        let causes: BTreeSet<String> = lost_rows(self.table).into_iter().collect();
        reasons.extend(causes.into_iter().map(|text| self.reason("", text)));
        reasons
    }

    fn unnecessary(&self) -> Option<Unsafe> {
        let rows = &self.table.rows;
        let most = self.stated.limits.max_unnecessary?;
        let text = format!(
            "{} {} owner unnecessarily; the limit is {most}",
            self.rows(rows.unnecessary),
            either(rows.unnecessary, "changes", "change")
        );
        (!most.allows(rows.unnecessary, rows.total)).then(|| self.reason("--max-unnecessary", text))
    }

    /// Shares vary by chance: a backend may exceed its limit by four standard deviations of a fair draw.
    fn overloaded(&self) -> Vec<Unsafe> {
        const SIGMAS: f64 = 4.0;
        let total = f64::from(self.table.rows.total);
        let most = self.stated.limits.max_load;
        let over = |one: &&crate::review::diff::BackendDiff| {
            let limit = most * f64::from(one.rows[0]).max(one.fair_of_all);
            let chance = SIGMAS * (limit * (1.0 - limit / total).max(0.0)).sqrt();
            one.rows[1] > one.rows[0] && f64::from(one.rows[1]) > limit + chance
        };
        let text = |one: &crate::review::diff::BackendDiff| {
            let today = f64::from(one.rows[0]).max(one.fair_of_all);
            format!(
                "{} owns {} after the change, {:.2} × the {} that it owns today or that are its fair share; the limit \
                 is {most} ×",
                one.id,
                counted(one.rows[1], "row"),
                f64::from(one.rows[1]) / today,
                format_args!("{today:.0} rows"),
            )
        };
        let mut over: Vec<_> = self.table.backends.iter().filter(over).collect();
        over.sort_by(|a, b| natural(&a.id, &b.id));
        over.into_iter().map(|one| self.reason("--max-load", text(one))).collect()
    }

    fn capacity(&self, id: &str) -> Option<Amount> {
        self.stated.capacities.get(&(self.table.name.clone(), id.to_owned())).copied()
    }

    fn over_capacity(&self) -> Vec<Unsafe> {
        if self.stated.capacities.is_empty() {
            return Vec::new();
        }
        let over = |one: &crate::review::diff::BackendDiff| {
            let most = self.capacity(&one.id)?;
            let rows = one.rows[1];
            let text = format!("{} owns {}; its capacity is {most}", one.id, self.rows(rows));
            (!most.allows(rows, self.table.rows.total)).then(|| self.reason("capacity", text))
        };
        self.table.backends.iter().filter_map(over).collect()
    }

    /// The worst single failure that would exceed a capacity.
    fn one_failure(&self) -> Option<Asked> {
        if self.stated.capacities.is_empty() {
            return None;
        }
        let exceeding = |failed: u32, heir: u32, gain: u32| {
            let survivor = self.table.backends.get(heir as usize)?;
            let most = self.capacity(&survivor.id)?;
            let rows = survivor.rows[1].saturating_add(gain);
            (heir != failed && !most.allows(rows, self.table.rows.total))
                .then_some((rows, failed, heir, most))
        };
        let of_failure = |failure: &super::diff::Failure| {
            let Failed::Backend(failed) = failure.failed else { return None };
            failure
                .gains
                .iter()
                .filter_map(|(heir, gain)| exceeding(failed, *heir, *gain))
                .max_by_key(|one| one.0)
        };
        let (rows, failed, heir, most) =
            self.table.failures.iter().filter_map(of_failure).max_by_key(|one| one.0)?;
        let [failed, heir] = [failed, heir].map(|number| self.table.id(number));
        let text = format!("if {failed} fails next, {heir} owns {}; its capacity is {most}", self.rows(rows));
        Some(self.asked(Condition::OneFailure, text, rows, rows.into()))
    }
}

/// What fail-open does to a table.
pub(crate) fn fail_open(table: &TableDiff) -> String {
    let owns = table.backends.iter().filter(|one| one.rows[1] > 0);
    let owners: Vec<&str> = owns.filter_map(|one| one.condition[1].as_deref()).collect();
    let servers = match () {
        () if owners.is_empty() => return "no backend is left: new connections are refused".to_owned(),
        () if owners.iter().all(|condition| condition.starts_with("draining")) => "draining servers",
        () => "servers that are down",
    };
    format!("no backend accepts new connections: fail-open is in force, new connections go to {servers}")
}

/// One sentence for each backend and cause of rows at risk, most rows first.
pub(crate) fn lost_rows(table: &TableDiff) -> Vec<String> {
    let mut risks: Vec<_> = table.rows.breaks.iter().filter(|((_, cause), _)| cause.is_risk()).collect();
    risks.sort_by(|((a, a_cause), a_rows), ((b, b_cause), b_rows)| {
        let by_name = || natural(table.id(*a), table.id(*b));
        b_rows.rows.cmp(&a_rows.rows).then_with(by_name).then(a_cause.cmp(b_cause))
    });
    risks.into_iter().map(|((number, cause), rows)| sentence(table.id(*number), *cause, *rows)).collect()
}

fn sentence(id: &str, cause: Cause, breaks: Breaks) -> String {
    let rows = counted(breaks.rows, "row");
    match cause {
        Cause::Cut => format!("{id} leaves {rows} while it accepts connections: drain it first"),
        Cause::Rehashed => format!(
            "{id} may hold connections of {rows} whose flows use other rows now; {} of them do not reach it",
            percent(breaks.expected, breaks.rows.into())
        ),
        Cause::Taken => {
            format!("{id} may hold connections of {rows}, and its address belongs to another id now")
        }
        _ => format!("{id} may hold connections of {rows} and is no longer a hop there"),
    }
}

/// The share in percent, rounded up.
fn rounded_up(part: u32, whole: u32) -> u32 {
    let percent = (u64::from(part) * 100).div_ceil(u64::from(whole.max(1)));
    u32::try_from(percent).unwrap_or(100)
}
