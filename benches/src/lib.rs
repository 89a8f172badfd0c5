//! Shared set-up of the benches.

pub mod packets;
#[cfg(feature = "peers")]
pub mod peers;
