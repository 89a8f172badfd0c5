//! The kernel paths (`dataplane/bpf/`): lays out the maps, loads the programs and updates them. This module
//! is about the director's program; [`redirect`](crate::redirect) has the redirector's.
//! **The kernel program is a cache of [`Pipeline`](crate::pipeline::Pipeline).** It forwards common frames
//! and punts every other frame unchanged to the worker on the same interface, which has the whole policy. So
//! each frame is counted once, by the side that decides it.
//!
//! ```text
//! Pipeline ─► Layout ─► maps of one generation ─► program ─► link of each interface
//!                       binds tables rows          │
//!                       hops (two halves) ◄────────┴─ next hops change in place
//! ```
//!
//! A generation is a program with its own maps, whose sizes and constants the kernel's verifier knows. It is
//! filled before it is attached and replaces the previous generation in a single system call per interface
//! (`BPF_LINK_UPDATE`), so no packet is processed by parts of two. Next hops are written to the half of their
//! array that is not in use; then a single word selects that half.
//!
//! This process holds the link. When the process ends, for any reason, the kernel detaches the program from
//! the interface, so that nothing forwards by an old table.

pub(crate) mod abi;
mod binds;
pub(crate) mod director;
mod error;
mod layout;
mod punt_reason;

pub use director::{Attached, Attachment, Counts, Director};
pub use error::XdpError;
pub use punt_reason::PuntReason;
