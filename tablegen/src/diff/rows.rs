//! What became of each row.

use super::roles::eligible;
use common::backend::Backend;
use common::table::Table;
use std::collections::BTreeMap;

/// All backends of two tables, under one numbering: ascending order of id.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// Stable names.
    pub ids: Vec<String>,
    /// Positions in the old and the new table.
    pub positions: Vec<[Option<u16>; 2]>,
    /// The number of a position in the old table, and in the new one.
    pub numbers: [Vec<u32>; 2],
}

impl Mapping {
    /// Merges the two lists, which tables keep in ascending order of id.
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

/// Why connections of a row may break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Risk {
    /// It is still in the table and was a hop of the row, and is one no more.
    Dropped,
    /// It was taken out, or made inactive, while it served: it was not drained.
    Cut,
    /// Its flows are hashed to other rows, where it need not be a hop.
    Rehashed,
}

/// How one row changed: what the pictures show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowChange {
    /// The same hop list.
    Same,
    /// The same owner, other hops after it.
    Hops,
    /// Another owner.
    Moved,
    /// Another owner for no reason.
    Unnecessary,
    /// Connections may break.
    AtRisk,
}

/// Rows counted.
#[derive(Clone, Debug, Default)]
pub struct RowChanges {
    /// Rows of the larger of the two tables.
    pub total: u32,
    /// Rows whose hop list changed in any way.
    pub changed: u32,
    /// Rows with another owner.
    pub moved: u32,
    /// Of these, those with no reason.
    pub unnecessary: u32,
    /// Of these, those that moved between backends which both stay, because shares are bounded.
    pub by_max_share: u32,
    /// Rows with a backend that may hold connections and is not a hop any more.
    pub at_risk: u32,
    /// Rows at risk, by backend and reason.
    pub risks: BTreeMap<(u32, Risk), u32>,
    /// Rows owned before and after, by backend.
    pub owned: Vec<[u32; 2]>,
    /// Rows by old and new owner, where they differ; none for an empty row.
    pub moves: BTreeMap<(Option<u32>, Option<u32>), u32>,
    /// Flows of the table go to other rows than before: key or fields of the hash changed.
    pub rehashed: bool,
    /// Built with `--settle`: owners before the last are taken to hold no connections.
    pub settled: bool,
    /// One entry a row.
    pub each: Vec<RowChange>,
}

impl RowChanges {
    /// Compares all rows. `settled`: the new file says that it was built on the old one with `--settle`.
    pub(super) fn new(old: Option<&Table>, new: Option<&Table>, mapping: &Mapping, settled: bool) -> Self {
        let total = [old, new].into_iter().flatten().map(Table::rows).max().unwrap_or(0);
        let mut changes = Self {
            total,
            owned: vec![[0; 2]; mapping.ids.len()],
            rehashed: old.zip(new).is_some_and(|(old, new)| rehashed(old, new)),
            settled,
            each: Vec::with_capacity(total as usize),
            ..Self::default()
        };
        let sides = [Side::new(old, total), Side::new(new, total)];
        let reasons = Reasons::new(&sides, mapping);
        let mut moves = Moves::new(mapping.ids.len());
        for row in 0..total {
            let change = changes.row(row, &sides, mapping, &reasons, &mut moves);
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
        if self.count_risks(row, sides, mapping, reasons) {
            self.at_risk += 1;
            change = RowChange::AtRisk;
        }
        change
    }

    /// Counts the backends of a row whose connections may break, each once; are there any?
    fn count_risks(&mut self, row: u32, sides: &[Side<'_>; 2], mapping: &Mapping, reasons: &Reasons) -> bool {
        let [old, new] = sides;
        let (before, lineage, after) = (old.hops(row), old.lineage(row), new.sent(row));
        let mut any = false;
        for (at, hop) in before.iter().enumerate() {
            let passed_over = reasons.may_hold.get(usize::from(*hop)).copied().unwrap_or(false);
            if at > 0 && (self.settled || !(lineage.contains(hop) || passed_over)) {
                continue;
            }
            let Some(number) = mapping.number(0, *hop) else { continue };
            let position = mapping.positions.get(number as usize).and_then(|[_, new]| *new);
            let kept = position.is_some_and(|position| after.clone().any(|hop| hop == position));
            let risk = match reasons.leaving.get(usize::from(*hop)).copied().unwrap_or(Leaving::Stays) {
                Leaving::Stays if self.rehashed => Risk::Rehashed,
                Leaving::Stays if !kept => Risk::Dropped,
                Leaving::Cut => Risk::Cut,
                _ => continue,
            };
            *self.risks.entry((number, risk)).or_default() += 1;
            any = true;
        }
        any
    }
}

/// One version of a table, read as if it had as many rows as the larger one.
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

    fn sent(&self, row: u32) -> impl Iterator<Item = u16> + Clone + use<'a> {
        let (table, row) = (self.table, row & self.mask);
        table.into_iter().flat_map(move |table| table.sent(row))
    }

    fn lineage(&self, row: u32) -> &'a [u16] {
        self.table.map_or(&[], |table| table.lineage.get(row & self.mask))
    }
}

fn same([old, new]: [&[u16]; 2], mapping: &Mapping) -> bool {
    let numbers =
        |side, list: &[u16]| list.iter().map(move |hop| mapping.number(side, *hop)).collect::<Vec<_>>();
    old.len() == new.len() && numbers(0, old) == numbers(1, new)
}

/// Are flows hashed to other rows than before, and not looked up by the old fields too?
fn rehashed(old: &Table, new: &Table) -> bool {
    let covered = new.alt_hash_fields == old.hash_fields;
    old.hash_key != new.hash_key || (old.hash_fields != new.hash_fields && !covered)
}

/// What becomes of a backend of the old table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    /// It may still be a hop.
    Stays,
    /// It left after a drain, or dead.
    Drained,
    /// It left while it served.
    Cut,
}

/// Per backend, what the configuration has to do with it.
struct Reasons {
    /// By number: may own rows no longer, or weighs less.
    loses: Vec<bool>,
    /// By number: may own rows now, or weighs more.
    gains: Vec<bool>,
    /// By old position.
    leaving: Vec<Leaving>,
    /// By old position: draining or down, so passed over as owner, yet with connections perhaps.
    may_hold: Vec<bool>,
    /// Shares are bounded in either table, so that a change of one backend moves rows between others.
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
        let leaving = old.iter().enumerate().map(|(position, backend)| {
            let number = mapping.numbers.first().and_then(|numbers| numbers.get(position));
            let after = number.and_then(|number| mapping.positions.get(*number as usize)?[1]);
            leaving(backend, after.and_then(|after| new.get(usize::from(after))))
        });
        Self {
            loses: weights().map(|[old, new]| new.unwrap_or(0.0) < old.unwrap_or(0.0)).collect(),
            gains: weights().map(|[old, new]| new.unwrap_or(0.0) > old.unwrap_or(0.0)).collect(),
            leaving: leaving.collect(),
            may_hold: old.iter().map(Backend::is_passed_over).collect(),
            bounded: sides.iter().filter_map(|side| side.table).any(|table| table.max_share.is_some()),
        }
    }

    fn unnecessary(&self, was: Option<u32>, is: Option<u32>) -> bool {
        let (Some(was), Some(is)) = (was, is) else { return false };
        let of = |list: &[bool], number: u32| list.get(number as usize).copied().unwrap_or(false);
        !of(&self.loses, was) && !of(&self.gains, is)
    }
}

fn leaving(before: &Backend, after: Option<&Backend>) -> Leaving {
    match after {
        Some(after) if after.is_candidate() => Leaving::Stays,
        _ if before.accepts() => Leaving::Cut,
        _ => Leaving::Drained,
    }
}

/// Counts moves by pair: in a square while that is small, else in a map.
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
        for (at, count) in self.square.iter().enumerate().filter(|(_, count)| **count > 0) {
            self.map.insert((number(at / self.side), number(at % self.side)), *count);
        }
        self.map
    }
}
