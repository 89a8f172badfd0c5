//! Configurations: read, checked, and refused with a precise message.
//!
//! ```text
//! text ─► raw (keys and lists; every scalar is text) ─► spec (checks of each key) ─► Config
//! ```
//!
//! A [`Config`] that exists is valid: every number is in its range, names and addresses are unique, and no two binds match
//! the same packets with the same priority. A refusal names file, line, column, key path, what was found and what is
//! allowed, but never the text of a secret. `configs/invalid` has one file for each refusal, with its message.

mod amount;
mod error;
mod quoted;
mod raw;
mod spec;
mod value;

pub use amount::Amount;
pub use error::{ConfigError, Refusal, Warning};
pub(crate) use quoted::Quoted;
pub(crate) use raw::budget;
pub(crate) use value::without_secrets;

use crate::files;
use crate::format::number::counted;
use common::backend::Backend;
use common::bind::Bind;
use common::flow::HashFields;
use common::hash::SipKey;
use common::table::{ForwardingTable, Ranking, Seed, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Least and greatest weight. The range is wider than rollouts need, and shares are still exact in doubles.
pub const WEIGHTS: std::ops::RangeInclusive<f64> = 1e-6..=1e6;

/// A valid configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// Tables in the order of the file.
    pub tables: Vec<TableSpec>,
    /// Most rows that a backend may own, by table and id, where the file states it. A review checks it; the table does
    /// not hold it.
    pub capacities: BTreeMap<(String, String), Amount>,
    /// Tables whose number of rows follows the number of backends (`rows: auto`), unless a parent has another one.
    pub auto_rows: BTreeSet<String>,
    /// Values that are allowed and often a mistake.
    pub warnings: Vec<Warning>,
}

/// The specification of one table. Backends and binds keep the order of the file; only GLB's format depends on it.
#[derive(Clone, Debug, PartialEq)]
pub struct TableSpec {
    /// Name of the table, unique in the file.
    pub name: String,
    /// Number of rows, a power of two.
    pub rows: u32,
    /// Greatest length of a hop list.
    pub max_hops: u8,
    /// Method that ranks backends.
    pub ranking: Ranking,
    /// Seed of the ranking.
    pub seed: Seed,
    /// Key of the flow hash.
    pub hash_key: SipKey,
    /// Packet fields of the flow hash.
    pub hash_fields: HashFields,
    /// Packet fields of the second look-up; empty if there is none.
    pub alt_hash_fields: HashFields,
    /// Whether the second hop is preferably in another zone.
    pub spread_zones: bool,
    /// Most rows of a backend, as a multiple of its fair share.
    pub max_share: Option<f64>,
    /// At least one.
    pub binds: Vec<Bind>,
    /// At least one.
    pub backends: Vec<Backend>,
}

impl Config {
    /// Keeps the number of rows of the tables in service where it is `auto`: another number would move half of all
    /// flows. Returns one sentence for each table that would take more rows.
    pub fn keep_rows_of(&mut self, parent: &ForwardingTable) -> Vec<String> {
        let mut kept = Vec::new();
        for spec in self.tables.iter_mut().filter(|spec| self.auto_rows.contains(&spec.name)) {
            let Some(rows) = parent.table(&spec.name).map(Table::rows).filter(|rows| *rows != spec.rows)
            else {
                continue;
            };
            kept.push(format!(
                "table {}: rows: auto keeps the {} of the table in service; for {} it would take {}, which moves \
                 about half of all flows: write that number to change it",
                spec.name,
                counted(rows, "row"),
                counted(spec.backends.len(), "backend"),
                spec.rows,
            ));
            spec.rows = rows;
        }
        kept
    }

    /// Reads a file.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        let octets =
            files::octets(file).map_err(|cause| ConfigError::Read { file: file.to_owned(), cause })?;
        let text = std::str::from_utf8(&octets)
            .map_err(|error| ConfigError::refused(file, not_utf8(&octets, error.valid_up_to())))?;
        Self::parse(text, file)
    }

    /// Reads text. `file` is the name in messages, and paths of secrets are relative to its folder.
    pub fn parse(text: &str, file: &Path) -> Result<Self, ConfigError> {
        let raw = raw::parse(text).map_err(|refusal| ConfigError::refused(file, refusal))?;
        spec::check(&raw, file).map_err(|refusal| ConfigError::refused(file, refusal))
    }
}

fn not_utf8(octets: &[u8], at: usize) -> Refusal {
    let before = String::from_utf8_lossy(octets.get(..at).unwrap_or_default()).into_owned();
    let last_line = before.rsplit('\n').next().unwrap_or_default();
    Refusal {
        line: before.matches('\n').count() as u64 + 1,
        column: last_line.chars().count() as u64 + 1,
        path: String::new(),
        found: "an octet that is not UTF-8".to_owned(),
        allowed: "UTF-8 text".to_owned(),
    }
}
