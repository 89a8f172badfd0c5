//! Changes of each row.

use super::roles::eligible;
use crate::review::holders::{Breaks, Cause, Reach, Reading};
use common::backend::Backend;
use common::table::Table;
use std::collections::BTreeMap;

/// All backends of two tables with common numbers, in ascending order of id.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// Id of each number.
    pub ids: Vec<String>,
    /// Index of each number in the old and in the new table.
    pub positions: Vec<[Option<u16>; 2]>,
    /// Number of each index in the old and in the new table.
    pub numbers: [Vec<u32>; 2],
}

impl Mapping {
    /// Merges the backends of both tables.
    pub fn new(old: Option<&Table>, new: Option<&Table>) -> Self {
        let mut by_id = BTreeMap::<&str, [Option<u16>; 2]>::new();
        for (side, table) in [old, new].into_iter().enumerate() {
            for (position, backend) in (0u16..).zip(table.iter().flat_map(|table| &table.backends)) {
                if let Some(cell) = by_id.entry(&backend.id).or_default().get_mut(side) {
                    *cell = Some(position);
                }
            }
        }
        let mut numbers = [old, new].map(|table| vec![0; table.map_or(0, |table| table.backends.len())]);
        for (number, positions) in (0u32..).zip(by_id.values()) {
            for (numbers, position) in numbers.iter_mut().zip(positions) {
                if let Some(cell) = position.and_then(|position| numbers.get_mut(usize::from(position))) {
                    *cell = number;
                }
            }
        }
        let (ids, positions) = by_id.into_iter().map(|(id, at)| (id.to_owned(), at)).unzip();
        Self { ids, positions, numbers }
    }

    fn number(&self, side: usize, position: u16) -> Option<u32> {
        self.numbers.get(side)?.get(usize::from(position)).copied()
    }
}

/// The change of one row, for the pictures. From harmless to harmful.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowChange {
    /// The hop list is the same.
    Same,
    /// The owner is the same, and later hops changed.
    Hops,
    /// The owner changed.
    Moved,
    /// The owner changed unnecessarily.
    Unnecessary,
    /// Connections may break.
    AtRisk,
}

/// Numbers of rows by change.
#[derive(Clone, Debug, Default)]
pub struct RowChanges {
    /// Rows of the larger of both tables.
    pub total: u32,
    /// Rows whose hop list changed.
    pub changed: u32,
    /// Rows that changed owner.
    pub moved: u32,
    /// Rows that changed owner unnecessarily.
    pub unnecessary: u32,
    /// Rows that moved between two backends which both stay, because `max_share` is set.
    pub by_max_share: u32,
    /// Rows in which connections break, and no accepted condition allows it.
    pub at_risk: u32,
    /// Rows at risk, each times the probability that its connections break.
    pub expected: f64,
    /// Rows that do not reach a holder, by backend and cause.
    pub breaks: BTreeMap<(u32, Cause), Breaks>,
    /// Rows owned before and after, by backend number.
    pub owned: Vec<[u32; 2]>,
    /// Rows that changed owner, by old and new owner. None stands for an empty row.
    pub moves: BTreeMap<(Option<u32>, Option<u32>), u32>,
    /// Whether flows use other rows than before, because the key or the fields of the hash changed.
    pub rehashed: bool,
    /// Whether the table was built with `--settle`: owners before the last are assumed to hold no
    /// connections.
    pub settled: bool,
    /// One entry for each row.
    pub each: Vec<RowChange>,
}

impl RowChanges {
    /// Compares all rows. `settled`: the new file says that it was built on the old one with `--settle`. `judged`: flows of
    /// the old table use the new one, so that its rows matter; `None` if no bind leads from the one to the other.
    pub(super) fn new(
        old: Option<&Table>,
        new: Option<&Table>,
        mapping: &Mapping,
        settled: bool,
        judged: Option<Reading<'_>>,
    ) -> Self {
        let both = old.zip(new).zip(judged);
        let reach = both.map(|((old, new), reading)| Reach::new(old, new, reading));
        let total = [old, new].into_iter().flatten().map(Table::rows).max().unwrap_or(0);
        let mut changes = Self {
            total,
            owned: vec![[0; 2]; mapping.ids.len()],
            rehashed: reach.as_ref().is_some_and(|reach| !reach.finds_rows()),
            settled,
            each: Vec::with_capacity(total as usize),
            ..Self::default()
        };
        let sides = [Side::new(old, total), Side::new(new, total)];
        let reasons = Reasons::new(&sides, mapping);
        let mut moves = Moves::new(mapping.ids.len());
        for row in 0..total {
            let mut change = changes.row(row, &sides, mapping, &reasons, &mut moves);
            if reach.as_ref().is_some_and(|reach| changes.count_breaks(row, reach, mapping)) {
                change = RowChange::AtRisk;
            }
            changes.each.push(change);
        }
        changes.moves = moves.counted();
        changes
    }

    fn row(
        &mut self,
        row: u32,
        sides: &[Side<'_>; 2],
        mapping: &Mapping,
        reasons: &Reasons,
        moves: &mut Moves,
    ) -> RowChange {
        let [old, new] = sides;
        let lists = [old.hops(row), new.hops(row)];
        let [was, is] = [0, 1].map(|side| mapping.number(side, *lists.get(side)?.first()?));
        for (side, owner) in [was, is].into_iter().enumerate() {
            if let Some(count) = owner.and_then(|owner| self.owned.get_mut(owner as usize)?.get_mut(side)) {
                *count += 1;
            }
        }
        let mut change = RowChange::Same;
        if !same(lists, mapping) {
            self.changed += 1;
            change = RowChange::Hops;
        }
        if was != is {
            self.moved += 1;
            moves.add(was, is);
            change = RowChange::Moved;
        }
        if was != is && reasons.unnecessary(was, is) {
            if reasons.bounded {
                self.by_max_share += 1;
            } else {
                self.unnecessary += 1;
                change = RowChange::Unnecessary;
            }
        }
        change
    }

    /// Counts the holders of a row that the packet does not reach. Returns whether the row is at risk.
    fn count_breaks(&mut self, row: u32, reach: &Reach<'_>, mapping: &Mapping) -> bool {
        let mut worst: f64 = 0.0;
        let breaks = &mut self.breaks;
        reach.row(row, |holder, cause, chance| {
            let Some(number) = mapping.number(0, holder) else { return };
            let entry = breaks.entry((number, cause)).or_default();
            entry.rows += 1;
            entry.expected += chance;
            if cause.is_risk() {
                worst = worst.max(chance);
            }
        });
        self.expected += worst;
        self.at_risk += u32::from(worst > 0.0);
        worst > 0.0
    }
}

/// One version of a table, read as if it had as many rows as the larger version.
struct Side<'a> {
    table: Option<&'a Table>,
    mask: u32,
}

impl<'a> Side<'a> {
    fn new(table: Option<&'a Table>, total: u32) -> Self {
        let rows = table.map_or(total, Table::rows);
        Self { table, mask: rows.wrapping_sub(1) }
    }

    fn hops(&self, row: u32) -> &'a [u16] {
        self.table.map_or(&[], |table| table.hops.get(row & self.mask))
    }
}

fn same([old, new]: [&[u16]; 2], mapping: &Mapping) -> bool {
    let numbers =
        |side, list: &[u16]| list.iter().map(move |hop| mapping.number(side, *hop)).collect::<Vec<_>>();
    old.len() == new.len() && numbers(0, old) == numbers(1, new)
}

/// For each backend, the reasons in the configuration for which rows may move.
struct Reasons {
    /// By number: it may no longer own rows, or lost weight.
    loses: Vec<bool>,
    /// By number: it may own rows now, or gained weight.
    gains: Vec<bool>,
    /// Whether either table sets `max_share`, so that a change of one backend moves rows between others.
    bounded: bool,
}

impl Reasons {
    fn new(sides: &[Side<'_>; 2], mapping: &Mapping) -> Self {
        let [old, new] = sides.each_ref().map(|side| side.table.map_or(&[][..], |table| &table.backends));
        let owns = [eligible(old), eligible(new)];
        let weight = |side: usize, position: Option<u16>| {
            let position = usize::from(position?);
            let owns = owns.get(side)?.get(position).copied()?;
            let backend = if side == 0 { old.get(position) } else { new.get(position) };
            owns.then(|| backend.map(Backend::effective_weight)).flatten()
        };
        let weights = || mapping.positions.iter().map(|[old, new]| [weight(0, *old), weight(1, *new)]);
        Self {
            loses: weights().map(|[old, new]| new.unwrap_or(0.0) < old.unwrap_or(0.0)).collect(),
            gains: weights().map(|[old, new]| new.unwrap_or(0.0) > old.unwrap_or(0.0)).collect(),
            bounded: sides.iter().filter_map(|side| side.table).any(|table| table.max_share.is_some()),
        }
    }

    fn unnecessary(&self, was: Option<u32>, is: Option<u32>) -> bool {
        let (Some(was), Some(is)) = (was, is) else { return false };
        let of = |list: &[bool], number: u32| list.get(number as usize).copied().unwrap_or(false);
        !of(&self.loses, was) && !of(&self.gains, is)
    }
}

/// Counts moves by pair of owners: in a square array if that is small, otherwise in a map.
struct Moves {
    side: usize,
    square: Vec<u32>,
    map: BTreeMap<(Option<u32>, Option<u32>), u32>,
}

impl Moves {
    /// A square of 1,025² counters is 4 MiB.
    const LARGEST_SQUARE: usize = 1_025;

    fn new(backends: usize) -> Self {
        let side = backends + 1;
        let cells = if side <= Self::LARGEST_SQUARE { side * side } else { 0 };
        Self { side, square: vec![0; cells], map: BTreeMap::new() }
    }

    fn add(&mut self, from: Option<u32>, to: Option<u32>) {
        let index = |number: Option<u32>| number.map_or(0, |number| number as usize + 1);
        match self.square.get_mut(index(from) * self.side + index(to)) {
            Some(count) => *count += 1,
            None => *self.map.entry((from, to)).or_default() += 1,
        }
    }

    fn counted(mut self) -> BTreeMap<(Option<u32>, Option<u32>), u32> {
        let number = |index: usize| u32::try_from(index).ok()?.checked_sub(1);
        for (index, count) in self.square.iter().enumerate().filter(|(_, count)| **count > 0) {
            self.map.insert((number(index / self.side), number(index % self.side)), *count);
        }
        self.map
    }
}
