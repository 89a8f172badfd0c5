//! dataplane

pub mod pipeline;
pub mod sys;
pub mod wire;
