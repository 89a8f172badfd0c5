//! `tablegen`: builds forwarding tables from configurations, and helps to review and roll them out.
//!
//! ```text
//! cli ─► report ─► review ─► generate ─► config ─► common
//!  │        └────────┬──────────┘
//!  ├──► edit ────────┤            format, progress: used by all
//!  └──► compare, glb, verify, store
//! ```
//!
//! Deterministic: what it writes depends on no clock, no randomness and no environment. The same configuration and
//! the same parent table give the same octets, whatever the order of keys, backends and binds, and whatever the
//! number of threads.
//!
//! It does not talk to directors, backends or the network, and reads packets only in `explain --pcap` and
//! `simulate --flows`.

pub mod cli;
pub mod compare;
pub mod config;
pub mod edit;
pub mod files;
pub mod format;
pub mod generate;
pub mod glb;
pub mod progress;
pub mod report;
pub mod review;
pub mod store;
pub mod verify;
