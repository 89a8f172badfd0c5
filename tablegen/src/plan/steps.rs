//! Configurations between the table in service and the goal.

use super::leaver;
use crate::config::TableSpec;
use crate::report::natural::natural;
use common::backend::{Backend, State};
use common::table::ForwardingTable;
use std::collections::BTreeSet;

/// The goal with those still in it, draining, that it leaves out; and are there any?
pub(super) fn with_leavers(current: &ForwardingTable, goal: &[TableSpec]) -> (Vec<TableSpec>, bool) {
    let mut any = false;
    let mut specs = goal.to_vec();
    for spec in &mut specs {
        let Some(old) = current.table(&spec.name) else { continue };
        let gone = old.backends.iter().filter(|one| !spec.backends.iter().any(|other| other.id == one.id));
        let gone: Vec<Backend> = gone.map(leaver).collect();
        // A table that owns nothing but leavers cannot keep them apart from serving ones.
        any |= !gone.is_empty();
        spec.backends.extend(gone);
    }
    (specs, any)
}

/// Backends that accept in the goal and are not in the table in service, as (table, id).
pub(super) fn newcomers(current: &ForwardingTable, goal: &[TableSpec]) -> BTreeSet<(String, String)> {
    let known = |table: &str, id: &str| {
        current.table(table).is_none_or(|old| old.backends.iter().any(|one| one.id == id))
    };
    let all = goal.iter().flat_map(|spec| {
        let new = spec.backends.iter().filter(|one| one.accepts() && !known(&spec.name, &one.id));
        new.map(|one| (spec.name.clone(), one.id.clone()))
    });
    all.collect()
}

/// The configuration with newcomers at so many percent.
pub(super) fn filled(
    specs: &[TableSpec],
    newcomers: &BTreeSet<(String, String)>,
    percent: u8,
) -> Vec<TableSpec> {
    let mut specs = specs.to_vec();
    for spec in &mut specs {
        for one in &mut spec.backends {
            if newcomers.contains(&(spec.name.clone(), one.id.clone())) {
                (one.state, one.fill) = (State::Filling, percent);
            }
        }
    }
    specs
}

/// Backends that differ, as (position of the table in the goal, id).
fn differing(current: &ForwardingTable, goal: &[TableSpec]) -> Vec<(usize, String)> {
    let mut all = Vec::new();
    for (at, spec) in goal.iter().enumerate() {
        let old = current.table(&spec.name).map(|table| table.backends.as_slice()).unwrap_or_default();
        let ids: BTreeSet<&String> = old.iter().chain(&spec.backends).map(|one| &one.id).collect();
        let of = |list: &[Backend], id: &str| list.iter().find(|one| one.id == id).cloned();
        let changed = ids.into_iter().filter(|id| of(old, id) != of(&spec.backends, id));
        all.extend(changed.map(|id| (at, id.clone())));
    }
    all
}

/// Does anything differ, be it a backend or not?
pub(super) fn differs(current: &ForwardingTable, goal: &[TableSpec]) -> bool {
    let same = |spec: &TableSpec| {
        let mut binds = spec.binds.clone();
        binds.sort_unstable();
        current.table(&spec.name).is_some_and(|old| {
            (old.rows(), old.max_hops, old.ranking, old.seed, old.hash_key)
                == (spec.rows, spec.max_hops, spec.ranking, spec.seed, spec.hash_key)
                && (old.hash_fields, old.alt_hash_fields, old.spread_zones, old.max_share, &old.binds)
                    == (spec.hash_fields, spec.alt_hash_fields, spec.spread_zones, spec.max_share, &binds)
        })
    };
    current.tables().len() != goal.len() || !goal.iter().all(same) || !differing(current, goal).is_empty()
}

/// What differs, in words, as people look ids up.
pub(super) fn changes(current: &ForwardingTable, goal: &[TableSpec]) -> Vec<String> {
    let words = |(at, id): (usize, String)| {
        let spec = goal.get(at)?;
        let old = current.table(&spec.name).and_then(|table| table.backends.iter().find(|one| one.id == id));
        let new = spec.backends.iter().find(|one| one.id == id);
        Some(match (old, new) {
            (None, Some(new)) => format!("add {id} as {}", state(new)),
            (Some(_), None) => format!("remove {id}"),
            (Some(old), Some(new)) if state(old) != state(new) => {
                format!("{id}: {} → {}", state(old), state(new))
            }
            _ => format!("change {id}"),
        })
    };
    let mut differing = differing(current, goal);
    differing.sort_by(|(at, id), (other, other_id)| at.cmp(other).then_with(|| natural(id, other_id)));
    differing.into_iter().filter_map(words).collect()
}

fn state(backend: &Backend) -> String {
    match backend.state {
        State::Filling => format!("filling {} %", backend.fill),
        state => state.to_string(),
    }
}

/// The goal, but with the backends beyond the first so many changes as they are.
pub(super) fn first_changes(current: &ForwardingTable, goal: &[TableSpec], count: usize) -> Vec<TableSpec> {
    let mut specs = goal.to_vec();
    for (at, id) in differing(current, goal).into_iter().skip(count) {
        let Some(spec) = specs.get_mut(at) else { continue };
        let old = current.table(&spec.name).and_then(|table| table.backends.iter().find(|one| one.id == id));
        spec.backends.retain(|one| one.id != id);
        spec.backends.extend(old.cloned());
    }
    specs
}
