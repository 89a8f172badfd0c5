//! Minimality, survival and balance, counted on the rows as they stand in two files.

use super::slow::{Before, accepts, rooms, weight};
use super::{Finding, Reason};
use crate::format::number::counted;
use common::backend::{Backend, Health, State};
use common::table::Table;
use std::collections::BTreeMap;

/// The outcome.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) moved: u32,
    pub(super) unnecessary: u32,
    pub(super) by_max_share: u32,
    pub(super) may_hold: u32,
    pub(super) reachable: u32,
    pub(super) findings: Vec<Finding>,
}

/// Standard deviations that the rows of a table's only backend might lie off its share: with that limit ([`limit`]) one
/// table in 30 million at most is farther off by chance.
const SIGMAS: f64 = 6.0;

/// The limit for the farthest of so many backends: the more there are, the farther off is the farthest.
fn limit(backends: usize) -> f64 {
    (SIGMAS * SIGMAS + 2.0 * (backends.max(1) as f64).ln()).sqrt()
}

/// How far `owned` of `rows` lie off what is `expected`, in standard deviations of a fair draw.
///
/// By the root of the deviance and not by the variance: Chernoff's bound says of it that `e^(−σ²/2)` of all draws at most are as
/// far off to that side, also where few rows are expected and the usual σ would take chance for a mistake.
fn sigmas(owned: f64, expected: f64, rows: f64) -> f64 {
    let part = |found: f64, expected: f64| if found > 0.0 { found * (found / expected).ln() } else { 0.0 };
    let deviance = 2.0 * (part(owned, expected) + part(rows - owned, rows - expected));
    deviance.max(0.0).sqrt().copysign(owned - expected)
}

/// Compares owners and hops of `new` with those of its parent, by id.
pub(super) fn count(new: &Table, before: Option<Before<'_>>) -> Changes {
    let Some(Before { table: old, settled, .. }) = before else { return Changes::default() };
    let mut count = Count::new(new, old);
    for row in 0..old.rows().max(new.rows()) {
        let (old_row, new_row) = (row % old.rows(), row % new.rows());
        let [before, after] =
            [(old, old_row), (new, new_row)].map(|(table, row)| ids(table, table.hops.get(row)));
        if let (Some(from), Some(to)) = (before.first(), after.first())
            && from != to
        {
            count.moved(row, from, to);
        }
        let lineage = ids(old, old.lineage.get(old_row));
        let sent = sent(new, new_row);
        for (at, id) in before.iter().enumerate() {
            if at == 0 || (!settled && (lineage.contains(id) || count.was.passed_over(id))) {
                count.may_hold(row, id, &sent);
            }
        }
    }
    count.done()
}

/// Rows counted so far.
struct Count<'t> {
    new: &'t Table,
    old: &'t Table,
    was: Roles<'t>,
    is: Roles<'t>,
    rehashed: bool,
    changes: Changes,
    unnecessary: First,
    /// By the backend that may hold connections.
    lost: BTreeMap<&'t str, First>,
}

impl<'t> Count<'t> {
    fn new(new: &'t Table, old: &'t Table) -> Self {
        Self {
            new,
            old,
            was: Roles::new(old),
            is: Roles::new(new),
            rehashed: rehashed(old, new),
            changes: Changes::default(),
            unnecessary: First::default(),
            lost: BTreeMap::new(),
        }
    }

    /// A row has another owner: does any backend's change account for it?
    fn moved(&mut self, row: u32, from: &str, to: &str) {
        let Self { was, is, .. } = self;
        let reason = is.weight(from) < was.weight(from) || is.weight(to) > was.weight(to);
        self.changes.moved += 1;
        self.unnecessary.count(!reason, || format!("row {row} moved from {from} to {to}"));
    }

    /// A backend may hold connections of a row: does it stand in the row's hops, or left after a drain?
    fn may_hold(&mut self, row: u32, id: &'t str, after: &[&str]) {
        let stays = self.is.is_candidate(id);
        let safe = if stays { after.contains(&id) && !self.rehashed } else { !self.was.serves(id) };
        if stays || !safe {
            self.changes.may_hold += 1;
            self.changes.reachable += u32::from(safe);
            self.lost.entry(id).or_default().count(!safe, || {
                format!("{id} may hold connections of row {row}, whose hops are [{}]", after.join(" "))
            });
        }
    }

    fn done(self) -> Changes {
        let Self { new, old, mut changes, mut unnecessary, lost, .. } = self;
        if old.max_share.or(new.max_share).is_some() {
            changes.by_max_share = std::mem::take(&mut unnecessary.rows);
        }
        changes.unnecessary = unnecessary.rows;
        let comparable = old.seed == new.seed && old.ranking == new.ranking && old.rows() == new.rows();
        if comparable && unnecessary.rows > 0 {
            changes.findings.push(unnecessary.finding(Reason::Unnecessary, new));
        }
        let lost = lost.into_values().filter(|lost| lost.rows > 0);
        changes.findings.extend(lost.map(|lost| lost.finding(Reason::AtRisk, new)));
        changes
    }
}

/// Are flows looked up in other rows than before?
fn rehashed(old: &Table, new: &Table) -> bool {
    let fields = [new.hash_fields, new.alt_hash_fields];
    old.hash_key != new.hash_key || !fields.contains(&old.hash_fields)
}

/// Rows that show something, and the first of them in words.
#[derive(Default)]
struct First {
    rows: u32,
    text: String,
}

impl First {
    fn count(&mut self, shows: bool, text: impl FnOnce() -> String) {
        if shows && self.rows == 0 {
            self.text = text();
        }
        self.rows += u32::from(shows);
    }

    fn finding(self, reason: Reason, table: &Table) -> Finding {
        let Self { rows, text } = self;
        let text = if rows > 1 { format!("{}; {text}", counted(rows, "row")) } else { text };
        Finding { reason, table: table.name.clone(), rows, text }
    }
}

fn ids<'t>(table: &'t Table, list: &[u16]) -> Vec<&'t str> {
    list.iter().filter_map(|at| table.backend(*at)).map(|one| one.id.as_str()).collect()
}

/// Hops of a row that are in the packet: its outer header and its hops are of one address family.
fn sent(table: &Table, row: u32) -> Vec<&str> {
    let hops = table.hops.get(row).iter().filter_map(|at| table.backend(*at));
    let is_ipv4 = hops.clone().next().map(|primary| primary.address.is_ipv4());
    hops.filter(|hop| Some(hop.address.is_ipv4()) == is_ipv4).map(|hop| hop.id.as_str()).collect()
}

/// What the backends of one table are there for, by id.
struct Roles<'t> {
    by_id: BTreeMap<&'t str, (&'t Backend, bool)>,
}

impl<'t> Roles<'t> {
    fn new(table: &'t Table) -> Self {
        let owns = accepts(&table.backends);
        let all = table.backends.iter().zip(owns);
        Self { by_id: all.map(|(one, owns)| (one.id.as_str(), (one, owns))).collect() }
    }

    /// The weight with which it competes for rows.
    fn weight(&self, id: &str) -> f64 {
        self.by_id.get(id).filter(|(_, owns)| *owns).map_or(0.0, |(one, _)| weight(one))
    }

    fn is_candidate(&self, id: &str) -> bool {
        self.by_id.get(id).is_some_and(|(one, _)| one.state != State::Inactive)
    }

    fn passed_over(&self, id: &str) -> bool {
        self.by_id.get(id).is_some_and(|(one, _)| one.state == State::Draining || one.health == Health::Down)
    }

    fn serves(&self, id: &str) -> bool {
        let serves =
            |one: &Backend| matches!(one.state, State::Active | State::Filling) && one.health == Health::Up;
        self.by_id.get(id).is_some_and(|(one, _)| serves(one))
    }
}

/// No backend may own more rows than a bound of shares allows.
pub(super) fn within_bound(table: &Table) -> Option<Finding> {
    let rooms = rooms(&table.backends, table.rows(), table.max_share?);
    let owned = table.rows_owned();
    let over = |((one, owned), room): ((&Backend, &u32), usize)| {
        (*owned as usize > room)
            .then(|| format!("{} owns {}, and may own {room}", one.id, counted(*owned, "row")))
    };
    let text = table.backends.iter().zip(&owned).zip(rooms).find_map(over)?;
    Some(Finding { reason: Reason::Balance, table: table.name.clone(), rows: 0, text })
}

/// The backend whose rows lie farthest off its share, in standard deviations of a fair draw.
pub(super) fn balance(table: &Table) -> (Option<(String, f64)>, Option<Finding>) {
    let owns = accepts(&table.backends);
    let weights: Vec<f64> =
        table.backends.iter().zip(owns).map(|(one, owns)| if owns { weight(one) } else { 0.0 }).collect();
    let sum: f64 = weights.iter().sum();
    let mut owned = BTreeMap::<u16, u32>::new();
    for primary in table.hops.iter().filter_map(|list| list.first()) {
        *owned.entry(*primary).or_default() += 1;
    }
    let rows = f64::from(table.rows());
    let off = |(at, weight): (u16, &f64)| {
        (at, sigmas(owned.get(&at).copied().unwrap_or(0).into(), rows * (weight / sum), rows))
    };
    let farthest = (0u16..).zip(&weights).map(off).max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()));
    let Some((at, sigmas)) = farthest.filter(|_| sum > 0.0) else { return (None, None) };
    let id = table.backend(at).map_or("?", |one| one.id.as_str());
    let finding = (sigmas.abs() > limit(table.backends.len())).then(|| Finding {
        reason: Reason::Balance,
        table: table.name.clone(),
        rows: 0,
        text: format!(
            "{id} owns {}, {sigmas:+.1} σ off its share",
            counted(owned.get(&at).copied().unwrap_or(0), "row")
        ),
    });
    (Some((id.to_owned(), sigmas)), finding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_rows_lie_as_far_off_as_by_the_usual_sigma() {
        // n = 65,536, p = 1/10: σ = √(n p (1 − p)) = 76.8.
        for (owned, usual) in [(6_553.6, 0.0), (6_784.0, 3.0), (6_323.2, -3.0)] {
            let found = sigmas(owned, 6_553.6, 65_536.0);
            assert!((found - usual).abs() < 0.05, "{owned}: {found}");
        }
    }

    /// Of 65,534 backends with a row each on average, one owns 8 in every second table: `e⁻¹ / 8!` is 1 in 109,600.
    #[test]
    fn few_rows_are_no_mistake() {
        let off = |owned| sigmas(owned, 1.0, 65_536.0);
        assert!(off(8.0) < limit(65_534) && off(0.0) > -limit(1), "{} {}", off(8.0), off(0.0));
        assert!(off(20.0) > limit(65_534), "{}", off(20.0));
    }

    #[test]
    fn all_and_nothing_are_told_from_chance() {
        assert_eq!([sigmas(64.0, 64.0, 64.0), sigmas(0.0, 0.0, 64.0)], [0.0, 0.0]);
        assert!(sigmas(1.0, 0.0, 64.0) > limit(1) && sigmas(63.0, 64.0, 64.0) < -limit(1));
    }
}
