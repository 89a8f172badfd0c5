//! Configurations: what an operator writes and reviews.
//!
//! ```text
//! text ─► raw (keys and lists, every scalar still text) ─► spec (what each must be) ─► Config
//! ```
//!
//! A [`Config`] that exists makes sense: every number is in its range, no two things share a name, an address or a
//! packet. All that is refused names file, line, column, key path, what was found and what is allowed; the text of a
//! secret is never part of that. `configs/invalid` has one file for each refusal, with its message.

mod error;
mod raw;
mod spec;
mod value;

pub use error::{ConfigError, Refusal, Warning};
pub(crate) use raw::budget;
pub(crate) use value::without_secrets;

use crate::files;
use common::backend::Backend;
use common::bind::Bind;
use common::flow::HashFields;
use common::hash::SipKey;
use common::table::{Ranking, Seed};
use std::path::Path;

/// Least and greatest weight. Far beyond what a rollout needs, and far from where doubles lose the shares.
pub const WEIGHTS: std::ops::RangeInclusive<f64> = 1e-6..=1e6;

/// A configuration that makes sense.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// In the order of the file.
    pub tables: Vec<TableSpec>,
    /// What may be meant, but surprises.
    pub warnings: Vec<Warning>,
}

/// One table to be built. Backends and binds keep the order of the file, which matters to GLB's format alone.
#[derive(Clone, Debug, PartialEq)]
pub struct TableSpec {
    /// Unique in the file.
    pub name: String,
    /// A power of two.
    pub rows: u32,
    /// Longest hop list.
    pub max_hops: u8,
    /// How backends are ranked.
    pub ranking: Ranking,
    /// Seed of the ranking.
    pub seed: Seed,
    /// Key of the flow hash.
    pub hash_key: SipKey,
    /// What the flow hash reads.
    pub hash_fields: HashFields,
    /// What a second look-up reads, if any.
    pub alt_hash_fields: HashFields,
    /// Prefer a second hop of another zone.
    pub spread_zones: bool,
    /// Most rows of a backend, as a multiple of its share by weight.
    pub max_share: Option<f64>,
    /// At least one.
    pub binds: Vec<Bind>,
    /// At least one.
    pub backends: Vec<Backend>,
}

impl Config {
    /// Reads a file.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        let octets =
            files::octets(file).map_err(|cause| ConfigError::Read { file: file.to_owned(), cause })?;
        let text = std::str::from_utf8(&octets)
            .map_err(|error| ConfigError::refused(file, not_utf8(&octets, error.valid_up_to())))?;
        Self::parse(text, file)
    }

    /// Reads text; `file` is named in messages, and secrets in files are looked for beside it.
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
