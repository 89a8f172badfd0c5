//! Exchange with GLB Director: its JSON in ([`import`]), its table file out ([`export`]).
//!
//! What its formats cannot say is refused, never approximated: no weights, 256 backends and binds, 65,536 rows.

mod export;
mod import;

pub use export::{ExportError, Exported, export};
pub use import::{ImportError, Imported, import};
