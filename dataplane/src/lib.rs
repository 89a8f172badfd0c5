//! dataplane

pub mod sys;
pub mod wire;
