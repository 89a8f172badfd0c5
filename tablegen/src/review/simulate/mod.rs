//! Simulation of connections across a sequence of tables: which of them break, and which need a second chance.
//!
//! The model: each table serves for a fixed time, then the directors load the next one, at once or one after the
//! other ([`Fleet`]). A connection belongs to the primary of its row at its start. It survives as long as its backend
//! is in the hop list of its row in the table of the director that forwards it. If the backend is hop `n`, its packets
//! take `n` more hops.
//!
//! While directors have different tables, a director with the new table can open a connection that the router then
//! moves to a director with the old table. Connections that break in this way are counted apart, because the old
//! table cannot hold owners that came after it.
//!
//! The same connections are simulated with GLB Director's rule too, whose rows have two hops and no lineage.

mod connections;
mod fleet;
mod hop_lists;

pub use connections::{Connection, ConnectionError, Lifetimes, Synthetic, from_capture, from_csv};
pub use fleet::Fleet;

use crate::progress::Progress;
use common::table::Table;
use fleet::Moment;
use hop_lists::HopLists;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;

/// The rule that gives the hop lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// The hop lists of the tables.
    Tables,
    /// Two hops by GLB Director's rule, from the same backends.
    Glb,
}

/// Connections counted at one change of tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TableChange {
    /// Connections that are open when the change begins.
    pub open: u32,
    /// Connections opened before the change whose backend is no longer a hop of their row.
    pub broken: u32,
    /// Connections that survive and reach their backend by hop 1 or later.
    pub later_hop: u32,
    /// Connections that used the new table and then the old one again, at another director.
    pub went_back: u32,
    /// Connections that a director with the new table opened and a director with the old one broke.
    pub ahead: u32,
}

/// The result of a simulation with one rule.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SimulationOutcome {
    /// The rule.
    pub rule: Rule,
    /// Number of connections opened.
    pub opened: u32,
    /// Number of connections to rows without a backend.
    pub refused: u32,
    /// One entry for each change of tables.
    pub changes: Vec<TableChange>,
    /// Open connections of each backend at [`SAMPLES`] times, evenly spread.
    pub load: BTreeMap<String, Vec<u32>>,
}

/// Number of times at which the load is sampled.
pub const SAMPLES: usize = 120;

/// Simulates `connections` across `tables`, each of which serves for `every` seconds. `progress` counts connections.
pub fn play(
    tables: &[&Table],
    connections: &[Connection],
    every: f64,
    rule: Rule,
    fleet: Fleet,
    progress: &Progress,
) -> SimulationOutcome {
    let tables: Vec<HopLists<'_>> = tables.iter().map(|table| HopLists::new(table, rule)).collect();
    let moments = fleet.moments(tables.len(), every);
    let mut outcome = SimulationOutcome {
        rule,
        opened: 0,
        refused: 0,
        changes: vec![TableChange::default(); tables.len().saturating_sub(1)],
        load: BTreeMap::new(),
    };
    progress.expect(connections.len() as u64);
    for connection in connections {
        play_one(&tables, &moments, connection, every, &mut outcome);
        progress.advance(1);
    }
    outcome
}

fn play_one(
    tables: &[HopLists<'_>],
    moments: &[Moment],
    connection: &Connection,
    every: f64,
    outcome: &mut SimulationOutcome,
) {
    let Connection { start, life, key } = connection;
    let hash = fleet::router_hash(key);
    let (past, future) = moments.split_at(moments.partition_point(|moment| moment.time <= *start));
    let first = past.last().map_or(0, |moment| moment.table(hash));
    let Some(owner) = tables[first].hops(key).next() else {
        outcome.refused += 1;
        return;
    };
    outcome.opened += 1;
    let mut path = Path { first, last: first, newest: first, newest_left: first, end: start + life };
    for moment in future {
        if moment.time >= path.end {
            break;
        }
        if let Some(change) = moment.begins {
            outcome.changes[change - 1].open += 1;
        }
        let table = moment.table(hash);
        if table != path.last {
            let hop = tables[table].hops(key).position(|hop| hop == owner);
            path.next(table, hop, moment.time, &mut outcome.changes);
        }
    }
    sample(tables.len() as f64 * every, *start..path.end, owner, &mut outcome.load);
}

/// The tables that forwarded a connection so far, as indices into the simulated tables.
struct Path {
    /// The table that opened it.
    first: usize,
    /// The table that forwarded its last packet.
    last: usize,
    /// The newest of all its tables.
    newest: usize,
    /// The newest table that it has left for an older one.
    newest_left: usize,
    /// Time of its end, in seconds from the start of the simulation.
    end: f64,
}

impl Path {
    /// Another table than the last one forwards the connection. `hop` is the index of its backend in the hop list.
    fn next(&mut self, table: usize, hop: Option<usize>, time: f64, changes: &mut [TableChange]) {
        // The last change between the two tables.
        let change = &mut changes[table.max(self.last) - 1];
        if table < self.last && self.newest_left < self.last {
            change.went_back += 1;
            self.newest_left = self.last;
        }
        match hop {
            None if table < self.first => change.ahead += 1,
            None => change.broken += 1,
            Some(hop) => change.later_hop += u32::from(hop > 0 && table > self.newest),
        }
        if hop.is_none() {
            self.end = time;
        }
        self.last = table;
        self.newest = self.newest.max(table);
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times are not negative, and samples are few"
)]
fn sample(duration: f64, open: Range<f64>, owner: &str, load: &mut BTreeMap<String, Vec<u32>>) {
    let step = duration / SAMPLES as f64;
    let load = load.entry(owner.to_owned()).or_insert_with(|| vec![0; SAMPLES]);
    let sample = |time: f64| ((time / step).ceil() as usize).min(SAMPLES);
    if let Some(open) = load.get_mut(sample(open.start)..sample(open.end)) {
        open.iter_mut().for_each(|count| *count += 1);
    }
}
