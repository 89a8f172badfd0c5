//! Exit codes of the programs.

use common::table::TableError;

use super::config::{ConfigError, NotGlb};

/// An input was refused, or is over a limit that was set.
pub const REFUSED: u8 = 1;
/// Wrong usage (clap exits with the same code), or a system failure.
pub const FAILED: u8 = 2;

/// 1 if an input was read and refused, 2 for all other errors.
#[must_use]
pub fn exit_code(error: &anyhow::Error) -> u8 {
    let refused = error.chain().any(|e| {
        let refused = e.downcast_ref::<ConfigError>().is_some_and(|e| !e.is_unreadable());
        refused || e.is::<TableError>() || e.is::<NotGlb>()
    });
    if refused { REFUSED } else { FAILED }
}
