//! Directors that take a new table one after the other, and a router that moves connections among them.

use common::flow::{FlowKey, HashFields};
use common::hash::{hash_bytes, mix};

/// The directors and their router. By default one director, or as many that take a table at the same moment: without
/// state of their own they are one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fleet {
    /// Number of directors, at least one.
    pub directors: u32,
    /// Seconds from the first director that takes a new table to the last; less than a table serves.
    pub skew: f64,
    /// The router chooses anew which director gets a connection, each time that so many seconds have passed.
    pub reroute: Option<f64>,
}

impl Default for Fleet {
    fn default() -> Self {
        Self { directors: 1, skew: 0.0, reroute: None }
    }
}

/// What holds from a moment on, until the next.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    /// Seconds from the start.
    pub(super) time: f64,
    /// The change that begins now, from 1.
    pub(super) begins: Option<usize>,
    /// The table of each director.
    tables: Vec<usize>,
    /// How often the router has chosen anew.
    choice: u64,
}

impl Moment {
    /// The table by which a connection is forwarded.
    pub(super) fn table(&self, connection: u64) -> usize {
        let director = mix(connection ^ mix(self.choice)) % self.tables.len().max(1) as u64;
        usize::try_from(director).ok().and_then(|at| self.tables.get(at)).copied().unwrap_or(0)
    }
}

#[derive(Clone, Copy)]
enum Event {
    Table(u32, usize),
    Reroute,
}

impl Fleet {
    /// All moments at which anything changes while `tables` tables serve for `every` seconds each.
    pub(super) fn moments(&self, tables: usize, every: f64) -> Vec<Moment> {
        let late = f64::from(self.directors.saturating_sub(1).max(1));
        let mut events: Vec<(f64, Event)> = (1..tables)
            .flat_map(|table| (0..self.directors).map(move |director| (table, director)))
            .map(|(table, director)| {
                let time = table as f64 * every + self.skew * f64::from(director) / late;
                (time, Event::Table(director, table))
            })
            .collect();
        if let Some(pause) = self.reroute {
            let end = tables as f64 * every;
            let times = (1u32..).map(|count| f64::from(count) * pause).take_while(|time| *time < end);
            events.extend(times.map(|time| (time, Event::Reroute)));
        }
        events.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut now = Moment { time: 0.0, begins: None, tables: vec![0; self.directors as usize], choice: 0 };
        let mut moments = vec![now.clone()];
        for (time, event) in events {
            now = Moment { time, begins: None, ..now };
            match event {
                Event::Reroute => now.choice += 1,
                Event::Table(director, table) => {
                    now.begins = (director == 0).then_some(table);
                    now.tables.iter_mut().skip(director as usize).take(1).for_each(|held| *held = table);
                }
            }
            // What happens at once is one moment: nobody meets what is between.
            match moments.last_mut().filter(|last| last.time == time) {
                Some(last) => *last = Moment { begins: last.begins.or(now.begins), ..now.clone() },
                None => moments.push(now.clone()),
            }
        }
        moments
    }
}

/// What the router's choice depends on.
pub(super) fn connection(flow: &FlowKey) -> u64 {
    let all = HashFields::DEFAULT.with(HashFields::DST_ADDR).with(HashFields::DST_PORT);
    hash_bytes(flow.input(all).as_slice())
}
