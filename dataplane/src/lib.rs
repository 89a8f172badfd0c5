//! dataplane

pub mod pipeline;
pub mod route;
pub mod sys;
pub mod wire;
