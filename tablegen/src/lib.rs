//! `tablegen`: a configuration in, a forwarding table out.
//!
//! Deterministic: no clock, no randomness and no environment in what it writes. The same configuration and the same
//! parent give the same octets whatever the order of keys, backends and binds, and whatever the number of threads.
//!
//! Does not talk to directors, backends or the network, and never sees a packet but in `explain --pcap`.

pub mod cli;
pub mod compare;
pub mod config;
pub mod diff;
pub mod dump;
pub mod edit;
pub mod explain;
pub mod files;
pub mod generate;
pub mod glb;
pub mod plan;
pub mod progress;
mod quoted;
pub mod report;
pub mod simulate;
pub mod store;
pub mod summary;
pub mod verify;
