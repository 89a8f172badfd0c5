//! `dataplane demo`: the whole balancer on a single machine, without root where the system allows it.
//!
//! Real kernels, real programs, real TCP, in network namespaces of this process. All printed numbers are
//! counted.

mod args;
mod story;

pub use args::DemoArgs;
