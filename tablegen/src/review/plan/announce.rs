//! Announced steps: no step gives a row to a backend that directors with the table before cannot reach.
//!
//! While a table is rolled out, one director has the new table and another the old one. A connection that the first
//! opens on a row's new owner breaks if the router moves it to the second and the old hop list lacks that owner. So
//! every step must satisfy: the new owner of each row is a hop of that row in the table before.
//!
//! A drain satisfies this by itself in a steady state, because the second hop of each row is its next owner. Two kinds
//! of change need a step of their own first, in which the backend drains with the values it will have. The hop-list
//! rule then lists it in every row that it is about to own:
//!
//! - a newcomer, which the table before does not hold at all;
//! - a backend whose effective weight grows, because it may win rows in which it ranked low.
//!
//! A row that still lists former owners has no next owner among its hops. Then the plan waits until older connections
//! have ended, and builds the same configuration with `--settle`. A draining backend counts as a former owner, so each
//! backend that leaves is removed before the next one drains, and two backends cannot both drain and stay.

use super::{Wait, leaver, steps};
use crate::config::TableSpec;
use common::backend::{Backend, State};
use common::table::{ForwardingTable, Table};
use std::collections::BTreeSet;

/// A backend of a configuration: the name of its table, and its id.
type Named = (String, String);

/// The configurations to pass through, the last of them `goal`, each with what to wait for before it. `kept` is the
/// goal with the backends that leave, draining.
pub(super) fn route(
    current: &ForwardingTable,
    goal: &[TableSpec],
    kept: &[TableSpec],
) -> Vec<(Vec<TableSpec>, Wait)> {
    let mut specs = steps::first_changes(current, kept, 0);
    let mut route = Vec::new();
    for name in steps::newcomers(current, goal).into_iter().chain(gaining(current, goal)) {
        let Some(backend) = find(goal, &name) else { continue };
        let draining = Backend { state: State::Draining, ..backend.clone() };
        for next in [draining, backend.clone()] {
            replace(&mut specs, &name, Some(next));
            route.push((specs.clone(), Wait::Rollout));
        }
    }
    let leaving = leaving(current, goal);
    let mut specs = kept.to_vec();
    for (name, backend) in &leaving {
        replace(&mut specs, name, Some(backend.clone()));
    }
    route.push((specs.clone(), Wait::Rollout));
    for (name, backend) in leaving {
        replace(&mut specs, &name, Some(leaver(&backend)));
        route.push((specs.clone(), Wait::Rollout));
        replace(&mut specs, &name, None);
        route.push((specs.clone(), Wait::Connections));
    }
    route
}

/// Backends of the table in service that the goal leaves out, as they are.
fn leaving(current: &ForwardingTable, goal: &[TableSpec]) -> Vec<(Named, Backend)> {
    let of_table = |spec: &TableSpec| {
        let old = current.table(&spec.name).map_or(&[][..], |old| &old.backends);
        let gone = old.iter().filter(|old| spec.backends.iter().all(|new| new.id != old.id));
        gone.map(|old| ((spec.name.clone(), old.id.clone()), old.clone())).collect::<Vec<_>>()
    };
    goal.iter().flat_map(of_table).collect()
}

/// Backends that accept in both, with a greater effective weight in the goal.
fn gaining(current: &ForwardingTable, goal: &[TableSpec]) -> BTreeSet<Named> {
    let gains = |spec: &TableSpec, new: &Backend| {
        let old = current.table(&spec.name)?.backends.iter().find(|old| old.id == new.id)?;
        Some(old.accepts() && new.accepts() && new.effective_weight() > old.effective_weight())
    };
    let of_table = |spec: &TableSpec| {
        let gaining = spec.backends.iter().filter(|new| gains(spec, new) == Some(true));
        gaining.map(|new| (spec.name.clone(), new.id.clone())).collect::<Vec<_>>()
    };
    goal.iter().flat_map(of_table).collect()
}

fn find<'a>(specs: &'a [TableSpec], (table, id): &Named) -> Option<&'a Backend> {
    let spec = specs.iter().find(|spec| spec.name == *table)?;
    spec.backends.iter().find(|backend| backend.id == *id)
}

fn replace(specs: &mut [TableSpec], (table, id): &Named, next: Option<Backend>) {
    if let Some(spec) = specs.iter_mut().find(|spec| spec.name == *table) {
        spec.backends.retain(|backend| backend.id != *id);
        spec.backends.extend(next);
    }
}

/// Is the owner of every row in `after` a hop of that row in `before`? Rows without an owner do not count.
pub(super) fn is_announced(before: &ForwardingTable, after: &ForwardingTable) -> bool {
    let of_table = |new: &Table| before.table(&new.name).is_none_or(|old| owners_are_hops(old, new));
    after.tables().iter().all(of_table)
}

fn owners_are_hops(old: &Table, new: &Table) -> bool {
    // A hop is a host: an id whose address changed is another one.
    let same = |hop: u16, owner: u16| {
        let (hop, owner) = (old.backend(hop), new.backend(owner));
        hop.zip(owner).is_some_and(|(hop, owner)| hop.id == owner.id && hop.address == owner.address)
    };
    let is_hop = |row: u32, owner: u16| {
        let hops = old.hops.get(row & (old.rows() - 1));
        hops.is_empty() || hops.iter().any(|hop| same(*hop, owner))
    };
    let mut rows = 0..old.rows().max(new.rows());
    rows.all(|row| new.primary(row & (new.rows() - 1)).is_none_or(|owner| is_hop(row, owner)))
}
