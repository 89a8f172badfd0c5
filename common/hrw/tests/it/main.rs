//! Vectors that an independent implementation computed, and the statistics of rankings.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod quality;
mod vectors;
