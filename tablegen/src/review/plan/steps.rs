//! Configurations between the table in service and the target.

use super::leaver;
use crate::config::TableSpec;
use crate::format::natural;
use common::backend::{Backend, State};
use common::table::ForwardingTable;
use std::collections::BTreeSet;

/// The goal with the backends that it leaves out, or makes inactive, as draining ones; and whether there are any.
pub(super) fn with_leavers(current: &ForwardingTable, goal: &[TableSpec]) -> (Vec<TableSpec>, bool) {
    let mut any = false;
    let mut specs = goal.to_vec();
    for spec in &mut specs {
        let Some(old) = current.table(&spec.name) else { continue };
        let stays =
            |old: &Backend, new: &Backend| new.id == old.id && (new.is_candidate() || !old.is_candidate());
        let gone = old.backends.iter().filter(|old| !spec.backends.iter().any(|new| stays(old, new)));
        let gone: Vec<Backend> = gone.map(leaver).collect();
        any |= !gone.is_empty();
        spec.backends.retain(|new| gone.iter().all(|gone| gone.id != new.id));
        spec.backends.extend(gone);
    }
    (specs, any)
}

/// Backends that accept in the goal and are absent from the table in service, as (table, id).
pub(super) fn newcomers(current: &ForwardingTable, goal: &[TableSpec]) -> BTreeSet<(String, String)> {
    let known = |table: &str, id: &str| {
        current.table(table).is_none_or(|old| old.backends.iter().any(|backend| backend.id == id))
    };
    let all = goal.iter().flat_map(|spec| {
        let new = spec.backends.iter().filter(|new| new.accepts() && !known(&spec.name, &new.id));
        new.map(|new| (spec.name.clone(), new.id.clone()))
    });
    all.collect()
}

/// The configuration with the new backends filled by `percent`.
pub(super) fn filled(
    specs: &[TableSpec],
    newcomers: &BTreeSet<(String, String)>,
    percent: u8,
) -> Vec<TableSpec> {
    let mut specs = specs.to_vec();
    for spec in &mut specs {
        for backend in &mut spec.backends {
            if newcomers.contains(&(spec.name.clone(), backend.id.clone())) {
                (backend.state, backend.fill) = (State::Filling, percent);
            }
        }
    }
    specs
}

/// Backends that differ, as (index of the table in the goal, id).
fn differing(current: &ForwardingTable, goal: &[TableSpec]) -> Vec<(usize, String)> {
    let mut all = Vec::new();
    for (table, spec) in goal.iter().enumerate() {
        let old = current.table(&spec.name).map(|table| table.backends.as_slice()).unwrap_or_default();
        let ids: BTreeSet<&String> = old.iter().chain(&spec.backends).map(|backend| &backend.id).collect();
        let of = |list: &[Backend], id: &str| list.iter().find(|backend| backend.id == id).cloned();
        let changed = ids.into_iter().filter(|id| of(old, id) != of(&spec.backends, id));
        all.extend(changed.map(|id| (table, id.clone(), is_relief(of(old, id), of(&spec.backends, id)))));
    }
    // What takes load from the others comes first, so that no step leaves too few backends.
    all.sort_by_key(|(.., relief)| !relief);
    all.into_iter().map(|(table, id, _)| (table, id)).collect()
}

/// Does the backend get new connections, or more of them, by the change?
fn is_relief(old: Option<Backend>, new: Option<Backend>) -> bool {
    let weight =
        |one: Option<Backend>| one.filter(Backend::accepts).map_or(0.0, |one| one.effective_weight());
    weight(new) > weight(old)
}

/// Whether anything differs: a backend or another value.
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

/// The changed backends in words, in natural order of id.
pub(super) fn changes(current: &ForwardingTable, goal: &[TableSpec]) -> Vec<String> {
    let words = |(table, id): (usize, String)| {
        let spec = &goal[table];
        let old = current
            .table(&spec.name)
            .and_then(|table| table.backends.iter().find(|backend| backend.id == id));
        let new = spec.backends.iter().find(|backend| backend.id == id);
        match (old, new) {
            (None, Some(new)) => format!("add {id} as {}", state(new)),
            (Some(_), None) => format!("remove {id}"),
            (Some(old), Some(new)) if state(old) != state(new) => {
                format!("{id}: {} → {}", state(old), state(new))
            }
            _ => format!("change {id}"),
        }
    };
    let mut differing = differing(current, goal);
    differing.sort_by(|(a, a_id), (b, b_id)| a.cmp(b).then_with(|| natural(a_id, b_id)));
    differing.into_iter().map(words).collect()
}

fn state(backend: &Backend) -> String {
    match backend.state {
        State::Filling => format!("filling {} %", backend.fill),
        state => state.to_string(),
    }
}

/// The goal with its first `count` changes only; the other backends stay as they are.
pub(super) fn first_changes(current: &ForwardingTable, goal: &[TableSpec], count: usize) -> Vec<TableSpec> {
    let mut specs = goal.to_vec();
    for (table, id) in differing(current, goal).into_iter().skip(count) {
        let spec = &mut specs[table];
        let old = current
            .table(&spec.name)
            .and_then(|table| table.backends.iter().find(|backend| backend.id == id));
        spec.backends.retain(|backend| backend.id != id);
        spec.backends.extend(old.cloned());
    }
    specs
}
