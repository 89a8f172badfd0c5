//! What happens to a table if one backend, or one zone, fails next.
//!
//! The rows of what fails go to the next backend in their ranking that may own rows. In a row of two hops whose
//! second is such a backend, that *is* the next one; every other row is ranked. Where shares are bounded, nobody takes
//! over more than the bound allows.

use super::roles::{eligible, fair_shares};
use super::rows::Mapping;
use crate::generate::ranking::{Ranking, RowRanker};
use common::backend::State;
use common::table::Table;
use rayon::prelude::*;
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
    let owned = table.rows_owned();
    let fair: Vec<f64> = fair_shares(table).iter().map(|share| share * f64::from(table.rows())).collect();
    let number = |position: u16| {
        mapping.numbers.get(1).and_then(|numbers| numbers.get(usize::from(position))).copied().unwrap_or(0)
    };
    let worst = |gone: &dyn Fn(u16) -> bool, gains: &BTreeMap<u16, u32>| {
        let survivors =
            (0u16..).zip(owned.iter().zip(&fair)).filter(|(at, (_, fair))| !gone(*at) && **fair > 0.0);
        let bound = table.max_share.map(|share| {
            let left: f64 = survivors.clone().map(|(_, (_, fair))| fair).sum();
            (left, share)
        });
        let room = |fair: f64| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturating")]
            let within =
                |(left, share): (f64, f64)| (f64::from(table.rows()) * (fair / left) * share).ceil() as u32;
            bound.map_or(u32::MAX, within)
        };
        let load = |(at, (owned, fair)): (u16, (&u32, &f64))| {
            let rows = room(*fair).min(owned + gains.get(&at).copied().unwrap_or(0));
            (number(at), rows, f64::from(rows) / fair)
        };
        survivors.map(load).max_by(|a, b| a.2.total_cmp(&b.2))
    };
    let none = BTreeMap::new();
    let backends = (0u16..).zip(&owned).filter(|(_, rows)| **rows > 0).map(|(at, rows)| {
        let gains = heirs.of_backend.get(&at).unwrap_or(&none);
        let worst = worst(&|other| other == at, gains);
        Failure { failed: Failed::Backend(number(at)), rows: *rows, worst, heirs: count(gains) }
    });
    let zones = groups.zones.iter().enumerate().map(|(zone, name)| {
        let gains = heirs.of_zone.get(&zone).unwrap_or(&none);
        let gone = |at: u16| groups.zone_of.get(usize::from(at)).copied().flatten() == Some(zone);
        let rows = (0u16..).zip(&owned).filter(|(at, _)| gone(*at)).map(|(_, rows)| rows).sum();
        Failure {
            failed: Failed::Zone((*name).to_owned()),
            rows,
            worst: worst(&gone, gains),
            heirs: count(gains),
        }
    });
    backends.chain(zones).collect()
}

fn count(gains: &BTreeMap<u16, u32>) -> u32 {
    u32::try_from(gains.len()).unwrap_or(u32::MAX)
}

/// The zones of a table, where it has several.
struct Groups<'a> {
    zones: Vec<&'a str>,
    zone_of: Vec<Option<usize>>,
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
        Self { zones, zone_of }
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
    for row in rows {
        let list = table.hops.get(row);
        let Some(&primary) = list.first() else { continue };
        let zone = groups.of(primary);
        let (mut next, mut other) = known_heirs(table, row, list, owns, groups);
        if next.is_none() || (zone.is_some() && other.is_none()) {
            let mut ranked = ranker.rank(row).filter(may_own).filter(|at| *at != primary).peekable();
            next = next.or_else(|| ranked.peek().copied());
            other = other.or_else(|| ranked.find(|at| groups.of(*at) != zone));
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

/// The next owner, and the next of another zone, where the hop list says so by itself.
fn known_heirs(
    table: &Table,
    row: u32,
    list: &[u16],
    owns: &[bool],
    groups: &Groups<'_>,
) -> (Option<u16>, Option<u16>) {
    let [primary, second] = *list else { return (None, None) };
    let plain = table.backend(primary).is_some_and(|one| one.state == State::Active)
        && owns.get(usize::from(second)).copied().unwrap_or(false)
        && !table.lineage.get(row).contains(&second);
    if !plain {
        return (None, None);
    }
    let elsewhere = groups.of(second) != groups.of(primary);
    let next = (!(table.spread_zones && elsewhere)).then_some(second);
    (next, elsewhere.then_some(second))
}
