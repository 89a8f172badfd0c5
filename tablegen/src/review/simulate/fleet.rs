//! Directors that load a new table one after the other, and a router that moves connections between them.

use common::flow::{FlowKey, HashFields};
use tryst_hrw::hash::{hash_bytes, mix};

/// The directors and their router. The default is one director. Directors that load a table at the same moment behave
/// like one, because they keep no state for each flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fleet {
    /// Number of directors, at least 1.
    pub directors: u32,
    /// Seconds from the first director that loads a new table to the last. Less than the time that a table serves.
    pub skew: f64,
    /// Period in seconds after which the router assigns every connection to a director again.
    pub reroute: Option<f64>,
}

impl Default for Fleet {
    fn default() -> Self {
        Self { directors: 1, skew: 0.0, reroute: None }
    }
}

/// The state of the fleet from one event to the next.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    /// Seconds from the start of the simulation.
    pub(super) time: f64,
    /// The change of tables that begins at this time, from 1.
    pub(super) begins: Option<usize>,
    /// The table of each director, as an index into the simulated tables.
    tables: Vec<usize>,
    /// How often the router has assigned connections again.
    reroutes: u64,
}

impl Moment {
    /// The table that forwards a connection, as an index into the simulated tables.
    pub(super) fn table(&self, connection: u64) -> usize {
        let director = mix(connection ^ mix(self.reroutes)) % self.tables.len() as u64;
        let director = usize::try_from(director).expect("invariant: less than the number of directors");
        self.tables[director]
    }
}

#[derive(Clone, Copy)]
enum Event {
    Load { director: u32, table: usize },
    Reroute,
}

impl Fleet {
    /// All moments at which something changes while `tables` tables serve for `every` seconds each, in order of time.
    pub(super) fn moments(&self, tables: usize, every: f64) -> Vec<Moment> {
        let tables_held = vec![0; self.directors.max(1) as usize];
        let mut now = Moment { time: 0.0, begins: None, tables: tables_held, reroutes: 0 };
        let mut moments = vec![now.clone()];
        for (time, event) in self.events(tables, every) {
            now = Moment { time, begins: None, ..now };
            match event {
                Event::Reroute => now.reroutes += 1,
                Event::Load { director, table } => {
                    now.begins = (director == 0).then_some(table);
                    now.tables[director as usize] = table;
                }
            }
            // Events at the same time make one moment: no packet is forwarded between them.
            match moments.last_mut().filter(|last| last.time == time) {
                Some(last) => *last = Moment { begins: last.begins.or(now.begins), ..now.clone() },
                None => moments.push(now.clone()),
            }
        }
        moments
    }

    fn events(&self, tables: usize, every: f64) -> Vec<(f64, Event)> {
        let last_director = f64::from(self.directors.saturating_sub(1).max(1));
        let loads = (1..tables).flat_map(|table| (0..self.directors).map(move |director| (table, director)));
        let mut events: Vec<(f64, Event)> = loads
            .map(|(table, director)| {
                let time = table as f64 * every + self.skew * f64::from(director) / last_director;
                (time, Event::Load { director, table })
            })
            .collect();
        if let Some(period) = self.reroute {
            let end = tables as f64 * every;
            let times = (1u32..).map(|count| f64::from(count) * period).take_while(|time| *time < end);
            events.extend(times.map(|time| (time, Event::Reroute)));
        }
        events.sort_by(|a, b| a.0.total_cmp(&b.0));
        events
    }
}

/// The number by which the router assigns a connection to a director.
pub(super) fn router_hash(flow: &FlowKey) -> u64 {
    let all = HashFields::DEFAULT.with(HashFields::DST_ADDR).with(HashFields::DST_PORT);
    hash_bytes(flow.input(all).as_slice())
}
