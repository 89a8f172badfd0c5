//! Displays of facts: text for a terminal, JSON for scripts, HTML for a review. Nothing is computed here that a
//! decision depends on.

mod changes;
pub(crate) mod dump;
mod explain;
pub mod html;
pub(crate) mod json;
pub mod load;
pub(crate) mod summary;
mod text;

use crate::review::diff::Diff;
use crate::review::verdict::Judgement;

/// A change and the verdict on it, for display.
#[derive(Debug)]
pub struct Report<'a> {
    /// The change.
    pub diff: &'a Diff,
    /// The verdict on it, with its conditions and reasons.
    pub judgement: &'a Judgement,
    /// The certificate of the new table, as `verify --certificate` wrote it.
    pub certificate: Option<&'a serde_json::Value>,
}
