//! Frames through the packet path, and captures through `replay`. Needs no privilege.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

mod allocations;
mod answers;
mod configs;
mod glb;
mod policy;
mod properties;
mod replay;
