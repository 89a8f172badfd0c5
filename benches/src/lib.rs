//! Shared set-up of the benches.

pub mod packets;
