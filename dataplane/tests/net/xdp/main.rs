//! The kernel programs against the Rust pipeline: the same frames, the same verdicts, the same octets; also
//! on cables, in network namespaces that the test creates.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "shared with the other test binary, which uses all of it"
)]
#[path = "../../it/support/mod.rs"]
mod support;

#[allow(dead_code, reason = "shared with the director's tests, which use all of it")]
#[path = "../director/host.rs"]
mod host;
#[allow(dead_code, reason = "shared with the director's tests, which use all of it")]
#[path = "../director/namespace.rs"]
mod namespace;

mod cable;
mod fuzz;
mod judge;
mod lab;
mod redirect;
mod redirect_fuzz;
mod run;
mod vectors;
