//! Vectors computed elsewhere, and hostile table files.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![expect(clippy::cast_possible_truncation, reason = "64-bit test machines")]

mod glb_file;
mod reading;
mod table_file;
mod vectors;
