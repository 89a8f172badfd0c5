//! Connections played across a sequence of tables: which of them break, and which need a second chance.
//!
//! The model: each table serves for a while, then all directors take the next. A connection belongs to the primary of
//! its row at its start. It lives on as long as its backend stands in the hop list of its row; where that is a later
//! place, its packets take that many hops more. A director keeps no state, so which director forwards a packet does
//! not matter as long as all have the same table; tables that differ between directors are not modelled.
//!
//! The same connections are played by GLB Director's rule, whose rows have two hops and no memory.

mod flows;
mod picture;
mod rule;

pub use flows::{Flow, FlowError, Lives, Synthetic, from_csv};
pub use picture::picture;

use common::table::Table;
use rule::Rows;
use serde::Serialize;
use std::collections::BTreeMap;

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
    /// Of these, those whose backend is no hop of their row any more.
    pub broken: u32,
    /// Of the others, those that reach their backend by a later hop.
    pub later_hop: u32,
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
pub fn play(tables: &[&Table], flows: &[Flow], every: f64, rule: Rule) -> Outcome {
    let rows: Vec<Rows<'_>> = tables.iter().map(|table| Rows::new(table, rule)).collect();
    let mut outcome = Outcome {
        rule,
        opened: 0,
        refused: 0,
        changes: vec![Change::default(); tables.len().saturating_sub(1)],
        load: BTreeMap::new(),
    };
    for flow in flows {
        one(&rows, flow, every, &mut outcome);
    }
    outcome
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times are not negative, and few"
)]
fn one(rows: &[Rows<'_>], flow: &Flow, every: f64, outcome: &mut Outcome) {
    let first = ((flow.start / every) as usize).min(rows.len().saturating_sub(1));
    let Some(owner) = rows.get(first).and_then(|rows| rows.hops(&flow.key).next()) else {
        outcome.refused += 1;
        return;
    };
    outcome.opened += 1;
    let mut end = flow.start + flow.life;
    for (at, next) in rows.iter().enumerate().skip(first + 1) {
        let moment = at as f64 * every;
        let Some(change) = outcome.changes.get_mut(at - 1).filter(|_| end > moment) else { break };
        change.open += 1;
        match next.hops(&flow.key).position(|hop| hop == owner) {
            Some(0) => {}
            Some(_) => change.later_hop += 1,
            None => {
                change.broken += 1;
                end = moment;
                break;
            }
        }
    }
    let step = rows.len() as f64 * every / SAMPLES as f64;
    let load = outcome.load.entry(owner.to_owned()).or_insert_with(|| vec![0; SAMPLES]);
    let sample = |time: f64| ((time / step).ceil() as usize).min(SAMPLES);
    if let Some(open) = load.get_mut(sample(flow.start)..sample(end)) {
        open.iter_mut().for_each(|count| *count += 1);
    }
}
