//! Methods that assign keys to nodes, compared on the same keys: how many keys each moves when the nodes change.
//!
//! | method | state | keys moved by a join |
//! |---|---|---|
//! | mod-N | the list | almost all |
//! | ring with v tokens per node | N × v tokens | those of the new node's arcs |
//! | jump hash | the number of nodes | the minimum, but only the last node can leave |
//! | Maglev | M slots | those of the new node, and a few more |
//! | rendezvous | the list | those of the new node only |
//! | skeleton | a tree over the list | those of the new node, and about as many again for each level below the first |

pub mod methods;
pub mod page;
pub mod toy;

use methods::{Member, Method};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;
use tryst_hrw::hash::hash_bytes;

use crate::format::columns::{Align, Columns};
use crate::format::number::{grouped, percent};
use crate::progress::Progress;

/// The nodes before and after a change.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Nodes before the change.
    pub before: Vec<Member>,
    /// Nodes after the change.
    pub after: Vec<Member>,
    /// Hashes of the keys.
    pub keys: Vec<u64>,
    /// Rows of the operator's table, used as a table size of Maglev. A power of two.
    pub rows: u32,
}

/// The result of one method.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MethodOutcome {
    /// Name of the method.
    pub method: String,
    /// Number of keys of each node after the change, in the order of the nodes.
    pub keys: Vec<(String, u32)>,
    /// The most loaded node, and its keys divided by its fair share by weight.
    pub busiest: (String, f64),
    /// Keys that changed owner.
    pub moved: u32,
    /// Keys that changed owner although the old owner lost no weight and the new owner gained none.
    pub unnecessary: u32,
    /// Number of nodes that own keys of a node that left.
    pub heirs: usize,
    /// The node that owns most of these keys, and their number.
    pub worst_heir: Option<(String, u32)>,
    /// Nanoseconds per look-up, measured in this run.
    pub lookup_ns: f64,
    /// Octets of memory that a look-up needs.
    pub state_octets: usize,
}

/// Hashes of the keys `key-0`, `key-1`, ….
pub fn numbered_keys(count: u32) -> Vec<u64> {
    (0..count).map(|number| hash_bytes(format!("key-{number}").as_bytes())).collect()
}

impl Scenario {
    /// Runs all methods.
    pub fn run(&self, progress: &Progress) -> Vec<MethodOutcome> {
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
    pub fn outcome(&self, method: &Method) -> MethodOutcome {
        let before = method.place(&self.before);
        let after = method.change(&before, &self.before, &self.after);
        let look_up = || {
            let started = Instant::now();
            let owners: Vec<usize> = self.keys.iter().map(|key| after.owner(*key)).collect();
            (started.elapsed(), owners)
        };
        // The fastest of three runs: other processes delay the others.
        let (time, owners) =
            [look_up(), look_up(), look_up()].into_iter().min().expect("invariant: three runs");
        let lookup_ns = time.as_nanos() as f64 / self.keys.len().max(1) as f64;
        let moves =
            self.keys.iter().zip(&owners).map(|(key, new)| {
                (self.before[before.owner(*key)].id.as_str(), self.after[*new].id.as_str())
            });
        let count = self.count(moves);
        let mut keys = vec![0u32; self.after.len()];
        owners.iter().for_each(|owner| keys[*owner] += 1);
        MethodOutcome {
            method: method.name(),
            busiest: busiest(&self.after, &keys, self.keys.len()),
            keys: self.after.iter().map(|member| member.id.clone()).zip(keys).collect(),
            moved: count.moved,
            unnecessary: count.unnecessary,
            heirs: count.heirs.len(),
            worst_heir: count
                .heirs
                .into_iter()
                .max_by_key(|(_, keys)| *keys)
                .map(|(id, keys)| (id.to_owned(), keys)),
            lookup_ns,
            state_octets: after.octets(),
        }
    }

    fn count<'s>(&'s self, moves: impl Iterator<Item = (&'s str, &'s str)>) -> KeyMoves<'s> {
        let [before, after] = [&self.before, &self.after].map(|members| weights(members));
        // The weight of a node that is not there is 0.
        let weight = |weights: &BTreeMap<&str, f64>, id: &str| weights.get(id).copied().unwrap_or(0.0);
        let mut count = KeyMoves::default();
        for (old, new) in moves.filter(|(old, new)| old != new) {
            count.moved += 1;
            let lost = weight(&after, old) < weight(&before, old);
            let gained = weight(&after, new) > weight(&before, new);
            count.unnecessary += u32::from(!lost && !gained);
            if !after.contains_key(old) {
                *count.heirs.entry(new).or_default() += 1;
            }
        }
        count
    }
}

fn weights(members: &[Member]) -> BTreeMap<&str, f64> {
    members.iter().map(|member| (member.id.as_str(), member.weight)).collect()
}

#[derive(Default)]
struct KeyMoves<'a> {
    moved: u32,
    unnecessary: u32,
    /// Keys of nodes that left, by new owner.
    heirs: BTreeMap<&'a str, u32>,
}

/// The node with the most keys relative to its fair share by weight, and that ratio. `all` is the number of keys.
pub fn busiest(members: &[Member], keys: &[u32], all: usize) -> (String, f64) {
    let sum: f64 = members.iter().map(|member| member.weight).sum();
    let load = |(member, keys): (&Member, &u32)| {
        (member.id.clone(), f64::from(*keys) / (all as f64 * member.weight / sum))
    };
    let worse = |a: (String, f64), b: (String, f64)| if b.1 > a.1 { b } else { a };
    members.iter().zip(keys).map(load).reduce(worse).expect("invariant: a comparison has nodes")
}

/// Headings of the cells of [`MethodOutcome::cells`].
pub const HEADINGS: [&str; 10] =
    ["", "least", "most", "busiest × fair", "moved", "unnecessary", "heirs", "ns", "octets", "main heir"];

impl MethodOutcome {
    /// One line of a report.
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
            grouped(self.heirs as u64),
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
pub struct Shown<'a>(pub &'a [MethodOutcome]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let right = [Align::Right; 8];
        let mut columns = Columns::new(0, &[&[Align::Left], &right[..]].concat());
        columns.push(HEADINGS);
        self.0.iter().for_each(|outcome| columns.push(outcome.cells()));
        write!(f, "{columns}")
    }
}
