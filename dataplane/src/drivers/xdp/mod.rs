//! The fast paths in the kernel (`dataplane/bpf/`): what they need is laid out here, loaded and kept current. This is
//! about the director's; [`redirect`](crate::redirect) has the redirector's.
//!
//! **The kernel program is a cache of [`Pipeline`](crate::pipeline::Pipeline).** It sends the plain case and leaves
//! every other frame as it came to the worker on the same interface, which knows the whole policy. So a frame is
//! counted once, by whoever decided about it.
//!
//! ```text
//! Pipeline ─► Layout ─► maps of one generation ─► program ─► link of each interface
//!                       binds tables rows          │
//!                       hops (two halves) ◄────────┴─ next hops change in place
//! ```
//!
//! A generation is one program with its own maps, whose sizes and constants the kernel's verifier knows. It is filled
//! before anybody can see it and takes the place of the last one in a single system call an interface (`BPF_LINK_UPDATE`):
//! no packet meets half of two. Next hops are written to the half of their array that is not in use, and one word says
//! which half is.
//!
//! The link is held by this process: when it ends, however it ends, the kernel takes the program off the interface,
//! and nothing forwards by an old table.

pub(crate) mod abi;
mod binds;
pub(crate) mod director;
mod error;
mod layout;
mod left;

pub use director::{Attached, Counts, Director, Placed};
pub use error::XdpError;
pub use left::Left;
