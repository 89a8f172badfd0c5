//! Connections played across a sequence of tables: which of them break, and which need a second chance.
//!
//! The model: each table serves for a while, then directors take the next, at once or one after the other ([`Fleet`]).
//! A connection belongs to the primary of its row at its start. It lives on as long as its backend stands in the hop
//! list of its row, in the table of whichever director forwards it; where that is a later place, its packets take that
//! many hops more.
//!
//! While directors differ, a connection may be opened by one that has the new table and then be moved to one that has
//! the old one still. Those that break so are counted apart: the old table cannot remember what came after it.
//!
//! The same connections are played by GLB Director's rule, whose rows have two hops and no memory.

mod fleet;
mod flows;
mod picture;
mod rule;

pub use fleet::Fleet;
pub use flows::{Flow, FlowError, Lives, Synthetic, from_capture, from_csv};
pub use picture::picture;

use crate::progress::Progress;
use common::table::Table;
use fleet::Moment;
use rule::Rows;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;

/// Whose hop lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// Those of the tables.
    Tables,
    /// Two hops by GLB Director's rule, from the same backends.
    Glb,
}

/// What one change of tables did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Connections open at that moment.
    pub open: u32,
    /// Connections opened before that whose backend is no hop of their row any more.
    pub broken: u32,
    /// Of the others, those that reach their backend by a later hop.
    pub later_hop: u32,
    /// Connections that met the new table, and then the old one again at another director.
    pub went_back: u32,
    /// Connections opened by a director that had the new table, and broken by one that had the old one.
    pub ahead: u32,
}

/// The outcome of a simulation under one rule.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The rule.
    pub rule: Rule,
    /// Connections that were opened.
    pub opened: u32,
    /// Connections to rows without a backend.
    pub refused: u32,
    /// One entry a change of tables.
    pub changes: Vec<Change>,
    /// Open connections of each backend at [`SAMPLES`] moments, evenly spread.
    pub load: BTreeMap<String, Vec<u32>>,
}

/// Moments at which load is counted.
pub const SAMPLES: usize = 120;

/// Plays `flows` across `tables`, each of which serves for `every` seconds.
pub fn play(tables: &[&Table], flows: &[Flow], every: f64, rule: Rule, fleet: Fleet) -> Outcome {
    counted(tables, flows, every, rule, fleet, &Progress::default())
}

/// The same, while `progress` counts connections.
pub fn counted(
    tables: &[&Table],
    flows: &[Flow],
    every: f64,
    rule: Rule,
    fleet: Fleet,
    progress: &Progress,
) -> Outcome {
    let rows: Vec<Rows<'_>> = tables.iter().map(|table| Rows::new(table, rule)).collect();
    let moments = fleet.moments(tables.len(), every);
    let mut outcome = Outcome {
        rule,
        opened: 0,
        refused: 0,
        changes: vec![Change::default(); tables.len().saturating_sub(1)],
        load: BTreeMap::new(),
    };
    progress.expect(flows.len() as u64);
    for flow in flows {
        one(&rows, &moments, flow, every, &mut outcome);
        progress.advance(1);
    }
    outcome
}

fn one(rows: &[Rows<'_>], moments: &[Moment], flow: &Flow, every: f64, outcome: &mut Outcome) {
    let connection = fleet::connection(&flow.key);
    let later = moments.partition_point(|moment| moment.time <= flow.start);
    let (before, later) = moments.split_at(later);
    let first = before.last().map_or(0, |moment| moment.table(connection));
    let Some(owner) = rows.get(first).and_then(|rows| rows.hops(&flow.key).next()) else {
        outcome.refused += 1;
        return;
    };
    outcome.opened += 1;
    let mut life = Life { first, last: first, newest: first, back: first, end: flow.start + flow.life };
    for moment in later {
        if moment.time >= life.end {
            break;
        }
        if let Some(change) = moment.begins.and_then(|at| outcome.changes.get_mut(at - 1)) {
            change.open += 1;
        }
        let now = moment.table(connection);
        if now != life.last {
            let place = rows.get(now).and_then(|rows| rows.hops(&flow.key).position(|hop| hop == owner));
            life.meets(now, place, moment.time, &mut outcome.changes);
        }
    }
    sample(rows.len() as f64 * every, flow.start..life.end, owner, &mut outcome.load);
}

/// What a connection has met so far: positions of tables.
struct Life {
    /// Where it was opened.
    first: usize,
    last: usize,
    newest: usize,
    /// The newest that it has gone back from.
    back: usize,
    /// Seconds from the start of the simulation.
    end: f64,
}

impl Life {
    /// A director forwards it by another table than the last one did; `place` is that of its backend in the hop list.
    fn meets(&mut self, table: usize, place: Option<usize>, time: f64, changes: &mut [Change]) {
        // The change that lies between the two tables.
        let Some(change) = changes.get_mut(table.max(self.last).saturating_sub(1)) else { return };
        if table < self.last && self.back < self.last {
            change.went_back += 1;
            self.back = self.last;
        }
        match place {
            None if table < self.first => change.ahead += 1,
            None => change.broken += 1,
            Some(later) => change.later_hop += u32::from(later > 0 && table > self.newest),
        }
        if place.is_none() {
            self.end = time;
        }
        self.last = table;
        self.newest = self.newest.max(table);
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times are not negative, and few"
)]
fn sample(whole: f64, open: Range<f64>, owner: &str, load: &mut BTreeMap<String, Vec<u32>>) {
    let step = whole / SAMPLES as f64;
    let load = load.entry(owner.to_owned()).or_insert_with(|| vec![0; SAMPLES]);
    let sample = |time: f64| ((time / step).ceil() as usize).min(SAMPLES);
    if let Some(open) = load.get_mut(sample(open.start)..sample(open.end)) {
        open.iter_mut().for_each(|count| *count += 1);
    }
}
