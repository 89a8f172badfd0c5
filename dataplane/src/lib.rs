//! dataplane

pub mod pipeline;
pub mod redirect;
pub mod route;
pub mod sys;
pub mod wire;
