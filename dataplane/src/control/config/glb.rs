//! The hash fields of a GLB Director table file, which does not contain them. GLB has them in its director's
//! own configuration (`director.conf`); here they are the key `glb` of `dataplane.yaml`. A table of
//! `tablegen` contains its fields, and a configuration that gives them again is refused.

use std::path::Path;

use common::flow::HashFields;

use super::ConfigError;
use super::raw::{Field, RawGlb};

/// The hash fields of GLB's director.conf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlbFields {
    /// Fields of the flow hash.
    pub hash_fields: HashFields,
    /// Fields of a second look-up, whose hops are appended.
    pub alt_hash_fields: HashFields,
}

/// GLB's defaults.
impl Default for GlbFields {
    fn default() -> Self {
        Self { hash_fields: HashFields::SRC_ADDR, alt_hash_fields: HashFields::NONE }
    }
}

const FIELDS: &str = "any of src_addr, dst_addr, src_port, dst_port, each once";

impl GlbFields {
    pub(super) fn read(path: &Path, raw: &RawGlb) -> Result<Self, ConfigError> {
        let default = Self::default();
        let hash_fields = match raw.hash_fields.is_given() {
            true => fields(raw.hash_fields.required(path, "glb.hash_fields", FIELDS)?)?,
            false => default.hash_fields,
        };
        let alt_hash_fields = fields(raw.alt_hash_fields.optional(path, "glb.alt_hash_fields"))?;
        Ok(Self { hash_fields, alt_hash_fields })
    }
}

fn fields<'a>(list: impl Iterator<Item = Field<'a>>) -> Result<HashFields, ConfigError> {
    let mut all = HashFields::NONE;
    for entry in list {
        let field = HashFields::from_name(entry.text()).filter(|field| !all.contains(*field));
        all = all.with(field.ok_or_else(|| entry.refuse(FIELDS))?);
    }
    Ok(all)
}

/// The warning about a GLB Director file without hash fields in the configuration.
pub const ASSUMED: &str = "a GLB Director table file does not say which fields it hashes: [src_addr] is taken, GLB's default. If \
                           director.conf sets hash_fields or alt_hash_fields, set the same under `glb` in the configuration; \
                           `glb: {}` confirms the default";

/// The configuration has the key `glb`, but the table is not a GLB Director file.
#[derive(Debug, thiserror::Error)]
#[error("not a GLB Director table file, so it holds its hash fields: remove `glb` from the configuration")]
pub struct NotGlb;
