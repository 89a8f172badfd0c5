//! Shared set-up of the benches.

pub mod cable;
pub mod packets;
#[cfg(feature = "peers")]
pub mod peers;
pub mod table;
pub mod usage;
