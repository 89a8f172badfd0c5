//! What the tests share: frames made by hand, tables made without tablegen, and a second reader of what came
//! out.

pub(crate) mod frames;
pub(crate) mod judge;
pub(crate) mod tables;
pub(crate) mod vectors;
