//! `dataplane demo`: the whole thing at work on one machine, without root where the system allows it.
//!
//! Real kernels, real programs, real TCP, in network namespaces of this process. What it prints it has
//! counted.

mod args;
mod story;

pub use args::DemoArgs;
