//! Whose connections must have ended before a step.

use common::backend::Backend;
use common::table::{ForwardingTable, Table};
use serde::Serialize;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// A backend that may hold connections which the next table does not reach.
///
/// They arrive there by the second hop: `kept_on_second_hop_from` in `dataplane status` of its host counts their packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Watch {
    /// Its table.
    pub table: String,
    /// Its id.
    pub id: String,
    /// Its host.
    pub address: IpAddr,
}

/// Backends that are former owners of a row in `before`, or passed over there, and no hop of it in `after`.
pub(super) fn left_behind(before: &ForwardingTable, after: &ForwardingTable) -> Vec<Watch> {
    let of_table = |old: &Table| {
        let new = after.table(&old.name);
        let left = match new {
            Some(new) => left(old, new),
            None => (0..).take(old.backends.len()).collect(),
        };
        let watch =
            |one: &Backend| Watch { table: old.name.clone(), id: one.id.clone(), address: one.address };
        left.into_iter().filter_map(|at| old.backend(at)).map(watch).collect::<Vec<_>>()
    };
    before.tables().iter().flat_map(of_table).collect()
}

fn left(old: &Table, new: &Table) -> BTreeSet<u16> {
    // Both lists of backends are in ascending order of id.
    let place = |one: &Backend| new.backends.binary_search_by(|other| other.id.cmp(&one.id)).ok();
    let places: Vec<Option<usize>> = old.backends.iter().map(place).collect();
    let place = |at: u16| places.get(usize::from(at)).copied().flatten();
    let passed_over = |at: u16| old.backend(at).is_some_and(Backend::is_passed_over);
    let mut left = BTreeSet::new();
    for row in 0..old.rows().max(new.rows()) {
        let old_row = row & (old.rows() - 1);
        let (hops, lineage) = (old.hops.get(old_row), old.lineage.get(old_row));
        let after = new.sent(row & (new.rows() - 1));
        let reached = |at: u16| place(at).is_some_and(|at| after.clone().any(|hop| usize::from(hop) == at));
        let held = hops.iter().skip(1).filter(|hop| lineage.contains(hop) || passed_over(**hop));
        left.extend(held.copied().filter(|hop| !reached(*hop)));
    }
    left
}
