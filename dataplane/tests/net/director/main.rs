//! The director's side of the kernel: rings, routes and a running director, each in network namespaces that
//! the test makes for itself and that vanish with its threads.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod files;
mod host;
mod namespace;
mod ring;
mod route;
mod run;
