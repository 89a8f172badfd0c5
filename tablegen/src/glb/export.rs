//! Our configuration to GLB's version-2 table file, to the octet what GLB's own generator writes.
//!
//! GLB's hop rule is not ours: of the backends that are not inactive the first two by rank; where the first is
//! draining or not healthy and the second's *state* is active, whatever its health, the two change places.

use crate::config::TableSpec;
use crate::generate::ranking::Ranking;
use crate::report::number::counted;
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
    Ok(Exported { octets: glb::encode(&tables), warnings: specs.iter().filter_map(left_out).collect() })
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
    if candidates < 2 {
        return Some(format!("{} not inactive, at least 2 are needed", counted(candidates, "backend")));
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

fn glb_table(spec: &TableSpec) -> glb::GlbTable {
    let backend = |backend: &Backend| glb::GlbBackend {
        address: backend.address,
        state: backend.state,
        health: backend.health,
    };
    let ranking = Ranking::new(spec.ranking, spec.seed, &spec.backends);
    let row = |ranker: &mut crate::generate::ranking::RowRanker<'_>, row: u32| {
        let mut ranked = ranker.rank(row);
        // Two candidates at least were asked for above.
        let first_two = [ranked.next().unwrap_or_default(), ranked.next().unwrap_or_default()];
        pair(&spec.backends, first_two).map(u32::from)
    };
    glb::GlbTable {
        backends: spec.backends.iter().map(backend).collect(),
        binds: spec.binds.clone(),
        hash_key: spec.hash_key,
        rows: (0..glb::ROWS).into_par_iter().map_init(|| ranking.ranker(), row).collect(),
    }
}

/// Primary and secondary by GLB's rule.
fn pair(backends: &[Backend], [first, second]: [u16; 2]) -> [u16; 2] {
    let at = |position: u16| backends.get(usize::from(position));
    let avoid = at(first).is_some_and(Backend::is_passed_over);
    let active = at(second).is_some_and(|one| one.state == State::Active);
    if avoid && active { [second, first] } else { [first, second] }
}
