//! Review of a change before it is rolled out: what changes, whether that is safe, and in which steps to do it.
//!
//! ```text
//! old table, new table ─► diff (facts) ─► verdict ◄─ conditions that the operator confirms, limits
//!      │                    │
//!      │                    └─► remarks (facts as sentences)
//!      └─► holders (which host may have a flow's connections, does the packet reach it), coverage (binds)
//! table, configuration ─► plan      steps from the table in service to the configuration
//! tables, connections  ─► simulate  connections that break at each change of tables
//! table, flow          ─► explain   row, hop list, and the reason of each hop
//! ```
//!
//! This module computes facts. [`crate::report`] displays them.

pub mod condition;
mod coverage;
pub mod diff;
pub mod explain;
pub mod holders;
pub mod plan;
pub(crate) mod remarks;
pub mod simulate;
pub mod verdict;
