//! Frames through the packet path, and captures through `replay`. Needs no privilege.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[allow(dead_code, reason = "other test files use the rest")]
mod support;

mod glb;
mod replay;
