//! dataplane

pub mod wire;
