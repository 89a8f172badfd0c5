//! What happens to a table if one backend, or one zone, fails next.
//!
//! The rows of what fails go to the next backend in their ranking that may own rows. In a row of two hops whose
//! second is such a backend, that *is* the next one; every other row is ranked. Where shares are bounded, nobody takes
//! over more than the bound allows.

use super::roles::{eligible, fair_shares, owning_weights};
use super::rows::Mapping;
use crate::generate::ranking::{Ranking, RowRanker};
use common::backend::State;
use common::hrw::most_keys;
use common::table::Table;
use rayon::prelude::*;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// What fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    /// A backend, by its number.
    Backend(u32),
    /// All backends of a zone.
    Zone(String),
}

/// A failure and the survivor whom it hits worst.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// What fails.
    pub failed: Failed,
    /// Rows that it owns.
    pub rows: u32,
    /// Number of the survivor, the rows it would own, and these over its fair share while all serve. None where nobody
    /// survives.
    pub worst: Option<(u32, u32, f64)>,
    /// Backends that take over rows.
    pub heirs: u32,
}

/// Every backend that owns rows, then every zone of several, in order.
pub(super) fn failures(table: &Table, mapping: &Mapping) -> Vec<Failure> {
    let groups = Groups::new(table);
    let heirs = heirs(table, &groups);
    let loads = Loads::new(table);
    let number = |position: u16| {
        mapping.numbers.get(1).and_then(|numbers| numbers.get(usize::from(position))).copied().unwrap_or(0)
    };
    let none = BTreeMap::new();
    let failure = |failed, rows, gone: &dyn Fn(u16) -> bool, gains: Option<&BTreeMap<u16, u32>>| {
        let gains = gains.unwrap_or(&none);
        let worst = loads.worst(gone, gains).map(|worst| (number(worst.at), worst.rows, worst.load));
        Failure { failed, rows, worst, heirs: count(gains) }
    };
    let backends = (0u16..).zip(&loads.owned).filter(|(_, rows)| **rows > 0).map(|(at, rows)| {
        failure(Failed::Backend(number(at)), *rows, &|other| other == at, heirs.of_backend.get(&at))
    });
    let zones = groups.zones.iter().enumerate().map(|(zone, name)| {
        let gone = |at: u16| groups.of(at) == Some(zone);
        let rows = (0u16..).zip(&loads.owned).filter(|(at, _)| gone(*at)).map(|(_, rows)| rows).sum();
        failure(Failed::Zone((*name).to_owned()), rows, &gone, heirs.of_zone.get(&zone))
    });
    backends.chain(zones).collect()
}

/// What every backend owns, and may own.
struct Loads<'t> {
    table: &'t Table,
    owned: Vec<u32>,
    /// The weight with which it owns rows; 0 where it may own none.
    weights: Vec<f64>,
    /// Rows that are fair while all serve.
    fair: Vec<f64>,
    /// Positions of those that may own rows, the fullest first.
    fullest: Vec<u16>,
}

/// A backend's rows, and these over its fair share while all serve.
#[derive(Clone, Copy)]
struct Load {
    at: u16,
    rows: u32,
    load: f64,
}

impl Load {
    /// Of equal loads that of the later backend counts.
    fn order(&self, other: &Self) -> Ordering {
        self.load.total_cmp(&other.load).then(self.at.cmp(&other.at))
    }
}

impl<'t> Loads<'t> {
    fn new(table: &'t Table) -> Self {
        let owned = table.rows_owned();
        let fair: Vec<f64> = fair_shares(table).iter().map(|share| share * f64::from(table.rows())).collect();
        let mut loads = Self { table, owned, weights: owning_weights(table), fair, fullest: Vec::new() };
        let mut all: Vec<Load> =
            (0u16..).zip(&loads.owned).filter_map(|(at, _)| loads.load(at, 0, u32::MAX)).collect();
        all.sort_by(|a, b| b.order(a));
        loads.fullest = all.into_iter().map(|one| one.at).collect();
        loads
    }

    /// Of one backend with so many rows more, within its bound.
    fn load(&self, at: u16, more: u32, bound: u32) -> Option<Load> {
        let fair = self.fair.get(usize::from(at)).copied().filter(|fair| *fair > 0.0)?;
        let rows = bound.min(self.owned.get(usize::from(at))? + more);
        Some(Load { at, rows, load: f64::from(rows) / fair })
    }

    /// The survivor with the highest load, once heirs have what they gain.
    fn worst(&self, gone: &dyn Fn(u16) -> bool, gains: &BTreeMap<u16, u32>) -> Option<Load> {
        let bounds = Bounds::new(self, gone);
        let load = |at, more| self.load(at, more, bounds.of(self, at));
        let heirs = gains.iter().filter(|(at, _)| !gone(**at)).filter_map(|(at, more)| load(*at, *more));
        let mut worst = heirs.max_by(Load::order);
        // The others keep what they own, and so the fullest comes first.
        for at in self.fullest.iter().copied().filter(|at| !gone(*at) && !gains.contains_key(at)) {
            let (before, after) = (self.load(at, 0, u32::MAX), load(at, 0));
            if before.zip(worst).is_some_and(|(before, worst)| before.order(&worst).is_lt()) {
                break;
            }
            worst = worst.into_iter().chain(after).max_by(Load::order);
        }
        worst
    }
}

/// Most rows of survivors, where shares are bounded.
struct Bounds {
    /// The weight of all survivors, and how many times its share of rows each may own.
    left: Option<(f64, f64)>,
}

impl Bounds {
    fn new(loads: &Loads<'_>, gone: &dyn Fn(u16) -> bool) -> Self {
        let left =
            || (0u16..).zip(&loads.weights).filter(|(at, _)| !gone(*at)).map(|(_, weight)| weight).sum();
        Self { left: loads.table.max_share.map(|share| (left(), share)) }
    }

    fn of(&self, loads: &Loads<'_>, at: u16) -> u32 {
        let Some(((left, max_share), weight)) = self.left.zip(loads.weights.get(usize::from(at))) else {
            return u32::MAX;
        };
        let most = most_keys(loads.table.hops.len(), weight / left, max_share);
        u32::try_from(most).unwrap_or(u32::MAX)
    }
}

fn count(gains: &BTreeMap<u16, u32>) -> u32 {
    u32::try_from(gains.len()).unwrap_or(u32::MAX)
}

/// The zones of a table, where it has several.
struct Groups<'a> {
    zones: Vec<&'a str>,
    zone_of: Vec<Option<usize>>,
    /// Are there backends of both address families?
    two_families: bool,
}

impl<'a> Groups<'a> {
    fn new(table: &'a Table) -> Self {
        let mut zones: Vec<&str> = table.backends.iter().filter_map(|one| one.zone.as_deref()).collect();
        zones.sort_unstable();
        zones.dedup();
        let unzoned = table.backends.iter().any(|one| one.zone.is_none());
        if zones.len() + usize::from(unzoned) < 2 {
            zones.clear();
        }
        let zone_of =
            table.backends.iter().map(|one| zones.binary_search(&one.zone.as_deref()?).ok()).collect();
        let two_families =
            table.backends.windows(2).any(|pair| matches!(pair, [one, other] if !one.carries(other)));
        Self { zones, zone_of, two_families }
    }

    fn of(&self, position: u16) -> Option<usize> {
        self.zone_of.get(usize::from(position)).copied().flatten()
    }
}

/// Rows by who loses them and who takes them over.
#[derive(Default)]
struct Heirs {
    of_backend: BTreeMap<u16, BTreeMap<u16, u32>>,
    of_zone: BTreeMap<usize, BTreeMap<u16, u32>>,
}

impl Heirs {
    fn add(&mut self, other: Self) {
        for (from, heirs) in other.of_backend {
            let mine = self.of_backend.entry(from).or_default();
            heirs.into_iter().for_each(|(heir, rows)| *mine.entry(heir).or_default() += rows);
        }
        for (from, heirs) in other.of_zone {
            let mine = self.of_zone.entry(from).or_default();
            heirs.into_iter().for_each(|(heir, rows)| *mine.entry(heir).or_default() += rows);
        }
    }
}

/// Rows that a thread takes at a time.
const ROWS_A_TASK: u32 = 4_096;

/// First backends of a ranking that one pass finds for many rows at once.
const FIRST: usize = 4;
/// From one row in so many on it is faster to rank all of them at once.
const FEW: usize = 8;

fn heirs(table: &Table, groups: &Groups<'_>) -> Heirs {
    let owns = eligible(&table.backends);
    let ranking = Ranking::new(table.ranking, table.seed, &table.backends);
    let tasks: Vec<Heirs> = (0..table.rows().div_ceil(ROWS_A_TASK))
        .into_par_iter()
        .map(|task| {
            let first = task * ROWS_A_TASK;
            let rows = first..table.rows().min(first + ROWS_A_TASK);
            heirs_of(rows, table, groups, &owns, &mut ranking.ranker())
        })
        .collect();
    let mut all = Heirs::default();
    tasks.into_iter().for_each(|some| all.add(some));
    all
}

fn heirs_of(
    rows: std::ops::Range<u32>,
    table: &Table,
    groups: &Groups<'_>,
    owns: &[bool],
    ranker: &mut RowRanker<'_>,
) -> Heirs {
    let mut heirs = Heirs::default();
    let may_own = |at: &u16| owns.get(usize::from(*at)).copied().unwrap_or(false);
    let known: Vec<Known> = rows.clone().map(|row| Known::of(row, table, owns, groups)).collect();
    let ranked = known.iter().filter(|known| known.is_ranked()).count();
    if ranked * FEW > known.len() {
        ranker.prepare(rows.start, known.len(), FIRST);
    }
    for (row, known) in rows.zip(known) {
        let Some(primary) = known.primary else { continue };
        let zone = groups.of(primary);
        let Known { mut next, mut other, .. } = known;
        if known.is_ranked() {
            let mut ranked = ranker.rank(row).filter(may_own).filter(|at| *at != primary).peekable();
            next = next.or_else(|| ranked.peek().copied());
            if zone.is_some() {
                other = other.or_else(|| ranked.find(|at| groups.of(*at) != zone));
            }
        }
        if let Some(next) = next {
            *heirs.of_backend.entry(primary).or_default().entry(next).or_default() += 1;
        }
        if let Some((zone, other)) = zone.zip(other) {
            *heirs.of_zone.entry(zone).or_default().entry(other).or_default() += 1;
        }
    }
    heirs
}

/// What a hop list says by itself of its row's next owners.
#[derive(Clone, Copy, Default)]
struct Known {
    primary: Option<u16>,
    next: Option<u16>,
    /// Of another zone than the primary.
    other: Option<u16>,
    zoned: bool,
}

impl Known {
    fn of(row: u32, table: &Table, owns: &[bool], groups: &Groups<'_>) -> Self {
        let list = table.hops.get(row);
        let Some(&primary) = list.first() else { return Self::default() };
        let (next, other) = known_heirs(table, row, list, owns, groups);
        Self { primary: Some(primary), next, other, zoned: groups.of(primary).is_some() }
    }

    /// Must the row be ranked for the rest?
    fn is_ranked(&self) -> bool {
        self.primary.is_some() && (self.next.is_none() || (self.zoned && self.other.is_none()))
    }
}

/// The next owner, and the next of another zone, where the hop list says so by itself.
fn known_heirs(
    table: &Table,
    row: u32,
    list: &[u16],
    owns: &[bool],
    groups: &Groups<'_>,
) -> (Option<u16>, Option<u16>) {
    let [primary, second] = *list else { return (None, None) };
    // A list prefers hops that its packets carry to the next owner.
    let plain = !groups.two_families
        && table.backend(primary).is_some_and(|one| one.state == State::Active)
        && owns.get(usize::from(second)).copied().unwrap_or(false)
        && !table.lineage.get(row).contains(&second);
    if !plain {
        return (None, None);
    }
    let elsewhere = groups.of(second) != groups.of(primary);
    let next = (!(table.spread_zones && elsewhere)).then_some(second);
    (next, elsewhere.then_some(second))
}
