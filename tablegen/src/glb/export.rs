//! Our configuration to GLB's version-2 table file, to the octet what GLB's own generator writes.
//!
//! GLB's hop rule is not ours: of the backends that are not inactive the first two by rank; where the first is
//! draining or not healthy and the second's *state* is active, whatever its health, the two change places.

use crate::config::TableSpec;
use crate::generate::ranking::{Ranking, RowRanker};
use common::backend::{Backend, State};
use common::flow::HashFields;
use common::table::{self, glb};
use rayon::prelude::*;
use std::fmt;

/// Something that GLB's format cannot say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("GLB's table file cannot hold table {table}: {reason}")]
pub struct ExportError {
    /// The table's name.
    pub table: String,
    /// What is found, and what is possible.
    pub reason: String,
}

/// A file of GLB's, and what its reader will not learn from it.
#[derive(Clone)]
pub struct Exported {
    /// The file, hash keys included.
    pub octets: Vec<u8>,
    /// One sentence each.
    pub warnings: Vec<String>,
}

impl fmt::Debug for Exported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exported").field("warnings", &self.warnings).finish_non_exhaustive()
    }
}

/// Writes all tables, in the order given.
pub fn export(specs: &[TableSpec]) -> Result<Exported, ExportError> {
    for spec in specs {
        if let Some(reason) = fault(spec) {
            return Err(ExportError { table: spec.name.clone(), reason });
        }
    }
    let tables: Vec<glb::GlbTable> = specs.iter().map(glb_table).collect();
    let warnings = specs.iter().flat_map(|spec| left_out(spec).into_iter().chain(alone(spec)));
    Ok(Exported { octets: glb::encode(&tables), warnings: warnings.collect() })
}

fn fault(spec: &TableSpec) -> Option<String> {
    let candidates = spec.backends.iter().filter(|backend| backend.is_candidate()).count();
    let limits = [("backends", spec.backends.len()), ("binds", spec.binds.len())];
    if let Some((what, len)) = limits.iter().find(|(_, len)| *len > glb::MAX_ENTRIES) {
        return Some(format!("{len} {what}, at most {} are possible", glb::MAX_ENTRIES));
    }
    if spec.ranking != table::Ranking::Glb {
        return Some("ranking hrw, only glb is possible".to_owned());
    }
    if spec.rows != glb::ROWS {
        return Some(format!("{} rows, only {} are possible", spec.rows, glb::ROWS));
    }
    if candidates == 0 {
        return Some("all backends are inactive, at least 1 that is not is needed".to_owned());
    }
    if spec.spread_zones {
        return Some("spread_zones, which its hop rule does not know".to_owned());
    }
    if spec.max_share.is_some() {
        return Some("max_share, which its hop rule does not know".to_owned());
    }
    spec.backends.iter().enumerate().find_map(|(at, backend)| {
        let earlier = spec.backends.get(..at).unwrap_or_default();
        backend_fault(backend, earlier).map(|reason| format!("backend {}: {reason}", backend.id))
    })
}

fn backend_fault(backend: &Backend, earlier: &[Backend]) -> Option<String> {
    if backend.address.is_ipv6() {
        return Some(format!("address {}, only IPv4 is possible", backend.address));
    }
    if earlier.iter().any(|other| other.address == backend.address) {
        return Some(format!("address {} a second time", backend.address));
    }
    // In full, not in proportion: a share of 1 made of weight 2 and half filled is no weight of 1.
    if backend.weight != 1.0 || backend.fill != 100 {
        return Some(format!(
            "weight {} and fill {} %, only 1 and 100 % are possible",
            backend.weight, backend.fill
        ));
    }
    None
}

fn left_out(spec: &TableSpec) -> Option<String> {
    let own = spec.hash_fields == HashFields::SRC_ADDR && spec.alt_hash_fields.is_empty();
    (!own).then(|| {
        format!(
            "table {}: GLB's table file does not say hash_fields {} and alt_hash_fields {}; \
             they belong into its director's configuration",
            spec.name, spec.hash_fields, spec.alt_hash_fields
        )
    })
}

/// GLB's file has two hops in every row, so the only backend is both.
fn alone(spec: &TableSpec) -> Option<String> {
    let mut candidates = spec.backends.iter().filter(|backend| backend.is_candidate());
    let (Some(only), None) = (candidates.next(), candidates.next()) else { return None };
    Some(format!(
        "table {}: {} is the only backend that is not inactive, so it is both hops of every row: no second chance",
        spec.name, only.id
    ))
}

/// Rows that a thread takes at a time.
const ROWS_A_TASK: u32 = 1_024;

fn glb_table(spec: &TableSpec) -> glb::GlbTable {
    let backend = |backend: &Backend| glb::GlbBackend {
        address: backend.address,
        state: backend.state,
        health: backend.health,
    };
    let ranking = Ranking::new(spec.ranking, spec.seed, &spec.backends);
    let rows = |ranker: &mut RowRanker<'_>, task: u32| {
        let start = task * ROWS_A_TASK;
        ranker.prepare(start, ROWS_A_TASK as usize, 2);
        let pairs = (start..start + ROWS_A_TASK).map(|row| first_two(ranker, row));
        pairs.map(|first_two| pair(&spec.backends, first_two).map(u32::from)).collect::<Vec<_>>()
    };
    let tasks = (0..glb::ROWS / ROWS_A_TASK).into_par_iter();
    glb::GlbTable {
        backends: spec.backends.iter().map(backend).collect(),
        binds: spec.binds.clone(),
        hash_key: spec.hash_key,
        rows: tasks.map_init(|| ranking.ranker(), rows).flatten_iter().collect(),
    }
}

/// The first two candidates of a row. There is one at least; the only one is both.
fn first_two(ranker: &mut RowRanker<'_>, row: u32) -> [u16; 2] {
    let mut ranked = ranker.rank(row);
    let first = ranked.next().unwrap_or_default();
    [first, ranked.next().unwrap_or(first)]
}

/// Primary and secondary by GLB's rule.
fn pair(backends: &[Backend], [first, second]: [u16; 2]) -> [u16; 2] {
    let at = |position: u16| backends.get(usize::from(position));
    let avoid = at(first).is_some_and(Backend::is_passed_over);
    let active = at(second).is_some_and(|one| one.state == State::Active);
    if avoid && active { [second, first] } else { [first, second] }
}
