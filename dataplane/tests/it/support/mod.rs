//! Code that the tests share: frames built by hand, tables built without tablegen, and a second reader of the
//! output.

pub(crate) mod frames;
pub(crate) mod judge;
pub(crate) mod tables;
pub(crate) mod vectors;
