//! What `tablegen` and `dataplane` must agree on, and nothing else: how a packet is hashed, which fields of a packet choose its row, which packets belong to a table, and the octets of the file between
//! the two programs.
//!
//! This crate opens no file and no socket, reads no clock, and depends on no serialisation framework. Everything
//! here is a function of its arguments, so two machines that hold the same file always decide alike. What is read, is
//! read from a reader that the caller has opened.

#![deny(missing_docs)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod backend;
pub mod bind;
pub mod bounded;
pub mod flow;
pub mod hash;
pub mod table;
pub mod text;
pub mod tunnel;
