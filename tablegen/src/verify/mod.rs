//! An independent proof that a table is what its configuration and its parent make of it.

mod hash;
pub mod slow;
