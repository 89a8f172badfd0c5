//! What a table file of GLB Director's does not hold: which fields of a packet are hashed. GLB says it in its director's
//! own configuration (`director.conf`), so here it is the key `glb` of `dataplane.yaml`. A table of `tablegen` holds its
//! fields, and a configuration that says them again is refused.

use std::path::{Path, PathBuf};

use common::flow::HashFields;
use common::table::{ForwardingTable, TableError, glb};

use super::ConfigError;
use super::raw::{Field, RawGlb};

/// The fields that GLB's director.conf names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlbFields {
    /// What the flow hash reads.
    pub hash_fields: HashFields,
    /// What a second look-up reads whose hops are appended.
    pub alt_hash_fields: HashFields,
}

/// GLB's own defaults.
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
    for one in list {
        let field = HashFields::from_name(one.text()).filter(|field| !all.contains(*field));
        all = all.with(field.ok_or_else(|| one.refuse(FIELDS))?);
    }
    Ok(all)
}

/// A table file, read.
#[derive(Debug)]
pub struct TableFile {
    /// What it holds.
    pub table: ForwardingTable,
    /// It is GLB Director's, and nobody said which fields it hashes: GLB's default is taken.
    pub assumes_fields: bool,
}

/// What the operator is told of a file that [assumes its fields](TableFile::assumes_fields).
pub const ASSUMED: &str = "a GLB Director table file does not say which fields it hashes: [src_addr] is taken, GLB's default. If \
                           director.conf sets hash_fields or alt_hash_fields, set the same under `glb` in the configuration; \
                           `glb: {}` confirms the default";

/// Why a table file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TableFileError {
    /// It is no table.
    #[error("{}", .0.display())]
    Table(PathBuf, #[source] TableError),
    /// The configuration says the fields of a file that says them itself.
    #[error("{}", .0.display())]
    NotGlb(PathBuf, #[source] NotGlb),
}

/// The key `glb`, and a table of `tablegen`.
#[derive(Debug, thiserror::Error)]
#[error("not a GLB Director table file, so it holds its hash fields: remove `glb` from the configuration")]
pub struct NotGlb;

impl TableFile {
    /// Reads the octets of `path`, which is either format's.
    ///
    /// # Errors
    /// If they are no table, or if `fields` are given for a table of `tablegen`.
    pub fn decode(path: &Path, octets: &[u8], fields: Option<GlbFields>) -> Result<Self, TableFileError> {
        let is_glb = octets.starts_with(&glb::MAGIC);
        let table = match fields {
            Some(_) if !is_glb => return Err(TableFileError::NotGlb(path.to_owned(), NotGlb)),
            Some(GlbFields { hash_fields, alt_hash_fields }) => {
                glb::read_with(octets, hash_fields, alt_hash_fields)
            }
            None => ForwardingTable::read(octets),
        };
        let table = table.map_err(|error| TableFileError::Table(path.to_owned(), error))?;
        Ok(Self { table, assumes_fields: is_glb && fields.is_none() })
    }
}
