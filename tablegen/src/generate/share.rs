//! Owners under a bound: `max_share`.
//!
//! By chance some backends own more rows than others: of 65,536 rows and 256 backends the fullest owns about 18 % more
//! than its share. A bound takes the rows beyond it from a backend, those first that it scores lowest for, and gives
//! each to its next choice that has room. Its price is movement: a change of one backend changes every share, and moves
//! a few rows between backends that both stay. Their former owners stay hops of them if the table is built on its
//! parent.

use super::hops::HopRule;
use super::ranking::{self, candidates, node};
use crate::config::TableSpec;
use common::backend::Backend;
use tryst_hrw::{Node, bounded_owners};

/// The owner of each row as a position in `backends`, if the table has a bound.
pub(super) fn owners(spec: &TableSpec, backends: &[Backend], rule: &HopRule) -> Option<Vec<Option<u16>>> {
    let max_share = spec.max_share?;
    let accepting = candidates(backends).filter(|(at, _)| rule.accepts(*at));
    let (positions, nodes): (Vec<u16>, Vec<Node>) = accepting.map(|(at, one)| (at, node(one))).unzip();
    let owners = bounded_owners(&nodes, &ranking::keys(spec), max_share);
    Some(owners.into_iter().map(|index| positions.get(index?).copied()).collect())
}
