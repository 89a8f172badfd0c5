//! The effect of the next failure of one backend, or of one zone, on a table.
//!
//! The rows of the failed backends go to the next eligible backend in their ranking. In a row with two hops
//! whose second hop is eligible, that hop is the next backend; all other rows are ranked. With `max_share`,
//! no backend takes over more rows than its bound.

use super::roles::{eligible, fair_shares, owning_weights};
use super::rows::Mapping;
use crate::generate::ranking::{Ranking, RowRanker};
use common::backend::State;
use common::table::Table;
use rayon::prelude::*;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use tryst_hrw::most_keys;

/// The backends that fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    /// One backend, by its number.
    Backend(u32),
    /// All backends of a zone.
    Zone(String),
}

/// A failure and the most loaded survivor.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The backends that fail.
    pub failed: Failed,
    /// Rows that they own.
    pub rows: u32,
    /// The most loaded survivor: its number, its rows, and their ratio to its fair share while all serve.
    /// None if there is no survivor.
    pub worst: Option<(u32, u32, f64)>,
    /// Number of backends that take over rows.
    pub heirs: u32,
    /// Rows that each of them takes over, by number.
    pub gains: Vec<(u32, u32)>,
}

/// The failure of every backend that owns rows, then of every zone, in order. A table with one zone only has
/// no zone failures.
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
        let worst = loads.worst(gone, gains).map(|worst| (number(worst.index), worst.rows, worst.load));
        let gains: Vec<(u32, u32)> = gains.iter().map(|(heir, rows)| (number(*heir), *rows)).collect();
        Failure { failed, rows, worst, heirs: u32::try_from(gains.len()).unwrap_or(u32::MAX), gains }
    };
    let backends = (0u16..).zip(&loads.owned).filter(|(_, rows)| **rows > 0).map(|(index, rows)| {
        failure(Failed::Backend(number(index)), *rows, &|other| other == index, heirs.of_backend.get(&index))
    });
    let zones = groups.zones.iter().enumerate().map(|(zone, name)| {
        let gone = |index: u16| groups.of(index) == Some(zone);
        let rows = (0u16..).zip(&loads.owned).filter(|(index, _)| gone(*index)).map(|(_, rows)| rows).sum();
        failure(Failed::Zone((*name).to_owned()), rows, &gone, heirs.of_zone.get(&zone))
    });
    backends.chain(zones).collect()
}

/// The rows that every backend owns and may own.
struct Loads<'t> {
    table: &'t Table,
    owned: Vec<u32>,
    /// The weight with which it owns rows; 0 if it may own none.
    weights: Vec<f64>,
    /// Its fair share of rows while all serve.
    fair: Vec<f64>,
    /// Indices of the eligible backends, most loaded first.
    most_loaded: Vec<u16>,
}

/// Rows of a backend, and their ratio to its fair share while all serve.
#[derive(Clone, Copy)]
struct Load {
    index: u16,
    rows: u32,
    load: f64,
}

impl Load {
    /// If loads are equal, the backend with the greater index counts as more loaded.
    fn order(&self, other: &Self) -> Ordering {
        self.load.total_cmp(&other.load).then(self.index.cmp(&other.index))
    }
}

impl<'t> Loads<'t> {
    fn new(table: &'t Table) -> Self {
        let owned = table.rows_owned();
        let fair: Vec<f64> = fair_shares(table).iter().map(|share| share * f64::from(table.rows())).collect();
        let mut loads = Self { table, owned, weights: owning_weights(table), fair, most_loaded: Vec::new() };
        let mut all: Vec<Load> =
            (0u16..).zip(&loads.owned).filter_map(|(index, _)| loads.load(index, 0, u32::MAX)).collect();
        all.sort_by(|a, b| b.order(a));
        loads.most_loaded = all.into_iter().map(|load| load.index).collect();
        loads
    }

    /// The load of a backend with `more` rows in addition, within its bound.
    fn load(&self, index: u16, more: u32, bound: u32) -> Option<Load> {
        let fair = self.fair.get(usize::from(index)).copied().filter(|fair| *fair > 0.0)?;
        let rows = bound.min(self.owned.get(usize::from(index))? + more);
        Some(Load { index, rows, load: f64::from(rows) / fair })
    }

    /// The most loaded survivor after heirs have gained their rows.
    fn worst(&self, gone: &dyn Fn(u16) -> bool, gains: &BTreeMap<u16, u32>) -> Option<Load> {
        let bounds = Bounds::new(self, gone);
        let load = |index, more| self.load(index, more, bounds.of(self, index));
        let heirs =
            gains.iter().filter(|(index, _)| !gone(**index)).filter_map(|(index, more)| load(*index, *more));
        let mut worst = heirs.max_by(Load::order);
        // Survivors that gain nothing keep their rows, so only the first of them matters unless bounds change
        // its rows.
        for index in
            self.most_loaded.iter().copied().filter(|index| !gone(*index) && !gains.contains_key(index))
        {
            let (before, after) = (self.load(index, 0, u32::MAX), load(index, 0));
            if before.zip(worst).is_some_and(|(before, worst)| before.order(&worst).is_lt()) {
                break;
            }
            worst = worst.into_iter().chain(after).max_by(Load::order);
        }
        worst
    }
}

/// The most rows that each survivor may own with `max_share`.
struct Bounds {
    /// The weight of all survivors, and `max_share`. None without a bound.
    left: Option<(f64, f64)>,
}

impl Bounds {
    fn new(loads: &Loads<'_>, gone: &dyn Fn(u16) -> bool) -> Self {
        let left = || {
            (0u16..).zip(&loads.weights).filter(|(index, _)| !gone(*index)).map(|(_, weight)| weight).sum()
        };
        Self { left: loads.table.max_share.map(|share| (left(), share)) }
    }

    fn of(&self, loads: &Loads<'_>, index: u16) -> u32 {
        let Some(((left, max_share), weight)) = self.left.zip(loads.weights.get(usize::from(index))) else {
            return u32::MAX;
        };
        let most = most_keys(loads.table.hops.len(), weight / left, max_share);
        u32::try_from(most).unwrap_or(u32::MAX)
    }
}

/// The zones of a table, if it has several.
struct Groups<'a> {
    zones: Vec<&'a str>,
    zone_of: Vec<Option<usize>>,
    /// Are there backends of both address families?
    two_families: bool,
}

impl<'a> Groups<'a> {
    fn new(table: &'a Table) -> Self {
        let mut zones: Vec<&str> =
            table.backends.iter().filter_map(|backend| backend.zone.as_deref()).collect();
        zones.sort_unstable();
        zones.dedup();
        let unzoned = table.backends.iter().any(|backend| backend.zone.is_none());
        if zones.len() + usize::from(unzoned) < 2 {
            zones.clear();
        }
        let zone_of = table
            .backends
            .iter()
            .map(|backend| zones.binary_search(&backend.zone.as_deref()?).ok())
            .collect();
        let two_families = table.backends.windows(2).any(|pair| matches!(pair, [a, b] if !a.carries(b)));
        Self { zones, zone_of, two_families }
    }

    fn of(&self, position: u16) -> Option<usize> {
        self.zone_of.get(usize::from(position)).copied().flatten()
    }
}

/// Rows by failed backend or zone, and by heir.
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

/// Rows per task of a thread.
const ROWS_A_TASK: u32 = 4_096;

/// Backends of a ranking that one pass finds for many rows together.
const FIRST: usize = 4;
/// If more than one row in `FEW` must be ranked, it is faster to rank all of them together.
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
    let may_own = |index: &u16| owns.get(usize::from(*index)).copied().unwrap_or(false);
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
            let mut ranked = ranker.rank(row).filter(may_own).filter(|index| *index != primary).peekable();
            next = next.or_else(|| ranked.peek().copied());
            if zone.is_some() {
                other = other.or_else(|| ranked.find(|index| groups.of(*index) != zone));
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

/// The next owners of a row, as far as its hop list shows them.
#[derive(Clone, Copy, Default)]
struct Known {
    primary: Option<u16>,
    next: Option<u16>,
    /// The next owner in another zone than the primary's.
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

    /// Whether the row must be ranked to find the missing owners.
    fn is_ranked(&self) -> bool {
        self.primary.is_some() && (self.next.is_none() || (self.zoned && self.other.is_none()))
    }
}

/// The next owner, and the next owner in another zone, where the hop list shows them.
fn known_heirs(
    table: &Table,
    row: u32,
    list: &[u16],
    owns: &[bool],
    groups: &Groups<'_>,
) -> (Option<u16>, Option<u16>) {
    let [primary, second] = *list else { return (None, None) };
    // If a table mixes address families, a list prefers hops that packets carry to the next owner.
    let plain = !groups.two_families
        && table.backend(primary).is_some_and(|backend| backend.state == State::Active)
        && owns.get(usize::from(second)).copied().unwrap_or(false)
        && !table.lineage.get(row).contains(&second);
    if !plain {
        return (None, None);
    }
    let elsewhere = groups.of(second) != groups.of(primary);
    let next = (!(table.spread_zones && elsewhere)).then_some(second);
    (next, elsewhere.then_some(second))
}
