//! Ways to give keys to nodes, side by side on the same keys: what each moves when the nodes change.
//!
//! | method | state | keys moved by a join |
//! |---|---|---|
//! | mod-N | the list | nearly all |
//! | ring with v tokens a node | N × v tokens | the newcomer's arcs |
//! | jump hash | the number of nodes | the least, but only the last node may leave |
//! | Maglev | M slots | the newcomer's, and a few more |
//! | rendezvous | the list | the newcomer's alone |
//! | skeleton | a tree over the list | the newcomer's, and about as many more for each level below the first |

pub mod methods;
pub mod page;
pub mod toy;

use common::hash::hash_bytes;
use methods::{Member, Method};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use crate::progress::Progress;
use crate::report::columns::{Align, Columns};
use crate::report::number::{grouped, percent};

/// The nodes before and after a change; the same if nothing changes.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Before.
    pub before: Vec<Member>,
    /// After.
    pub after: Vec<Member>,
    /// Hashes of the keys.
    pub keys: Vec<u64>,
    /// Rows of the operator's table: the second size of Maglev's.
    pub rows: u32,
}

/// How one method fares.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Its name.
    pub method: String,
    /// Keys of each node after the change, in the order of the nodes.
    pub keys: Vec<(String, u32)>,
    /// The fullest node, and its keys over its fair share by weight.
    pub busiest: (String, f64),
    /// Keys with another owner than before.
    pub moved: u32,
    /// Of these, those whose old owner stayed and whose new one gained nothing by the change.
    pub unnecessary: u32,
    /// Nodes that got keys of those that left.
    pub heirs: u32,
    /// The one that got most of them, and how many.
    pub worst_heir: Option<(String, u32)>,
    /// Nanoseconds of a look-up, measured here and now.
    pub lookup_ns: f64,
    /// Octets that a look-up needs.
    pub state_octets: usize,
}

/// The keys of a comparison by number: `key-0`, `key-1`, ….
pub fn numbered_keys(count: u32) -> Vec<u64> {
    (0..count).map(|number| hash_bytes(format!("key-{number}").as_bytes())).collect()
}

impl Scenario {
    /// Runs all methods.
    pub fn run(&self, progress: &Progress) -> Vec<Outcome> {
        let all = methods::all(self.rows);
        progress.expect(all.len() as u64);
        let outcome = |method: Method| {
            let outcome = self.outcome(&method);
            progress.advance(1);
            outcome
        };
        all.into_iter().map(outcome).collect()
    }

    /// Runs one method.
    pub fn outcome(&self, method: &Method) -> Outcome {
        let before = method.place(&self.before);
        let after = method.change(&before, &self.before, &self.after);
        let look_up = || {
            let started = Instant::now();
            let owners: Vec<usize> = self.keys.iter().map(|key| after.owner(*key)).collect();
            (started.elapsed(), owners)
        };
        // The fastest of three: the others met something else that ran.
        let (time, owners) = [look_up(), look_up(), look_up()].into_iter().min().unwrap_or_default();
        let lookup_ns = time.as_nanos() as f64 / self.keys.len().max(1) as f64;
        let name = |all: &[Member], at: usize| all.get(at).map(|one| one.id.clone()).unwrap_or_default();
        let moves = self
            .keys
            .iter()
            .zip(&owners)
            .map(|(key, new)| (name(&self.before, before.owner(*key)), name(&self.after, *new)));
        let count = self.count(moves);
        let mut keys = vec![0u32; self.after.len()];
        owners.iter().filter_map(|at| keys.get_mut(*at).map(|count| *count += 1)).for_each(drop);
        Outcome {
            method: method.name(),
            busiest: busiest(&self.after, &keys, self.keys.len()),
            keys: self.after.iter().map(|one| one.id.clone()).zip(keys).collect(),
            moved: count.moved,
            unnecessary: count.unnecessary,
            heirs: u32::try_from(count.heirs.len()).unwrap_or(u32::MAX),
            worst_heir: count.heirs.into_iter().max_by_key(|(_, keys)| *keys),
            lookup_ns,
            state_octets: after.octets(),
        }
    }

    fn count(&self, moves: impl Iterator<Item = (String, String)>) -> Moves {
        let weights = |all: &[Member]| -> BTreeMap<String, f64> {
            all.iter().map(|one| (one.id.clone(), one.weight)).collect()
        };
        let [before, after] = [&self.before, &self.after].map(|all| weights(all));
        let weight = |all: &BTreeMap<String, f64>, id: &str| all.get(id).copied().unwrap_or(0.0);
        let mut count = Moves::default();
        for (old, new) in moves.filter(|(old, new)| old != new) {
            count.moved += 1;
            let lost = weight(&after, &old) < weight(&before, &old);
            let gained = weight(&after, &new) > weight(&before, &new);
            count.unnecessary += u32::from(!lost && !gained);
            if !after.contains_key(&old) {
                *count.heirs.entry(new).or_default() += 1;
            }
        }
        count
    }
}

#[derive(Default)]
struct Moves {
    moved: u32,
    unnecessary: u32,
    heirs: BTreeMap<String, u32>,
}

/// The node with most keys over its fair share by weight.
pub fn busiest(members: &[Member], keys: &[u32], all: usize) -> (String, f64) {
    let sum: f64 = members.iter().map(|one| one.weight).sum();
    let load =
        |(one, keys): (&Member, &u32)| (one.id.clone(), f64::from(*keys) / (all as f64 * one.weight / sum));
    let worse = |a: (String, f64), b: (String, f64)| if b.1 > a.1 { b } else { a };
    members.iter().zip(keys).map(load).reduce(worse).unwrap_or_default()
}

/// What the cells of [`Outcome::cells`] say.
pub const HEADINGS: [&str; 10] =
    ["", "least", "most", "busiest × fair", "moved", "for no reason", "heirs", "ns", "octets", "worst heir"];

impl Outcome {
    /// One line of a report, by [`HEADINGS`].
    pub fn cells(&self) -> [String; 10] {
        let keys = || self.keys.iter().map(|(_, keys)| *keys);
        let all = keys().map(f64::from).sum();
        [
            self.method.clone(),
            keys().min().map_or_else(String::new, grouped),
            keys().max().map_or_else(String::new, grouped),
            format!("{:.3}", self.busiest.1),
            percent(self.moved.into(), all),
            percent(self.unnecessary.into(), all),
            grouped(self.heirs),
            format!("{:.1}", self.lookup_ns),
            grouped(self.state_octets as u64),
            self.worst_heir
                .as_ref()
                .map_or_else(String::new, |(id, keys)| format!("{id}: {}", grouped(*keys))),
        ]
    }
}

/// Displays outcomes as a table.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(pub &'a [Outcome]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let right = [Align::Right; 8];
        let mut columns = Columns::new(0, &[&[Align::Left], &right[..]].concat());
        columns.push(HEADINGS);
        self.0.iter().for_each(|one| columns.push(one.cells()));
        write!(f, "{columns}")
    }
}
