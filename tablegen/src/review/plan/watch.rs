//! Backends whose connections must have ended before a step.

use common::backend::Backend;
use common::table::{ForwardingTable, Table};
use serde::Serialize;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// A backend that may hold connections which do not reach it with the next table.
///
/// Their packets reach it as a second hop today. `dataplane status` on its host counts them in
/// `kept_on_second_hop_from`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Watch {
    /// Name of the table.
    pub table: String,
    /// Id of the backend.
    pub id: String,
    /// Address of its host.
    pub address: IpAddr,
}

/// Backends that are former owners of a row in `before`, or were passed over there, and are no hop of it in `after`.
pub(super) fn left_behind(before: &ForwardingTable, after: &ForwardingTable) -> Vec<Watch> {
    let of_table = |old: &Table| {
        let new = after.table(&old.name);
        let left = match new {
            Some(new) => left(old, new),
            None => (0..).take(old.backends.len()).collect(),
        };
        let watch = |backend: &Backend| Watch {
            table: old.name.clone(),
            id: backend.id.clone(),
            address: backend.address,
        };
        left.into_iter().map(|index| watch(&old.backends[usize::from(index)])).collect::<Vec<_>>()
    };
    before.tables().iter().flat_map(of_table).collect()
}

fn left(old: &Table, new: &Table) -> BTreeSet<u16> {
    // Both lists of backends are in ascending order of id.
    let new_index = |old: &Backend| new.backends.binary_search_by(|new| new.id.cmp(&old.id)).ok();
    let new_indices: Vec<Option<usize>> = old.backends.iter().map(new_index).collect();
    let passed_over = |hop: u16| old.backends[usize::from(hop)].is_passed_over();
    let mut left = BTreeSet::new();
    for row in 0..old.rows().max(new.rows()) {
        let old_row = row & (old.rows() - 1);
        let (hops, lineage) = (old.hops.get(old_row), old.lineage.get(old_row));
        let after = new.sent(row & (new.rows() - 1));
        let reached = |hop: u16| {
            new_indices[usize::from(hop)]
                .is_some_and(|index| after.clone().any(|hop| usize::from(hop) == index))
        };
        let held = hops.iter().skip(1).filter(|hop| lineage.contains(hop) || passed_over(**hop));
        left.extend(held.copied().filter(|hop| !reached(*hop)));
    }
    left
}
