//! A small network inside this process: clients, a router, directors and backends, each in a network
//! namespace of its own, with real servers and real programs. `demo` and the network tests are built on it.
//!
//! ```text
//! client ─┐                       ┌─ director ─┐  GUE
//! client ─┴─ router (ECMP, L4) ───┼─ director ─┼──────► router ─┬─ backend: redirect, server, VIP on lo
//!             ▲                   └─ director ─┘                ├─ backend
//!             └───────────── responses, directly from the VIP ─┴─ backend
//! ```
//!
//! Namespaces have no names and live as long as this process; programs end with the thread that started them.
//! So nothing remains, for any end of the process. The host's own interfaces are never touched.

pub mod client;
pub mod folder;
pub mod modes;
pub mod netns;
pub mod peer;
pub mod program;
pub mod server;
pub mod service;
pub mod topology;
pub mod world;
